//! What follows a product or a convolution, and weights that are made ready for both.

use crate::{Activation, Backend, Prepack, Result, Shape};

/// What [`Backend::conv`] does to a convolution `y [N, C, …]` for backends that have no kernels for it, and,
/// without bias and residual, [`Backend::linear`] to a product: adds `bias [C]` and the residual, and applies the
/// activation function.
///
/// # Errors
/// Those of the ops that it is made of.
pub fn epilogue<B: Backend>(
    mut y: B::Tensor,
    bias: Option<&B::Tensor>,
    residual: Option<&B::Tensor>,
    activation: Option<Activation>,
) -> Result<B::Tensor> {
    if let Some(bias) = bias {
        let mut dims = vec![1; B::shape(&y).rank()];
        dims[1] = B::shape(bias).numel();
        y = B::add(&y, &B::reshape(bias, Shape::new(&dims)?)?)?;
    }
    if let Some(residual) = residual {
        y = B::add(&y, residual)?;
    }
    match activation {
        Some(op) => B::activation(op, &y),
        None => Ok(y),
    }
}

/// See [`Backend::prepack`].
#[allow(clippy::unnecessary_wraps, reason = "the form of all decompositions")]
pub(super) fn prepack<B: Backend>(weight: &B::Tensor, _: Prepack) -> Result<B::Tensor> {
    Ok(weight.clone())
}
