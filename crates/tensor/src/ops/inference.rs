//! Several ops as one, for code that runs models without gradients, such as an importer; models that are compiled get them by themselves.
//! Where a gradient is wanted after all, the ops follow one another as they would without.

use polygrad_core::{Activation, Backend, ConvParams, Error, PoolParams, Prepack, Result};

use super::context;
use super::window::taps;
use crate::graph::needs_graph;
use crate::{Tensor, flops};

/// [`Tensor::linear`] and then an activation function.
///
/// # Errors
/// As [`Tensor::linear`].
pub fn linear_activation<B: Backend>(
    x: &Tensor<B>,
    weight: &Tensor<B>,
    bias: Option<&Tensor<B>>,
    op: Activation,
) -> Result<Tensor<B>> {
    let operands = [x, weight, bias.unwrap_or(x)];
    let operands = &operands[..2 + usize::from(bias.is_some())];
    if needs_graph(operands) || !x.dtype().is_float() {
        return x.linear(weight, bias)?.activation(op);
    }
    let fail = |e| context(e, "linear_activation", operands);
    x.check_linear(operands).map_err(fail)?;
    let value = B::linear_activation(&x.value, &weight.value, bias.map(|bias| &bias.value), op).map_err(fail)?;
    flops::add_products(B::shape(&value).numel(), weight.shape()[1]);
    Ok(Tensor::from_inner(value))
}

/// [`Tensor::conv`] with a bias, plus a residual of the result's shape, and then an activation function.
///
/// # Errors
/// As [`Tensor::conv`]; when the residual does not fit.
pub fn conv_activation<B: Backend>(
    x: &Tensor<B>,
    weight: &Tensor<B>,
    bias: &Tensor<B>,
    residual: Option<&Tensor<B>>,
    op: Option<Activation>,
    params: &ConvParams,
) -> Result<Tensor<B>> {
    let operands = [x, weight, bias, residual.unwrap_or(x)];
    let operands = &operands[..3 + usize::from(residual.is_some())];
    let fail = |e| context(e, "conv_activation", operands);
    let shape = x.check_conv(&operands[..3], params).map_err(fail)?;
    if let Some(residual) = residual {
        x.check_factors(residual).map_err(fail)?;
        if residual.shape() != shape {
            return Err(fail(Error::shape(format!("takes a residual {shape}"))));
        }
    }
    if needs_graph(operands) || !x.dtype().is_float() {
        let mut y = x.conv(weight, Some(bias), params)?;
        if let Some(residual) = residual {
            y = y.add(residual)?;
        }
        return op.map_or(Ok(y.clone()), |op| y.activation(op));
    }
    let [x, weight, bias] = [x, weight, bias].map(|x| &x.value);
    let value =
        B::conv_activation(x, weight, bias, residual.map(|residual| &residual.value), op, params).map_err(fail)?;
    flops::add_products(shape.numel(), taps(B::shape(weight)));
    Ok(Tensor::from_inner(value))
}

/// The values of [`Tensor::max_pool`]; the backend need not find the positions.
///
/// # Errors
/// When a window does not fit.
pub fn max_pool_values<B: Backend>(x: &Tensor<B>, params: &PoolParams) -> Result<Tensor<B>> {
    if needs_graph(&[x]) {
        return x.max_pool(params).map(|(values, _)| values);
    }
    let fail = |e| context(e, "max_pool_values", &[x]);
    params.output_shape(&x.shape()).map_err(fail)?;
    B::max_pool_values(&x.value, params)
        .map(Tensor::from_inner)
        .map_err(fail)
}

/// The same weight, made ready for ops of a kind: what they would otherwise do to it at each call is done once. For weights that
/// many calls use; it may take twice the memory. A weight that a gradient flows to is given back as it is, since it will change.
///
/// # Errors
/// When memory runs out.
pub fn prepacked<B: Backend>(weight: &Tensor<B>, kind: Prepack) -> Result<Tensor<B>> {
    if weight.is_tracked() {
        return Ok(weight.clone());
    }
    B::prepack(&weight.value, kind)
        .map(Tensor::from_inner)
        .map_err(|e| context(e, "prepack", &[weight]))
}
