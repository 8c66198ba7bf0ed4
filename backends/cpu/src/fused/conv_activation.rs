//! A convolution and what follows it.

use polygrad_core::{Activation, ConvParams, Error, Result, decompose};

use super::pointwise::Pointwise;
use super::vectors;
use crate::conv::{self, Epilogue};
use crate::{Cpu, CpuTensor};

/// See [`polygrad_core::Backend::conv_activation`].
pub(crate) fn conv_activation(
    x: &CpuTensor,
    weight: &CpuTensor,
    bias: &CpuTensor,
    residual: Option<&CpuTensor>,
    activation: Option<Activation>,
    params: &ConvParams,
) -> Result<CpuTensor> {
    let known = activation.is_none_or(Pointwise::knows);
    let Some(level) = vectors([x, weight, bias].into_iter().chain(residual)).filter(|_| known) else {
        return decompose::conv_activation::<Cpu>(x, weight, bias, residual, activation, params);
    };
    let shape = conv::output_shape("conv_activation", x.shape(), weight.shape(), params)?;
    if bias.shape()[..] != [shape[1]] || residual.is_some_and(|residual| *residual.shape() != shape) {
        return Err(
            Error::shape(format!("takes a bias [{}] and a residual {shape}", shape[1])).with_op("conv_activation"),
        );
    }
    let bias = bias.contiguous()?;
    let residual = residual.map(CpuTensor::contiguous).transpose()?;
    let epilogue = Epilogue {
        level,
        bias: bias.slice()?,
        residual: residual.as_ref().map(CpuTensor::slice).transpose()?,
        activation,
    };
    conv::conv_with_epilogue(x, weight, params, Some(&epilogue))
}
