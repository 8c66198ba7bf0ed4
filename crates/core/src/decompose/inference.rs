//! What inference alone does: several ops as one, without a gradient.

use crate::{Activation, Backend, ConvParams, PoolParams, Prepack, Result, Shape};

/// See [`Backend::linear_activation`].
pub(super) fn linear_activation<B: Backend>(
    x: &B::Tensor,
    weight: &B::Tensor,
    bias: Option<&B::Tensor>,
    op: Activation,
) -> Result<B::Tensor> {
    B::activation(op, &B::linear(x, weight, bias)?)
}

/// A bias `[C]` as it is added to `[N, C, spatial…]` of so many axes: `[1, C, 1…]`.
///
/// # Errors
/// Those of the device.
pub fn channel_bias<B: Backend>(bias: &B::Tensor, rank: usize) -> Result<B::Tensor> {
    let mut dims = vec![1; rank];
    dims[1] = B::shape(bias).numel();
    B::reshape(bias, Shape::new(&dims)?)
}

/// See [`Backend::conv_activation`].
pub(super) fn conv_activation<B: Backend>(
    x: &B::Tensor,
    weight: &B::Tensor,
    bias: &B::Tensor,
    residual: Option<&B::Tensor>,
    op: Option<Activation>,
    params: &ConvParams,
) -> Result<B::Tensor> {
    let mut y = B::conv(x, weight, params)?;
    y = B::add(&y, &channel_bias::<B>(bias, B::shape(&y).rank())?)?;
    if let Some(residual) = residual {
        y = B::add(&y, residual)?;
    }
    match op {
        Some(op) => B::activation(op, &y),
        None => Ok(y),
    }
}

/// See [`Backend::max_pool_values`].
pub(super) fn max_pool_values<B: Backend>(x: &B::Tensor, params: &PoolParams) -> Result<B::Tensor> {
    B::max_pool(x, params).map(|(values, _)| values)
}

/// See [`Backend::prepack`].
#[allow(clippy::unnecessary_wraps, reason = "the form of all decompositions")]
pub(super) fn prepack<B: Backend>(weight: &B::Tensor, _: Prepack) -> Result<B::Tensor> {
    Ok(weight.clone())
}
