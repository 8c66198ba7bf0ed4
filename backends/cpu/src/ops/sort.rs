//! Sorting.

use std::cmp::Ordering;

use polygrad_core::{DType, Result, dispatch_dtype};

use super::axis_in;
use crate::CpuTensor;
use crate::loops::Lines;

/// See [`polygrad_core::Backend::sort`].
pub(crate) fn sort(x: &CpuTensor, axis: usize, descending: bool) -> Result<(CpuTensor, CpuTensor)> {
    axis_in("sort", x, axis)?;
    let shape = *x.shape();
    let mut values = CpuTensor::empty(shape, x.dtype(), x.device())?;
    let mut indices = CpuTensor::empty(shape, DType::I64, x.device())?;
    let (n, size) = (shape[axis], x.dtype().size());
    let (to, to_indices) = (values.ptr_mut(), indices.ptr_mut());
    let lines = Lines::new(
        &shape,
        axis,
        [
            (x.ptr(), size, &x.layout()),
            (to, size, &values.layout()),
            (to_indices, 8, &indices.layout()),
        ],
    );
    let ns = n as f32 * 4.0 * (n.max(2) as f32).log2();
    dispatch_dtype!(x.dtype(), T => x.device().each(lines.count(), ns, |line| {
        let [from, to, to_index] = lines.starts(line).map(<*const u8>::cast_mut);
        // SAFETY: all three have `n` elements along the axis, and lines do not overlap.
        let mut pairs: Vec<(T, i64)> = (0..n as i64)
            .map(|i| (unsafe { from.offset(i as isize * lines.step(0)).cast::<T>().read() }, i))
            .collect();
        // Stable, so that equal elements keep their order in both directions.
        pairs.sort_by(|a, b| if descending { order(&b.0, &a.0) } else { order(&a.0, &b.0) });
        for (i, (value, index)) in (0..n.cast_signed()).zip(pairs) {
            // SAFETY: as above.
            unsafe {
                to.offset(i * lines.step(1)).cast::<T>().write(value);
                to_index.offset(i * lines.step(2)).cast::<i64>().write(index);
            }
        }
    }));
    Ok((values, indices))
}

/// NaN is larger than all and equal to itself.
#[allow(clippy::eq_op)]
fn order<T: PartialOrd>(a: &T, b: &T) -> Ordering {
    a.partial_cmp(b).unwrap_or_else(|| (a != a).cmp(&(b != b)))
}
