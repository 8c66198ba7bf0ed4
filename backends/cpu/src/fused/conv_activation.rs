//! A convolution and what follows it.

use polygrad_core::{Activation, ConvParams, Error, Result, decompose};

use super::pointwise::Pointwise;
use super::vectors;
use crate::loops::Pointer;
use crate::{Cpu, CpuTensor, conv};

/// Nanoseconds an element, about.
const NS: f32 = 0.3;

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
    let mut y = conv::conv(x, weight, params)?;
    let shape = *y.shape();
    let plane: usize = shape[2..].iter().product();
    let channels = shape[1];
    if bias.shape()[..] != [channels] || residual.is_some_and(|residual| *residual.shape() != shape) {
        return Err(
            Error::shape(format!("takes a bias [{channels}] and a residual {shape}")).with_op("conv_activation"),
        );
    }
    if y.numel() == 0 {
        return Ok(y);
    }
    y.make_writable()?;
    let bias = bias.contiguous()?;
    let bias = bias.slice::<f32>()?;
    let residual = residual.map(CpuTensor::contiguous).transpose()?;
    let from = residual
        .as_ref()
        .map(|residual| Pointer(residual.ptr().cast_mut().cast::<f32>()));
    let to = Pointer(y.ptr_mut().cast::<f32>());
    y.device().each(shape[0] * channels, NS * plane as f32, |i| {
        let pointwise = Pointwise {
            bias: bias[i % channels],
            residual: from.map_or(std::ptr::null(), |from| from.at(i * plane).cast_const()),
            activation,
        };
        // SAFETY: plane `i` is inside the result, which nobody else has, and inside the residual, which has its shape.
        unsafe { pointwise.run(level, to.at(i * plane), plane) };
    });
    Ok(y)
}
