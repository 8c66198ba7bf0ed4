//! Convolution and pooling, over one to three spatial axes.

use polygrad_core::{Activation, Backend, ConvParams, DType, Error, Op, PoolParams, Result, Shape, Tensors, decompose};

use super::context;
use crate::PadMode;
use crate::Tensor;
use crate::autocast::Lower;
use crate::flops;
use crate::graph::{needs_graph, record, record_first};
use crate::tracked::Tracked;

impl<B: Backend> Tensor<B> {
    /// Cross-correlation of `[N, C, spatial…]` with `weight [O, C / groups, kernel…]`, plus `bias [O]`; integers wrap,
    /// and never become floats.
    ///
    /// # Errors
    /// When shapes, dtypes or devices do not fit.
    pub fn conv(&self, weight: &Self, bias: Option<&Self>, params: &ConvParams) -> Result<Self> {
        conv(self, weight, bias, None, None, params)
    }

    /// Checks a convolution's operands: input, weight, optional bias and residual. Returns the result's shape.
    fn check_conv(&self, operands: &[&Self], params: &ConvParams) -> Result<Shape> {
        let shape = params.output_shape(&self.shape(), &operands[1].shape())?;
        for operand in &operands[1..] {
            self.check_factors(operand)?;
        }
        match operands[2..] {
            [bias, ..] if bias.shape().dims() != [shape[1]] => {
                Err(Error::shape(format!("takes a bias [{}]", shape[1])))
            }
            [_, residual] if residual.shape() != shape => Err(Error::shape(format!("takes a residual {shape}"))),
            _ => Ok(shape),
        }
    }

    /// Transposed convolution of `[N, O, spatial…]` with `weight [O, C / groups, kernel…]`: the gradient of
    /// [`Tensor::conv`] wrt an input of shape `[N, C, spatial…]`. `output_padding` makes the result larger at
    /// one end of each axis.
    ///
    /// # Errors
    /// When shapes, dtypes or devices do not fit.
    pub fn conv_transpose(&self, weight: &Self, params: &ConvParams, output_padding: [usize; 3]) -> Result<Self> {
        if let Some(lower) = Lower::wanted() {
            let (x, weight) = (lower.cast(self)?, lower.cast(weight)?);
            return lower.run(|| x.conv_transpose(&weight, params, output_padding));
        }
        let fail = |e| context(e, "conv_transpose", &[self, weight]);
        self.check_factors(weight).map_err(fail)?;
        let (x, w) = (self.shape(), weight.shape());
        if !(3..=5).contains(&x.rank()) || w.rank() != x.rank() || x[1] != w[0] || w[1..].contains(&0) {
            return Err(fail(Error::shape(
                "takes an input [N, C, spatial…] and a weight [C, O / groups, kernel…] of one rank, 3 to 5",
            )));
        }
        let mut out = x.with_dim(1, w[1].saturating_mul(params.groups));
        for axis in 0..x.rank() - 2 {
            let length = || {
                let steps = x[axis + 2].checked_sub(1)?.checked_mul(params.stride[axis])?;
                let reach = (w[axis + 2] - 1).checked_mul(params.dilation[axis])?;
                let whole = steps
                    .checked_add(reach)?
                    .checked_add(output_padding[axis])?
                    .checked_add(1)?;
                whole.checked_sub(params.padding[axis].checked_mul(2)?)
            };
            let length = length().filter(|&length| length > 0);
            let fits = output_padding[axis] < params.stride[axis].max(params.dilation[axis]);
            match length {
                Some(length) if fits => out.dims_mut()[axis + 2] = length,
                _ => {
                    return Err(fail(Error::shape(format!(
                        "spatial axis {axis} would have no extent, or its output_padding is not below stride or dilation"
                    ))));
                }
            }
        }
        Shape::new(&out).map_err(fail)?;
        let grad_shape = params.output_shape(&out, &w).map_err(fail)?;
        if grad_shape != x {
            // If output_padding is at least the stride (and below the dilation), a convolution of the output would be
            // larger than the input. So compute the whole without padding, and then cut or add zeros.
            let whole = self.conv_transpose(
                weight,
                &ConvParams {
                    padding: [0; 3],
                    ..*params
                },
                [0; 3],
            )?;
            let border = (0..x.rank() - 2).map(|axis| {
                let padding = params.padding[axis] as isize;
                (-padding, output_padding[axis] as isize - padding)
            });
            let border: Vec<_> = [(0, 0); 2].into_iter().chain(border).collect();
            return whole.pad_with(&border, PadMode::Constant(0.0.into()));
        }
        self.conv_input_grad(weight, out, params)
            .map_err(|e| e.with_op("conv_transpose"))
    }

    /// The gradient of [`Tensor::conv`] wrt its input. It is linear in both operands, too.
    pub(crate) fn conv_input_grad(&self, weight: &Self, input_shape: Shape, params: &ConvParams) -> Result<Self> {
        if !self.dtype().is_float() {
            return decompose::conv_input_grad::<Tracked<B>>(self, weight, input_shape, params);
        }
        let value = B::conv_input_grad(&self.value, &weight.value, input_shape, params)
            .map_err(|e| context(e, "conv_input_grad", &[self, weight]))?;
        flops::add_products(self.numel(), taps(weight.shape()));
        let op = || Op::ConvInputGrad {
            input_shape,
            params: Box::new(*params),
        };
        Ok(record(value, &[self, weight], op))
    }

    /// The gradient of [`Tensor::conv`] wrt its weight, from the output's gradient (this tensor) and the input.
    pub(crate) fn conv_weight_grad(&self, x: &Self, weight_shape: Shape, params: &ConvParams) -> Result<Self> {
        let value = B::conv_weight_grad(&self.value, &x.value, weight_shape, params)
            .map_err(|e| context(e, "conv_weight_grad", &[self, x]))?;
        flops::add_products(self.numel(), taps(weight_shape));
        let op = || Op::ConvWeightGrad {
            weight_shape,
            params: Box::new(*params),
        };
        Ok(record(value, &[self, x], op))
    }

    /// Largest value of each window of `[N, C, spatial…]`, and its position in the flattened spatial axes (i64).
    ///
    /// # Errors
    /// When a window does not fit.
    pub fn max_pool(&self, params: &PoolParams) -> Result<(Self, Self)> {
        match max_pool(self, params, true)? {
            (values, Some(places)) => Ok((values, places)),
            _ => unreachable!("positions were asked for"),
        }
    }

    /// Largest value of each square window of `[N, C, H, W]`, with windows side by side: PyTorch's
    /// `max_pool2d(x, kernel_size)`. A rest at the end of an axis is ignored. [`Tensor::max_pool`] has all options.
    ///
    /// # Errors
    /// When the rank is not 4, or a window does not fit.
    pub fn max_pool2d(&self, kernel_size: usize) -> Result<Self> {
        self.check_images("max_pool2d")?;
        Ok(max_pool(self, &PoolParams::new([kernel_size; 3]), false)?.0)
    }

    /// Mean of each square window of `[N, C, H, W]`, otherwise as [`Tensor::max_pool2d`].
    ///
    /// # Errors
    /// When the rank is not 4, a window does not fit, or the dtype is not a float.
    pub fn avg_pool2d(&self, kernel_size: usize) -> Result<Self> {
        self.check_images("avg_pool2d")?;
        self.avg_pool(&PoolParams::new([kernel_size; 3]))
    }

    fn check_images(&self, op: &'static str) -> Result<()> {
        if self.rank() == 4 {
            return Ok(());
        }
        Err(context(Error::shape("the input is to be [N, C, H, W]"), op, &[self]))
    }

    /// Mean of each window of `[N, C, spatial…]`.
    ///
    /// # Errors
    /// When a window does not fit, it is dilated, or the dtype is not a float.
    pub fn avg_pool(&self, params: &PoolParams) -> Result<Self> {
        if self.rank() == 5
            && let Some(x) = self.raised()?
        {
            return x.avg_pool(params);
        }
        let fail = |e| context(e, "avg_pool", &[self]);
        if !self.dtype().is_float() {
            let error = Error::dtype(format!("the mean of {0} is no {0}", self.dtype()));
            return Err(fail(error.with_hint("convert it to a float with to_dtype")));
        }
        let shape = self.shape();
        params.output_shape(&shape).map_err(fail)?;
        if params.dilation[..shape.rank() - 2]
            .iter()
            .any(|&dilation| dilation != 1)
        {
            return Err(fail(Error::invalid("average pooling takes no dilation")));
        }
        let value = B::avg_pool(&self.value, params).map_err(fail)?;
        Ok(record(value, &[self], || Op::AvgPool(Box::new(*params))))
    }

    /// Fails unless the operands of a convolution are on one device and have one dtype, which is not bool.
    fn check_factors(&self, weight: &Self) -> Result<()> {
        self.check_device(weight)?;
        if self.dtype() == DType::Bool || weight.dtype() != self.dtype() {
            return Err(Error::dtype("input and weight must have one dtype, and not bool")
                .with_hint("convert the input with to_dtype"));
        }
        Ok(())
    }
}

/// [`Tensor::conv`], plus a residual of the result's shape, which needs a bias, and then an activation function.
///
/// # Errors
/// As [`Tensor::conv`]; when the residual does not fit.
pub fn conv<B: Backend>(
    x: &Tensor<B>,
    weight: &Tensor<B>,
    bias: Option<&Tensor<B>>,
    residual: Option<&Tensor<B>>,
    activation: Option<Activation>,
    params: &ConvParams,
) -> Result<Tensor<B>> {
    if let Some(lower) = Lower::wanted() {
        let (x, weight) = (lower.cast(x)?, lower.cast(weight)?);
        let (bias, residual) = (lower.cast_option(bias)?, lower.cast_option(residual)?);
        return lower.run(|| conv(&x, &weight, bias.as_ref(), residual.as_ref(), activation, params));
    }
    let operands = Tensors::new([x, weight], [bias, residual]);
    let operands = operands.get();
    let fail = |e| context(e, "conv", operands);
    let shape = x.check_conv(operands, params).map_err(fail)?;
    if residual.is_some() && bias.is_none() {
        return Err(fail(Error::invalid("a residual needs a bias").with_hint("give zeros")));
    }
    let float = x.dtype().is_float();
    // The fused op has no gradient.
    if (residual.is_some() || activation.is_some()) && (!float || needs_graph(operands)) {
        let mut y = x.conv(weight, bias, params)?;
        if let Some(residual) = residual {
            y = y.add(residual)?;
        }
        return match activation {
            Some(op) => y.activation(op),
            None => Ok(y),
        };
    }
    let (x, w) = (&x.value, &weight.value);
    let [bias, residual] = [bias, residual].map(|x| x.map(|x| &x.value));
    let value = if float {
        B::conv(x, w, bias, residual, activation, params)
    } else {
        decompose::integer_conv::<B>(x, w, params).and_then(|y| decompose::epilogue::<B>(y, bias, None, None))
    };
    let value = value.map_err(fail)?;
    flops::add_products(shape.numel(), taps(weight.shape()));
    Ok(record(value, operands, || Op::Conv {
        activation,
        params: *params,
    }))
}

/// [`Tensor::max_pool`], but the backend only computes positions if they or a gradient are needed.
///
/// # Errors
/// As [`Tensor::max_pool`].
pub fn max_pool<B: Backend>(
    x: &Tensor<B>,
    params: &PoolParams,
    positions: bool,
) -> Result<(Tensor<B>, Option<Tensor<B>>)> {
    if x.rank() == 5
        && let Some(x) = x.raised()?
    {
        return max_pool(&x, params, positions);
    }
    let fail = |e| context(e, "max_pool", &[x]);
    params.output_shape(&x.shape()).map_err(fail)?;
    let positions = positions || needs_graph(&[x]);
    let (values, places) = B::max_pool(&x.value, params, positions).map_err(fail)?;
    if positions && places.is_none() {
        return Err(fail(Error::invalid("the backend gave no positions")));
    }
    let op = || Op::MaxPool {
        params: Box::new(*params),
        positions,
    };
    let values = record_first(values, places.as_ref().as_slice(), &[x], op);
    Ok((values, places.map(Tensor::from_inner)))
}

/// The number of products for one output of a convolution.
fn taps(weight: Shape) -> usize {
    weight[1..].iter().product()
}
