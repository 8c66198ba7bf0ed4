//! Sorting.

use half::{bf16, f16};
use polygrad_core::{DType, Result};

use super::axis_in;
use crate::CpuTensor;
use crate::loops::Lines;

/// See [`polygrad_core::Backend::sort`].
pub(crate) fn sort(x: &CpuTensor, axis: usize, descending: bool) -> Result<(CpuTensor, CpuTensor)> {
    axis_in("sort", x, axis)?;
    let shape = *x.shape();
    let values = CpuTensor::empty(shape, x.dtype(), x.device())?;
    let indices = CpuTensor::empty(shape, DType::I64, x.device())?;
    let (n, size) = (shape[axis], x.dtype().size());
    let lines = Lines::new(&shape, axis, [x, &values, &indices]);
    let ns = n as f32 * 4.0 * (n.max(2) as f32).log2();
    x.device().each(lines.count(), ns, |line| {
        let [from, to, to_index] = lines.starts(line).map(<*const u8>::cast_mut);
        let from = |i: i64| from.wrapping_offset(i as isize * lines.step(0)).cast_const();
        let mut keys: Vec<(u64, i64)> = (0..n as i64)
            .map(|i| {
                // SAFETY: the line has `n` elements of the dtype.
                let key = unsafe { key(x.dtype(), from(i)) };
                (if descending { !key } else { key }, i)
            })
            .collect();
        // The index is part of the key, so that equal elements keep their order in both directions.
        keys.sort_unstable();
        for (i, (_, index)) in (0..n.cast_signed()).zip(keys) {
            // SAFETY: all three have `n` elements along the axis, and lines do not overlap.
            unsafe {
                to.offset(i * lines.step(1)).copy_from_nonoverlapping(from(index), size);
                to_index.offset(i * lines.step(2)).cast::<i64>().write(index);
            }
        }
    });
    Ok((values, indices))
}

/// A number with the order of the elements, the same type for every dtype: sorting is a lot of code, and thus compiled
/// once.
///
/// # Safety
/// `at` must point at an element of the dtype.
unsafe fn key(dtype: DType, at: *const u8) -> u64 {
    // SAFETY: by the caller.
    unsafe {
        match dtype {
            DType::F64 => float_key(at.cast::<f64>().read()),
            DType::F32 => float_key(at.cast::<f32>().read().into()),
            DType::F16 => float_key(at.cast::<f16>().read().into()),
            DType::BF16 => float_key(at.cast::<bf16>().read().into()),
            DType::I64 => at.cast::<i64>().read().cast_unsigned() ^ SIGN,
            DType::I32 => i64::from(at.cast::<i32>().read()).cast_unsigned() ^ SIGN,
            DType::U8 | DType::Bool => at.read().into(),
        }
    }
}

const SIGN: u64 = 1 << 63;

/// NaN is larger than all other numbers and equal to itself; zeros of either sign are equal.
fn float_key(x: f64) -> u64 {
    if x.is_nan() {
        return u64::MAX;
    }
    let bits = (x + 0.0).to_bits();
    if bits & SIGN == 0 { bits | SIGN } else { !bits }
}
