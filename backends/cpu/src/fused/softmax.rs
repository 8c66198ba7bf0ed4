//! Softmax and its logarithm, row by row.

use std::mem::MaybeUninit;

use polygrad_core::{Error, Result, decompose};

use super::rows::{each_in_row, max_row, sum_row};
use super::{back_from_rows, rows_along, vectors};
use crate::Pointer;
use crate::math::{exp, exp_nonpositive};
use crate::ops::axis_in;
use crate::simd::{Kernel, Simd, StorePolicy};
use crate::{Cpu, CpuTensor};

/// Approximate nanoseconds per element.
const NS: f32 = 0.5;

/// The longest rows whose exponentials are kept in a buffer in the first-level cache, if results bypass the caches.
const ROOM: usize = 4096;

/// See [`polygrad_core::Backend::softmax`].
pub(crate) fn softmax(x: &CpuTensor, axis: usize) -> Result<CpuTensor> {
    axis_in("softmax", x, axis)?;
    match vectors([x]) {
        Some(_) => forward::<false>(x, axis),
        None => decompose::softmax::<Cpu>(x, axis),
    }
}

/// See [`polygrad_core::Backend::log_softmax`].
pub(crate) fn log_softmax(x: &CpuTensor, axis: usize) -> Result<CpuTensor> {
    axis_in("log_softmax", x, axis)?;
    match vectors([x]) {
        Some(_) => forward::<true>(x, axis),
        None => decompose::log_softmax::<Cpu>(x, axis),
    }
}

/// See [`polygrad_core::Backend::softmax_backward`].
pub(crate) fn softmax_backward(grad: &CpuTensor, output: &CpuTensor, axis: usize) -> Result<CpuTensor> {
    match vectors([grad, output]) {
        Some(_) => backward::<false>(grad, output, axis),
        None => decompose::softmax_backward::<Cpu>(grad, output, axis),
    }
}

/// See [`polygrad_core::Backend::log_softmax_backward`].
pub(crate) fn log_softmax_backward(grad: &CpuTensor, output: &CpuTensor, axis: usize) -> Result<CpuTensor> {
    match vectors([grad, output]) {
        Some(_) => backward::<true>(grad, output, axis),
        None => decompose::log_softmax_backward::<Cpu>(grad, output, axis),
    }
}

fn forward<const LOG: bool>(x: &CpuTensor, axis: usize) -> Result<CpuTensor> {
    let x = rows_along(x, axis)?;
    let n = x.shape()[x.shape().rank() - 1];
    let mut out = CpuTensor::empty(*x.shape(), x.dtype(), x.device())?;
    let (from, to) = (
        Pointer(x.ptr().cast_mut().cast::<f32>()),
        Pointer(out.ptr_mut().cast::<f32>()),
    );
    let policy = match n {
        0..=ROOM => x.device().store_policy(x.numel() * size_of::<f32>()),
        _ => StorePolicy::cached(Some(x.device().level())),
    };
    x.device().split(x.numel() / n.max(1), NS * n as f32, 1, |start, end| {
        policy.run(Forward::<LOG> {
            x: from.at(start * n),
            y: to.at(start * n),
            rows: end - start,
            n,
        });
    });
    back_from_rows(&out, axis)
}

struct Forward<const LOG: bool> {
    x: *const f32,
    y: *mut f32,
    rows: usize,
    n: usize,
}

impl<const LOG: bool> Kernel for Forward<LOG> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let n = self.n;
        let mut room = MaybeUninit::<[f32; ROOM]>::uninit();
        for row in 0..self.rows {
            let (x, y) = (self.x.wrapping_add(row * n), self.y.wrapping_add(row * n));
            let powers = if s.past() { room.as_mut_ptr().cast() } else { y };
            // SAFETY: the rows are inside input and output, which have one shape; if the buffer holds the exponentials,
            // rows are not longer than it.
            unsafe {
                let most = max_row(s, x, n);
                let top = s.splat(most);
                if LOG {
                    let total = sum_row!(s, n, |load, store| exp_nonpositive(s, s.sub(load(x), top)));
                    let shift = s.splat(total.ln() as f32);
                    each_in_row!(s, n, |load, store| store(y, s.sub(s.sub(load(x), top), shift)));
                } else {
                    let total = sum_row!(s, n, |load, store| {
                        let e = exp_nonpositive(s, s.sub(load(x), top));
                        store(powers, e);
                        e
                    });
                    let scale = s.splat((1.0 / total) as f32);
                    each_in_row!(s, n, |load, store| store(y, s.mul(load(powers), scale)));
                }
            }
        }
    }
}

fn backward<const LOG: bool>(grad: &CpuTensor, output: &CpuTensor, axis: usize) -> Result<CpuTensor> {
    if grad.shape() != output.shape() || axis >= grad.shape().rank() {
        return Err(Error::shape("gradient and output differ in shape")
            .with_op("softmax_backward")
            .with_operands([(*grad.shape(), grad.dtype()), (*output.shape(), output.dtype())]));
    }
    let (grad, output) = (rows_along(grad, axis)?, rows_along(output, axis)?);
    let n = grad.shape()[grad.shape().rank() - 1];
    let mut out = CpuTensor::empty(*grad.shape(), grad.dtype(), grad.device())?;
    let [g, y] = [&grad, &output].map(|x| Pointer(x.ptr().cast_mut().cast::<f32>()));
    let to = Pointer(out.ptr_mut().cast::<f32>());
    let policy = grad.device().store_policy(grad.numel() * size_of::<f32>());
    grad.device()
        .split(grad.numel() / n.max(1), NS * n as f32, 1, |start, end| {
            let at = start * n;
            policy.run(Backward::<LOG> {
                g: g.at(at),
                y: y.at(at),
                to: to.at(at),
                rows: end - start,
                n,
            });
        });
    back_from_rows(&out, axis)
}

struct Backward<const LOG: bool> {
    g: *const f32,
    y: *const f32,
    to: *mut f32,
    rows: usize,
    n: usize,
}

impl<const LOG: bool> Kernel for Backward<LOG> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let n = self.n;
        for row in 0..self.rows {
            let (g, y, to) = (
                self.g.wrapping_add(row * n),
                self.y.wrapping_add(row * n),
                self.to.wrapping_add(row * n),
            );
            // SAFETY: the rows are inside all three, which have one shape.
            unsafe {
                if LOG {
                    let total = s.splat(-sum_row!(s, n, |load, store| load(g)) as f32);
                    each_in_row!(s, n, |load, store| store(
                        to,
                        s.mul_add(exp(s, load(y)), total, load(g))
                    ));
                } else {
                    let mean = s.splat(sum_row!(s, n, |load, store| s.mul(load(g), load(y))) as f32);
                    // The rounding error of the mean, which would dominate the result for a g whose weight is nearly 1.
                    let rest = sum_row!(s, n, |load, store| s.mul(s.sub(load(g), mean), load(y)));
                    let rest = s.splat(rest as f32);
                    each_in_row!(s, n, |load, store| {
                        store(to, s.mul(load(y), s.sub(s.sub(load(g), mean), rest)));
                    });
                }
            }
        }
    }
}
