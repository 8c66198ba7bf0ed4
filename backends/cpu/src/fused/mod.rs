//! Fused ops in one pass over memory, for f32 with vector kernels. Other dtypes, and the `scalar` kernels, use core's
//! decompositions.

pub(crate) mod attention;
pub(crate) mod batch_norm;
pub(crate) mod cross_entropy;
pub(crate) mod embedding;
pub(crate) mod gru;
pub(crate) mod linear_grad;
pub(crate) mod lstm;
pub(crate) mod lstm_steps;
pub(crate) mod norm;
pub(crate) mod optim;
pub(crate) mod rotary;
mod rows;
pub(crate) mod softmax;
pub(crate) mod square_sum;

use polygrad_core::{Axes, DType, Result, Shape, SliceRange};

use crate::CpuTensor;
use crate::simd::Level;

/// The instruction set for the fused kernels, if they apply: all tensors are f32, and vector instructions are allowed.
#[inline]
pub(crate) fn vectors<'a>(tensors: impl IntoIterator<Item = &'a CpuTensor>) -> Option<Level> {
    let mut level = None;
    for x in tensors {
        if x.dtype() != DType::F32 {
            return None;
        }
        level = x.device().vectors();
    }
    level
}

/// A tensor as rows along one axis: contiguous, with that axis last.
fn rows_along(x: &CpuTensor, axis: usize) -> Result<CpuTensor> {
    let rank = x.shape().rank();
    if axis + 1 == rank {
        return x.contiguous();
    }
    x.with_layout(x.layout().permute(last(rank, axis)?)).contiguous()
}

/// Undoes [`rows_along`] by a view.
fn back_from_rows(x: &CpuTensor, axis: usize) -> Result<CpuTensor> {
    let rank = x.shape().rank();
    if axis + 1 == rank {
        return Ok(x.clone());
    }
    Ok(x.with_layout(x.layout().permute(last(rank, axis)?.inverse())))
}

/// The state `[N, H]` after one of the steps `[T, N, H]`, as a view.
fn state_after(step: usize, states: &CpuTensor) -> Result<CpuTensor> {
    let (rows, size) = (states.shape()[1], states.shape()[2]);
    let at = states.layout().slice(&[
        SliceRange::new(step, 1, 1),
        SliceRange::full(rows),
        SliceRange::full(size),
    ]);
    states.with_layout(at).reshaped(Shape::from([rows, size]))
}

/// The axes with one moved to the end.
fn last(rank: usize, axis: usize) -> Result<Axes> {
    Axes::new((0..rank).filter(|&a| a != axis).chain([axis]))
}
