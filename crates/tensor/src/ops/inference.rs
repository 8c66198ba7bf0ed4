//! Several ops in one where no gradient is wanted, one after another where one is; a convolution's bias is part of it either way.

use polygrad_core::{Activation, Backend, ConvParams, Error, Op, PoolParams, Prepack, Result, decompose};

use super::context;
use super::window::taps;
use crate::graph::{needs_graph, record};
use crate::tracked::Tracked;
use crate::{Tensor, flops};

impl<B: Backend> Tensor<B> {
    /// [`Tensor::linear`] and then an activation function, as one op of the backend where no gradient is wanted.
    ///
    /// # Errors
    /// As [`Tensor::linear`].
    pub fn linear_activation(&self, weight: &Self, bias: Option<&Self>, op: Activation) -> Result<Self> {
        let operands = [self, weight, bias.unwrap_or(self)];
        let operands = &operands[..2 + usize::from(bias.is_some())];
        if needs_graph(operands) || !self.dtype().is_float() {
            return self.linear(weight, bias)?.activation(op);
        }
        let fail = |e| context(e, "linear_activation", operands);
        self.check_linear(operands).map_err(fail)?;
        let value = B::linear_activation(&self.value, &weight.value, bias.map(|bias| &bias.value), op).map_err(fail)?;
        flops::add_products(B::shape(&value).numel(), weight.shape()[1]);
        Ok(Self::from_inner(value))
    }

    /// [`Tensor::conv`] plus `bias [O]`, as one op of the backend, plus a residual of the result's shape, and then an activation function;
    /// these too where no gradient is wanted.
    ///
    /// # Errors
    /// When shapes, dtypes or devices do not fit.
    pub fn conv_activation(
        &self,
        weight: &Self,
        bias: &Self,
        residual: Option<&Self>,
        op: Option<Activation>,
        params: &ConvParams,
    ) -> Result<Self> {
        let operands = [self, weight, bias, residual.unwrap_or(self)];
        let operands = &operands[..3 + usize::from(residual.is_some())];
        // With a bias alone it is what everybody calls a convolution.
        let name = if operands.len() == 3 && op.is_none() {
            "conv"
        } else {
            "conv_activation"
        };
        let fail = |e| context(e, name, operands);
        let w_shape = weight.shape();
        let shape = params.output_shape(&self.shape(), &w_shape).map_err(fail)?;
        for operand in &operands[1..] {
            self.check_factors(operand).map_err(fail)?;
        }
        if bias.shape().dims() != [shape[1]] || residual.is_some_and(|residual| residual.shape() != shape) {
            return Err(fail(Error::shape(format!(
                "takes a bias [{}] and a residual {shape}",
                shape[1]
            ))));
        }
        if !self.dtype().is_float() {
            return decompose::conv_activation::<Tracked<B>>(self, weight, bias, residual, op, params).map_err(fail);
        }
        let tracked = needs_graph(operands);
        let (also, then) = if tracked { (None, None) } else { (residual, op) };
        let also = also.map(|residual| &residual.value);
        let value = B::conv_activation(&self.value, &weight.value, &bias.value, also, then, params).map_err(fail)?;
        flops::add_products(shape.numel(), taps(w_shape));
        if !tracked {
            return Ok(Self::from_inner(value));
        }
        let mut y = record(
            value,
            &operands[..3],
            || Op::Conv(*params),
            |save, _| {
                save.input(0).input(1);
            },
        );
        if let Some(residual) = residual {
            y = y.add(residual)?;
        }
        op.map_or(Ok(y.clone()), |op| y.activation(op))
    }

    /// The values of [`Tensor::max_pool`]; where no gradient is wanted, the backend need not find the positions.
    ///
    /// # Errors
    /// When a window does not fit.
    pub fn max_pool_values(&self, params: &PoolParams) -> Result<Self> {
        if needs_graph(&[self]) {
            return self.max_pool(params).map(|(values, _)| values);
        }
        let fail = |e| context(e, "max_pool_values", &[self]);
        params.output_shape(&self.shape()).map_err(fail)?;
        B::max_pool_values(&self.value, params)
            .map(Self::from_inner)
            .map_err(fail)
    }

    /// The same weight, made ready for ops of a kind: what they would otherwise do to it at each call is done once. For weights that
    /// many calls use; it may take twice the memory. A weight that a gradient flows to is given back as it is, since it will change.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn prepacked(&self, kind: Prepack) -> Result<Self> {
        if self.is_tracked() {
            return Ok(self.clone());
        }
        B::prepack(&self.value, kind)
            .map(Self::from_inner)
            .map_err(|e| context(e, "prepack", &[self]))
    }
}
