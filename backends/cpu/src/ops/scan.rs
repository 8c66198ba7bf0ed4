//! Running sums, and positions of extremes.

use polygrad_core::{ArgOp, Axes, DType, Element, Error, Result, bf16, dispatch_dtype, f16};

use super::{axis_in, numbers, unknown};
use crate::CpuTensor;
use crate::loops::Lines;

/// See [`polygrad_core::Backend::cumsum`].
pub(crate) fn cumsum(x: &CpuTensor, axis: usize) -> Result<CpuTensor> {
    numbers("cumsum", x.dtype())?;
    axis_in("cumsum", x, axis)?;
    let shape = *x.shape();
    let out = CpuTensor::empty(shape, x.dtype(), x.device())?;
    let lines = Lines::new(&shape, axis, [x, &out]);
    let n = shape[axis];
    dispatch_dtype!(x.dtype(), T => x.device().each(lines.count(), n as f32 * 1.5, |line| {
        let mut total = <T as Sum>::Total::default();
        let [from, to] = lines.starts(line).map(<*const u8>::cast_mut);
        for i in 0..n.cast_signed() {
            // SAFETY: `i` is inside the axis; input and output have the same shape and dtype, and lines do not overlap.
            unsafe {
                T::add(&mut total, from.offset(i * lines.step(0)).cast::<T>().read());
                to.offset(i * lines.step(1)).cast::<T>().write(T::value(total));
            }
        }
    }));
    Ok(out)
}

/// How elements are added up: floats in a wider type, integers wrapping.
trait Sum: Sized {
    type Total: Copy + Default;
    fn add(total: &mut Self::Total, x: Self);
    fn value(total: Self::Total) -> Self;
}

macro_rules! sums {
    ($($type:ty: $total:ty, $add:expr, $value:expr;)*) => {$(
        impl Sum for $type {
            type Total = $total;

            #[inline(always)]
            #[allow(clippy::redundant_closure_call, reason = "the table below names functions and closures alike")]
            fn add(total: &mut $total, x: $type) {
                let add: fn($total, $type) -> $total = $add;
                *total = add(*total, x);
            }

            #[inline(always)]
            fn value(total: $total) -> $type {
                let value: fn($total) -> $type = $value;
                value(total)
            }
        }
    )*};
}

sums! {
    bool: u8, |t, x| t | u8::from(x), |t| t != 0;
    u8: u8, u8::wrapping_add, |t| t;
    i32: i32, i32::wrapping_add, |t| t;
    i64: i64, i64::wrapping_add, |t| t;
    f16: f64, |t, x| t + f64::from(x), <f16 as Element>::from_f64;
    bf16: f64, |t, x| t + f64::from(x), <bf16 as Element>::from_f64;
    f32: f64, |t, x| t + f64::from(x), |t| t as f32;
    f64: Compensated, Compensated::plus, |t| if t.total.is_finite() { t.total + t.lost } else { t.total };
}

/// A sum that also accumulates the rounding error of each addition.
///
/// Source: Neumaier, "Rundungsfehleranalyse einiger Verfahren zur Summation endlicher Summen" (1974).
#[derive(Clone, Copy, Default)]
struct Compensated {
    total: f64,
    lost: f64,
}

impl Compensated {
    fn plus(self, x: f64) -> Self {
        let total = self.total + x;
        let lost = if self.total.abs() >= x.abs() {
            (self.total - total) + x
        } else {
            (x - total) + self.total
        };
        Self {
            total,
            lost: self.lost + lost,
        }
    }
}

/// See [`polygrad_core::Backend::arg_reduce`].
pub(crate) fn arg_reduce(op: ArgOp, x: &CpuTensor, axis: usize, keepdims: bool) -> Result<CpuTensor> {
    let largest = match op {
        ArgOp::Max => true,
        ArgOp::Min => false,
        _ => return Err(unknown(op.name())),
    };
    axis_in(op.name(), x, axis)?;
    let shape = *x.shape();
    let out = CpuTensor::empty(shape.reduced(Axes::one(axis), keepdims), DType::I64, x.device())?;
    let n = shape[axis];
    if n == 0 && out.numel() > 0 {
        return Err(Error::invalid("a line of no elements has no extreme")
            .with_op(op.name())
            .with_operands([(shape, x.dtype())]));
    }
    let kept = CpuTensor::with_layout(&out, polygrad_core::Layout::contiguous(shape.with_dim(axis, 1)));
    let lines = Lines::new(&shape, axis, [x, &kept]);
    #[allow(clippy::bool_comparison, reason = "bool is one of the dtypes")]
    {
        dispatch_dtype!(x.dtype(), T => x.device().each(lines.count(), n as f32 + 2.0, |line| {
            // SAFETY: the line has `n` elements of the dtype, and the output one for it.
            unsafe {
                let [from, to] = lines.starts(line);
                let at = if largest {
                    extreme::<T>(from, lines.step(0), n, |x, best| x > best)
                } else {
                    extreme::<T>(from, lines.step(0), n, |x, best| x < best)
                };
                to.cast_mut().cast::<i64>().write(at as i64);
            }
        }));
    }
    Ok(out)
}

/// Position of the first element that beats all others, or of the first NaN.
///
/// # Safety
/// `n` elements must be readable, `step` bytes apart, and `n` be at least 1.
#[inline]
unsafe fn extreme<T: PartialOrd + Copy>(from: *const u8, step: isize, n: usize, beats: impl Fn(T, T) -> bool) -> usize {
    // SAFETY: by the caller.
    let at = |i: usize| unsafe { from.offset(i.cast_signed() * step).cast::<T>().read() };
    let mut best = at(0);
    let mut index = 0;
    for i in 0..n {
        let x = at(i);
        // Only NaN differs from itself.
        #[allow(clippy::eq_op)]
        if x != x {
            return i;
        }
        if beats(x, best) {
            (best, index) = (x, i);
        }
    }
    index
}
