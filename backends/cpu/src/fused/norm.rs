//! Layer and root-mean-square normalisation, row by row.

use polygrad_core::{DType, Error, Result, Shape, decompose};

use super::rows::{each_in_row, sum_row};
use super::vectors;
use crate::Pointer;
use crate::buffers::Buffer;
use crate::simd::{Kernel, Simd};
use crate::{Cpu, CpuDevice, CpuTensor};

/// Approximate nanoseconds per element.
const NS: f32 = 0.6;

/// The most parts in which gradients of weight and bias are summed up. It does not depend on the number of threads, so
/// that results do not either.
const PARTS: usize = 16;

/// Rows of normalised elements.
#[derive(Clone, Copy)]
struct Rows {
    count: usize,
    n: usize,
    /// The shape of mean and standard deviation.
    kept: Shape,
    inner: Shape,
}

impl Rows {
    fn new(op: &'static str, x: &CpuTensor, axes: usize) -> Result<Self> {
        let rank = x.shape().rank();
        if axes == 0 || axes > rank {
            return Err(Error::invalid(format!("{axes} axes of shape {}", x.shape())).with_op(op));
        }
        let inner = Shape::new(&x.shape()[rank - axes..])?;
        let mut kept = *x.shape();
        kept.dims_mut()[rank - axes..].fill(1);
        Ok(Self {
            count: kept.numel(),
            n: inner.numel(),
            kept,
            inner,
        })
    }

    /// Weight or bias, contiguous.
    fn parameter(&self, op: &'static str, x: Option<&CpuTensor>) -> Result<Option<CpuTensor>> {
        match x {
            None => Ok(None),
            Some(x) if *x.shape() == self.inner => x.contiguous().map(Some),
            Some(x) => Err(Error::shape(format!(
                "weight and bias must have shape {}, got {}",
                self.inner,
                x.shape()
            ))
            .with_op(op)),
        }
    }

    /// A number for each row, contiguous.
    fn statistic(&self, op: &'static str, x: &CpuTensor) -> Result<CpuTensor> {
        if x.numel() == self.count {
            return x.contiguous();
        }
        Err(Error::shape(format!("takes a statistic of shape {}, got {}", self.kept, x.shape())).with_op(op))
    }
}

fn address(x: Option<&CpuTensor>) -> *const f32 {
    x.map_or(std::ptr::null(), |x| x.ptr().cast())
}

/// See [`polygrad_core::Backend::layer_norm`].
pub(crate) fn layer_norm(
    x: &CpuTensor,
    weight: Option<&CpuTensor>,
    bias: Option<&CpuTensor>,
    axes: usize,
    eps: f64,
) -> Result<(CpuTensor, CpuTensor, CpuTensor)> {
    let rows = Rows::new("layer_norm", x, axes)?;
    if vectors([x].into_iter().chain(weight).chain(bias)).is_none() || x.numel() == 0 {
        return decompose::layer_norm::<Cpu>(x, weight, bias, axes, eps);
    }
    let (y, mean, rstd) = forward::<true>("layer_norm", x, weight, bias, rows, eps)?;
    Ok((y, mean, rstd))
}

/// See [`polygrad_core::Backend::rms_norm`].
pub(crate) fn rms_norm(
    x: &CpuTensor,
    weight: Option<&CpuTensor>,
    axes: usize,
    eps: f64,
) -> Result<(CpuTensor, CpuTensor)> {
    let rows = Rows::new("rms_norm", x, axes)?;
    if vectors([x].into_iter().chain(weight)).is_none() || x.numel() == 0 {
        return decompose::rms_norm::<Cpu>(x, weight, axes, eps);
    }
    let (y, _, rstd) = forward::<false>("rms_norm", x, weight, None, rows, eps)?;
    Ok((y, rstd))
}

/// `CENTRE`: whether the mean is subtracted.
fn forward<const CENTRE: bool>(
    op: &'static str,
    x: &CpuTensor,
    weight: Option<&CpuTensor>,
    bias: Option<&CpuTensor>,
    rows: Rows,
    eps: f64,
) -> Result<(CpuTensor, CpuTensor, CpuTensor)> {
    let (x, device, n) = (x.contiguous()?, x.device(), rows.n);
    let (weight, bias) = (rows.parameter(op, weight)?, rows.parameter(op, bias)?);
    let mut y = CpuTensor::empty(*x.shape(), DType::F32, device)?;
    let mut mean = CpuTensor::empty(rows.kept, DType::F32, device)?;
    let mut rstd = CpuTensor::empty(rows.kept, DType::F32, device)?;
    let [from, weight, bias] = [Some(&x), weight.as_ref(), bias.as_ref()].map(|x| Pointer(address(x).cast_mut()));
    let [to, mean_to, rstd_to] = [&mut y, &mut mean, &mut rstd].map(|x| Pointer(x.ptr_mut().cast::<f32>()));
    let policy = device.store_policy(rows.count * n * size_of::<f32>());
    device.split(rows.count, NS * n as f32 + 20.0, 1, |start, end| {
        policy.run(Forward::<CENTRE> {
            x: from.at(start * n),
            weight: weight.at(0),
            bias: bias.at(0),
            y: to.at(start * n),
            mean: mean_to.at(start),
            rstd: rstd_to.at(start),
            rows: end - start,
            n,
            eps,
        });
    });
    Ok((y, mean, rstd))
}

struct Forward<const CENTRE: bool> {
    x: *const f32,
    weight: *const f32,
    bias: *const f32,
    y: *mut f32,
    mean: *mut f32,
    rstd: *mut f32,
    rows: usize,
    n: usize,
    eps: f64,
}

impl<const CENTRE: bool> Kernel for Forward<CENTRE> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { weight, bias, n, .. } = self;
        for row in 0..self.rows {
            let (x, y) = (self.x.wrapping_add(row * n), self.y.wrapping_add(row * n));
            // SAFETY: the rows are inside their tensors; weight and bias, if present, have `n` elements.
            unsafe {
                let mean = if CENTRE {
                    sum_row!(s, n, |load, store| load(x)) / n as f64
                } else {
                    0.0
                };
                let m = s.splat(mean as f32);
                let squares = sum_row!(s, n, |load, store| {
                    let d = s.sub(load(x), m);
                    s.mul(d, d)
                });
                let rstd = 1.0 / (squares / n as f64 + self.eps).sqrt();
                self.mean.add(row).write(mean as f32);
                self.rstd.add(row).write(rstd as f32);
                let r = s.splat(rstd as f32);
                if weight.is_null() {
                    each_in_row!(s, n, |load, store| store(y, s.mul(s.sub(load(x), m), r)));
                } else if bias.is_null() {
                    each_in_row!(s, n, |load, store| {
                        store(y, s.mul(s.mul(s.sub(load(x), m), r), load(weight)));
                    });
                } else {
                    each_in_row!(s, n, |load, store| {
                        store(y, s.mul_add(s.mul(s.sub(load(x), m), r), load(weight), load(bias)));
                    });
                }
            }
        }
    }
}

/// See [`polygrad_core::Backend::layer_norm_backward`].
pub(crate) fn layer_norm_backward(
    grad: &CpuTensor,
    x: &CpuTensor,
    mean: &CpuTensor,
    rstd: &CpuTensor,
    weight: Option<&CpuTensor>,
    axes: usize,
) -> Result<(CpuTensor, CpuTensor, CpuTensor)> {
    let rows = Rows::new("layer_norm_backward", x, axes)?;
    if vectors([grad, x, mean, rstd].into_iter().chain(weight)).is_none() || x.numel() == 0 {
        return decompose::layer_norm_backward::<Cpu>(grad, x, mean, rstd, weight, axes);
    }
    backward::<true>("layer_norm_backward", grad, x, Some(mean), rstd, weight, rows)
}

/// See [`polygrad_core::Backend::rms_norm_backward`].
pub(crate) fn rms_norm_backward(
    grad: &CpuTensor,
    x: &CpuTensor,
    rstd: &CpuTensor,
    weight: Option<&CpuTensor>,
    axes: usize,
) -> Result<(CpuTensor, CpuTensor)> {
    let rows = Rows::new("rms_norm_backward", x, axes)?;
    if vectors([grad, x, rstd].into_iter().chain(weight)).is_none() || x.numel() == 0 {
        return decompose::rms_norm_backward::<Cpu>(grad, x, rstd, weight, axes);
    }
    let (grad_x, grad_weight, _) = backward::<false>("rms_norm_backward", grad, x, None, rstd, weight, rows)?;
    Ok((grad_x, grad_weight))
}

fn backward<const CENTRE: bool>(
    op: &'static str,
    grad: &CpuTensor,
    x: &CpuTensor,
    mean: Option<&CpuTensor>,
    rstd: &CpuTensor,
    weight: Option<&CpuTensor>,
    rows: Rows,
) -> Result<(CpuTensor, CpuTensor, CpuTensor)> {
    if grad.shape() != x.shape() {
        return Err(Error::shape(format!("a gradient of shape {} for {}", grad.shape(), x.shape())).with_op(op));
    }
    let (device, n) = (x.device(), rows.n);
    let (grad, x, weight) = (grad.contiguous()?, x.contiguous()?, rows.parameter(op, weight)?);
    let mean = mean.map(|mean| rows.statistic(op, mean)).transpose()?;
    let rstd = rows.statistic(op, rstd)?;
    let mut grad_x = CpuTensor::empty(*x.shape(), DType::F32, device)?;
    let mut grad_weight = CpuTensor::empty(rows.inner, DType::F32, device)?;
    let mut grad_bias = CpuTensor::empty(rows.inner, DType::F32, device)?;
    // Each part sums up the gradients of weight and bias over its own rows.
    let parts = (rows.count * n / 16_384).clamp(1, PARTS).min(rows.count);
    let share = rows.count.div_ceil(parts);
    let parts = rows.count.div_ceil(share);
    let sums = Buffer::alloc(parts * 2 * n * size_of::<f32>())?;
    let sums_ptr = Pointer(sums.as_ptr().cast::<f32>());
    let [g, from, m, r, w] =
        [Some(&grad), Some(&x), mean.as_ref(), Some(&rstd), weight.as_ref()].map(|x| Pointer(address(x).cast_mut()));
    let to = Pointer(grad_x.ptr_mut().cast::<f32>());
    let policy = device.store_policy(rows.count * n * size_of::<f32>());
    device.each(parts, NS * 2.0 * (n * share) as f32, |part| {
        let start = part * share;
        policy.run(Backward::<CENTRE> {
            g: g.at(start * n),
            x: from.at(start * n),
            mean: m.at(start),
            rstd: r.at(start),
            weight: w.at(0),
            to: to.at(start * n),
            grad_weight: sums_ptr.at(part * 2 * n),
            grad_bias: sums_ptr.at((part * 2 + 1) * n),
            rows: share.min(rows.count - start),
            n,
        });
    });
    let [weight_to, bias_to] = [&mut grad_weight, &mut grad_bias].map(|x| Pointer(x.ptr_mut().cast::<f32>()));
    add_parts(device, sums_ptr, parts, n, weight_to, bias_to);
    Ok((grad_x, grad_weight, grad_bias))
}

/// Adds up the parts' sums for weight and bias.
fn add_parts(device: CpuDevice, sums: Pointer<f32>, parts: usize, n: usize, weight: Pointer<f32>, bias: Pointer<f32>) {
    device.split(n, parts as f32 * 0.5, 64, |start, end| {
        for i in start..end {
            let [mut w, mut b] = [0f64; 2];
            for part in 0..parts {
                // SAFETY: each part has two sums of `n` elements.
                unsafe {
                    w += f64::from(sums.at(part * 2 * n + i).read());
                    b += f64::from(sums.at((part * 2 + 1) * n + i).read());
                }
            }
            // SAFETY: both have `n` elements.
            unsafe {
                weight.at(i).write(w as f32);
                bias.at(i).write(b as f32);
            }
        }
    });
}

struct Backward<const CENTRE: bool> {
    g: *const f32,
    x: *const f32,
    mean: *const f32,
    rstd: *const f32,
    weight: *const f32,
    to: *mut f32,
    grad_weight: *mut f32,
    grad_bias: *mut f32,
    rows: usize,
    n: usize,
}

impl<const CENTRE: bool> Kernel for Backward<CENTRE> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self {
            weight,
            grad_weight,
            grad_bias,
            n,
            ..
        } = self;
        // SAFETY: the sums have `n` elements each, and all bits zero are the number 0.
        unsafe {
            std::ptr::write_bytes(grad_weight, 0, n);
            std::ptr::write_bytes(grad_bias, 0, n);
        }
        for row in 0..self.rows {
            let (g, x, to) = (
                self.g.wrapping_add(row * n),
                self.x.wrapping_add(row * n),
                self.to.wrapping_add(row * n),
            );
            // SAFETY: the rows are inside their tensors; the weight, if present, has `n` elements.
            unsafe {
                let mean = s.splat(if CENTRE { self.mean.add(row).read() } else { 0.0 });
                let rstd = s.splat(self.rstd.add(row).read());
                // Means of the scaled gradient, and of its product with the normalised input.
                let mut along = 0.0;
                let plain = sum_row!(s, n, |load, store| {
                    let normal = s.mul(s.sub(load(x), mean), rstd);
                    let grad = load(g);
                    store(grad_weight, s.mul_add(grad, normal, load(grad_weight)));
                    store(grad_bias, s.add(grad, load(grad_bias)));
                    if weight.is_null() {
                        grad
                    } else {
                        s.mul(grad, load(weight))
                    }
                }) / n as f64;
                along += sum_row!(s, n, |load, store| {
                    let normal = s.mul(s.sub(load(x), mean), rstd);
                    let grad = if weight.is_null() {
                        load(g)
                    } else {
                        s.mul(load(g), load(weight))
                    };
                    s.mul(grad, normal)
                }) / n as f64;
                let along = s.splat(-along as f32);
                let plain = s.splat(if CENTRE { plain as f32 } else { 0.0 });
                each_in_row!(s, n, |load, store| {
                    let normal = s.mul(s.sub(load(x), mean), rstd);
                    let grad = if weight.is_null() {
                        load(g)
                    } else {
                        s.mul(load(g), load(weight))
                    };
                    store(to, s.mul(s.mul_add(normal, along, s.sub(grad, plain)), rstd));
                });
            }
        }
    }
}
