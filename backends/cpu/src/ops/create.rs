//! Tensors without operands.

use polygrad_core::{
    DType, Distribution, Element, RandomKey, Result, Scalar, Shape, bf16, check_distribution, dispatch_dtype, draw, f16,
};

use crate::Pointer;
use crate::{CpuDevice, CpuTensor};

/// See [`polygrad_core::Backend::full`].
pub(crate) fn full(shape: Shape, value: Scalar, dtype: DType, device: CpuDevice) -> Result<CpuTensor> {
    dispatch_dtype!(dtype, T => {
        let value = T::from_scalar(value);
        generate::<T>(shape, device, 0.05 * size_of::<T>() as f32, |_| value)
    })
}

/// See [`polygrad_core::Backend::iota`].
pub(crate) fn iota(len: usize, start: Scalar, step: Scalar, dtype: DType, device: CpuDevice) -> Result<CpuTensor> {
    let shape = Shape::new(&[len])?;
    let real = matches!(start, Scalar::Float(_)) || matches!(step, Scalar::Float(_));
    dispatch_dtype!(dtype, T => if real {
        let (start, step) = (start.to_f64(), step.to_f64());
        generate::<T>(shape, device, 1.0, |i| <T as Element>::from_f64(start + i as f64 * step))
    } else {
        let (start, step) = (start.to_i64(), step.to_i64());
        generate::<T>(shape, device, 1.0, |i| T::from_i64(start.wrapping_add((i as i64).wrapping_mul(step))))
    })
}

/// See [`polygrad_core::Backend::random`].
pub(crate) fn random(
    shape: Shape,
    distribution: Distribution,
    dtype: DType,
    key: RandomKey,
    device: CpuDevice,
) -> Result<CpuTensor> {
    check_distribution(distribution)?;
    // Rounding may raise a draw to the upper bound, which is excluded.
    let limit = match distribution {
        Distribution::Uniform { low, high } if high > low => high,
        _ => f64::INFINITY,
    };
    dispatch_dtype!(dtype, T => {
        let largest = largest_below::<T>(limit);
        generate::<T>(shape, device, 40.0, |i| {
            let value = <T as Element>::from_f64(draw(distribution, key.seed, key.offset.wrapping_add(i as u64)));
            if value.to_f64() >= limit && dtype.is_float() { largest } else { value }
        })
    })
}

/// The largest number of the dtype below a limit.
fn largest_below<T: Element>(limit: f64) -> T {
    let rounded = T::from_f64(limit);
    if rounded.to_f64() < limit || !limit.is_finite() {
        return rounded;
    }
    let down = |bits: u16| match bits {
        0 | 0x8000 => 0x8001,
        positive if positive < 0x8000 => positive - 1,
        negative => negative + 1,
    };
    let next = match T::DTYPE {
        DType::F16 => f16::from_bits(down(<f16 as Element>::from_f64(limit).to_bits())).to_f64(),
        DType::BF16 => bf16::from_bits(down(<bf16 as Element>::from_f64(limit).to_bits())).to_f64(),
        DType::F32 => f64::from((limit as f32).next_down()),
        _ => limit.next_down(),
    };
    T::from_f64(next)
}

/// A tensor whose `i`-th element, in row-major order, is `value(i)`, which takes about `ns` nanoseconds.
fn generate<T: Element>(
    shape: Shape,
    device: CpuDevice,
    ns: f32,
    value: impl Fn(usize) -> T + Sync,
) -> Result<CpuTensor> {
    let mut out = CpuTensor::empty(shape, T::DTYPE, device)?;
    let to = Pointer(out.ptr_mut().cast::<T>());
    device.split(shape.numel(), ns, 64, |start, end| {
        for i in start..end {
            // SAFETY: the output has `numel` elements of `T`, and ranges do not overlap.
            unsafe { to.at(i).write(value(i)) };
        }
    });
    Ok(out)
}
