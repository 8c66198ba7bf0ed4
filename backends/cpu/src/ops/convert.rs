//! Conversions between dtypes.

use polygrad_core::{DType, Element, Result, bf16, dispatch_dtype, f16};

use super::half::{Half, Wide};
use crate::CpuTensor;
use crate::loops::{Operand, map};
use crate::simd::{Kernel, Level, Simd};

/// See [`polygrad_core::Backend::cast`].
pub(crate) fn cast(x: &CpuTensor, dtype: DType) -> Result<CpuTensor> {
    if x.dtype() == dtype {
        return Ok(x.clone());
    }
    if dtype == DType::F32
        && let Some(Wide(wide)) = x.packed()
    {
        return Ok(wide.clone());
    }
    let shape = *x.shape();
    let mut out = CpuTensor::empty(shape, dtype, x.device())?;
    let to = out.ptr_mut();
    let level = x.device().vectors();
    let from = x.dtype();
    // SAFETY: the kernel is that of the two dtypes, the shapes agree, and the output is new.
    unsafe {
        map(
            x.device(),
            &shape,
            [Operand::new(x, &shape)],
            to,
            dtype.size(),
            0.5,
            &|[x], to, n| convert(level, from, dtype, x, to, n),
        );
    }
    Ok(out)
}

/// Converts `n` elements.
///
/// # Safety
/// `n` elements of `from` must be readable at `x`, and as many of `dtype` writable at `to`.
pub(crate) unsafe fn convert(level: Option<Level>, from: DType, dtype: DType, x: *const u8, to: *mut u8, n: usize) {
    match (Half::of(from), Half::of(dtype)) {
        (Some(half), None) if dtype == DType::F32 => {
            // SAFETY: by the caller.
            unsafe { half.widen(level, x, to.cast(), n) }
        }
        // SAFETY: by the caller.
        (None, Some(half)) if from == DType::F32 => unsafe { half.narrow(level, x.cast(), to, n) },
        _ => dispatch_dtype!(from, A => dispatch_dtype!(dtype, B => {
            Level::run_loops(level, Convert::<A, B> { x: x.cast(), to: to.cast(), n });
        })),
    }
}

struct Convert<A, B> {
    x: *const A,
    to: *mut B,
    n: usize,
}

impl<A: To<B>, B> Kernel for Convert<A, B> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for i in 0..self.n {
            // SAFETY: `cast` guarantees that the pointers are valid.
            unsafe { self.to.add(i).write(self.x.add(i).read().to()) };
        }
    }
}

/// Same as [`Element::from_scalar`] of [`Element::to_scalar`], without the detour through a `Scalar`.
trait To<B>: Copy {
    fn to(self) -> B;
}

macro_rules! by_as {
    ($($from:ty => $($to:ty)*;)*) => {$($(
        impl To<$to> for $from {
            #[inline(always)]
            fn to(self) -> $to {
                self as $to
            }
        }
    )*)*};
}

by_as! {
    u8 => u8 i32 i64 f32 f64;
    i32 => u8 i32 i64 f32 f64;
    i64 => u8 i32 i64 f32 f64;
    f32 => i32 i64 f32 f64;
    f64 => u8 i32 i64 f32 f64;
}

impl To<u8> for f32 {
    /// Same as `as`, but with instructions that convert several numbers at once.
    #[expect(clippy::manual_clamp, reason = "of NaN `clamp` gives NaN")]
    #[inline(always)]
    fn to(self) -> u8 {
        // SAFETY: numbers from 0 to 255 fit i32; if one operand is NaN, `max` returns the other.
        unsafe { self.max(0.0).min(255.0).to_int_unchecked::<i32>() as u8 }
    }
}

macro_rules! by_element {
    ($($from:ty => $($to:ty)*;)*) => {$($(
        impl To<$to> for $from {
            #[inline(always)]
            fn to(self) -> $to {
                <$to>::from_scalar(self.to_scalar())
            }
        }
    )*)*};
}

by_element! {
    bool => bool u8 i32 i64 f16 bf16 f32 f64;
    u8 => bool f16 bf16;
    i32 => bool f16 bf16;
    i64 => bool f16 bf16;
    f16 => bool u8 i32 i64 f16 bf16 f32 f64;
    bf16 => bool u8 i32 i64 f16 bf16 f32 f64;
    f32 => bool f16 bf16;
    f64 => bool f16 bf16;
}

#[cfg(test)]
mod tests {
    use super::To;

    #[test]
    fn floats_become_bytes_as_by_the_language() {
        let ends = [
            -0.0,
            -0.5,
            0.5,
            0.999,
            254.5,
            255.0,
            255.9,
            256.0,
            -1.0,
            1e30,
            -1e30,
            f32::MIN_POSITIVE,
        ];
        let strange = [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
        let steps = (-3000..3000).map(|i| i as f32 / 8.0);
        for x in ends.into_iter().chain(strange).chain(steps) {
            let found: u8 = x.to();
            assert_eq!(found, x as u8, "{x}");
        }
    }
}
