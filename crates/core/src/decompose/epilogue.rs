//! The epilogue of a product or convolution, and prepacked weights.

use crate::{Activation, Backend, Prepack, Result, Shape};

/// Adds `bias [C]` and the residual to a convolution `y [N, C, …]`, and applies the activation function. For backends
/// whose [`Backend::conv`] has no kernels for this; [`Backend::linear`] also uses it, without bias and residual.
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
