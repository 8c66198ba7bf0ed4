//! Softmax, its logarithm, and their gradients, row by row.

use polygrad_core::{Result, decompose};

use super::rows::{dot, exp_shifted, largest};
use super::{last_axis_rows, vectors};
use crate::loops::Pointer;
use crate::simd::Level;
use crate::{Cpu, CpuTensor};

/// Nanoseconds an element, about.
const COST: f32 = 0.8;

/// Calls `row(level, [inputs], to, columns)` for each row; `None` if the tensors are none that this module handles.
fn by_rows<const N: usize>(
    inputs: [&CpuTensor; N],
    axis: usize,
    row: impl Fn(Level, [*const f32; N], *mut f32, usize) + Sync,
) -> Result<Option<CpuTensor>> {
    let x = inputs[0];
    let (Some(level), Some((rows, columns))) = (vectors(&inputs), last_axis_rows(x, axis)) else {
        return Ok(None);
    };
    let device = x.device();
    let mut out = CpuTensor::empty(*x.shape(), x.dtype(), device)?;
    let to = Pointer(out.ptr_mut().cast::<f32>());
    let from = inputs.map(|x| Pointer(x.ptr().cast::<f32>().cast_mut()));
    device.each(rows, columns as f32 * COST, |i| {
        let at = i * columns;
        row(level, from.map(|x| x.at(at).cast_const()), to.at(at), columns);
    });
    Ok(Some(out))
}

/// See [`polygrad_core::Backend::softmax`].
pub(crate) fn softmax(x: &CpuTensor, axis: usize) -> Result<CpuTensor> {
    let fused = by_rows([x], axis, |level, [x], to, n| {
        // SAFETY: a row of `n` elements each; the output is new.
        unsafe {
            let total = exp_shifted(level, x, largest(level, x, n), to, n);
            let scale = 1.0 / total;
            (0..n).for_each(|i| *to.add(i) *= scale);
        }
    })?;
    fused.map_or_else(|| decompose::softmax::<Cpu>(x, axis), Ok)
}

/// See [`polygrad_core::Backend::softmax_backward`].
pub(crate) fn softmax_backward(grad: &CpuTensor, output: &CpuTensor, axis: usize) -> Result<CpuTensor> {
    let fused = by_rows([grad, output], axis, |level, [g, y], to, n| {
        // SAFETY: a row of `n` elements each; the output is new.
        unsafe {
            let along = dot(level, g, y, n);
            (0..n).for_each(|i| to.add(i).write(*y.add(i) * (*g.add(i) - along)));
        }
    })?;
    fused.map_or_else(|| decompose::softmax_backward::<Cpu>(grad, output, axis), Ok)
}

/// See [`polygrad_core::Backend::log_softmax`].
pub(crate) fn log_softmax(x: &CpuTensor, axis: usize) -> Result<CpuTensor> {
    let fused = by_rows([x], axis, |level, [x], to, n| {
        // SAFETY: a row of `n` elements each; the output is new.
        unsafe {
            let top = largest(level, x, n);
            let log_total = exp_shifted(level, x, top, std::ptr::null_mut(), n).ln();
            // In this order, so that a large maximum takes no digits from the rest.
            (0..n).for_each(|i| to.add(i).write(*x.add(i) - top - log_total));
        }
    })?;
    fused.map_or_else(|| decompose::log_softmax::<Cpu>(x, axis), Ok)
}

/// See [`polygrad_core::Backend::log_softmax_backward`].
pub(crate) fn log_softmax_backward(grad: &CpuTensor, output: &CpuTensor, axis: usize) -> Result<CpuTensor> {
    let fused = by_rows([grad, output], axis, |level, [g, y], to, n| {
        // SAFETY: a row of `n` elements each; the output is new.
        unsafe {
            let total = dot(level, g, std::ptr::null(), n);
            exp_shifted(level, y, 0.0, to, n);
            (0..n).for_each(|i| *to.add(i) = *g.add(i) - *to.add(i) * total);
        }
    })?;
    fused.map_or_else(|| decompose::log_softmax_backward::<Cpu>(grad, output, axis), Ok)
}
