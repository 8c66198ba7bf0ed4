//! Fused ops in single passes over f32 rows. What these do not cover (other dtypes, other axes, the plain kernels) is decomposed.

mod activation;
mod cross_entropy;
mod optim;
mod rows;
mod softmax;

pub(crate) use activation::{activation, activation_backward};
pub(crate) use cross_entropy::{cross_entropy, cross_entropy_backward};
pub(crate) use optim::{adam_step, sgd_step};
pub(crate) use softmax::{log_softmax, log_softmax_backward, softmax, softmax_backward};

use polygrad_core::DType;

use crate::CpuTensor;
use crate::simd::Level;

/// The level of vector kernels, if all tensors are f32 and lie one element after another.
fn vectors(tensors: &[&CpuTensor]) -> Option<Level> {
    let level = tensors.first()?.device().vectors()?;
    let fit = tensors.iter().all(|x| x.dtype() == DType::F32 && x.is_contiguous());
    fit.then_some(level)
}

/// Rows and their length, if `axis` is the last one and there is something to do.
fn last_axis_rows(x: &CpuTensor, axis: usize) -> Option<(usize, usize)> {
    let shape = x.shape();
    let columns = *shape.last()?;
    (axis + 1 == shape.rank() && x.numel() > 0).then(|| (x.numel() / columns, columns))
}
