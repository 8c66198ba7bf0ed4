//! Layer and batch normalisation. tch lacks their backward ops, so these are called by name.

#![allow(unsafe_code, reason = "ops that are called by name, beside their schemas")]

use polygrad_core::{Axes, Result, Shape, decompose};
use tch::Tensor;

use crate::Torch;
use crate::error::{Named, guarded};
use crate::ffi::{self, Arg};
use crate::movement::reshape;
use crate::tensor::{TorchTensor, ints};
use crate::window::is_wide;

type Three = (TorchTensor, TorchTensor, TorchTensor);

fn three(of: &TorchTensor, [a, b, c]: [Tensor; 3]) -> Result<Three> {
    let new = |t| TorchTensor::new(t, of.device());
    Ok((new(a)?, new(b)?, new(c)?))
}

pub(crate) fn layer_norm(
    x: &TorchTensor,
    weight: Option<&TorchTensor>,
    bias: Option<&TorchTensor>,
    axes: usize,
    eps: f64,
) -> Result<Three> {
    if !is_wide(x.dtype()) || x.shape().numel() == 0 {
        return decompose::layer_norm::<Torch>(x, weight, bias, axes, eps);
    }
    let inner = ints(&x.shape()[x.shape().rank() - axes..]);
    let out = x.raw().f_native_layer_norm(
        &inner[..],
        weight.map(TorchTensor::raw),
        bias.map(TorchTensor::raw),
        eps,
    );
    let (out, mean, rstd) = out.named("layer_norm")?;
    three(x, [out, mean, rstd])
}

pub(crate) fn layer_norm_backward(
    grad: &TorchTensor,
    x: &TorchTensor,
    mean: &TorchTensor,
    rstd: &TorchTensor,
    weight: Option<&TorchTensor>,
    axes: usize,
) -> Result<Three> {
    // For a single element LibTorch's gradient is the rounding error of large terms, though it should be 0.
    let inner = Shape::new(&x.shape()[x.shape().rank() - axes..])?;
    if !is_wide(x.dtype()) || x.shape().numel() == 0 || inner.numel() == 1 {
        return decompose::layer_norm_backward::<Torch>(grad, x, mean, rstd, weight, axes);
    }
    // The kernel does not compute the weight's gradient without a weight.
    let ones;
    let weight = match weight {
        Some(weight) => weight,
        None => {
            ones = TorchTensor::full(inner, 1.0.into(), x.dtype(), x.device())?;
            &ones
        }
    };
    let sizes = ints(inner.dims());
    // SAFETY: native_layer_norm_backward(Tensor grad_out, Tensor input, SymInt[] normalized_shape, Tensor mean, Tensor
    // rstd, Tensor? weight, Tensor? bias, bool[3] output_mask) -> (Tensor, Tensor, Tensor)
    let out = unsafe {
        ffi::call(
            "layer_norm_backward",
            c"aten::native_layer_norm_backward",
            &[
                Arg::Tensor(grad.raw()),
                Arg::Tensor(x.raw()),
                Arg::Ints(&sizes),
                Arg::Tensor(mean.raw()),
                Arg::Tensor(rstd.raw()),
                Arg::Maybe(Some(weight.raw())),
                Arg::Maybe(Some(weight.raw())),
                Arg::Mask([true; 3]),
            ],
        )
    };
    three(x, out?)
}

/// All axes except that of the channels.
fn all_but_channels(rank: usize) -> Result<Axes> {
    Axes::new((0..rank).filter(|&axis| axis != 1))
}

/// LibTorch's own forward op returns `1 / sqrt(variance + eps)`, from which a small variance cannot be recovered.
/// Therefore the statistics are computed first, and the kernel for given statistics is run with them.
pub(crate) fn batch_norm(
    x: &TorchTensor,
    weight: Option<&TorchTensor>,
    bias: Option<&TorchTensor>,
    eps: f64,
) -> Result<Three> {
    if !is_wide(x.dtype()) || x.shape().numel() == 0 {
        return decompose::batch_norm::<Torch>(x, weight, bias, eps);
    }
    let op = "batch_norm";
    let dims: Vec<i64> = all_but_channels(x.shape().rank())?
        .iter()
        .map(|axis| axis as i64)
        .collect();
    let (var, mean) = guarded(op, || x.raw().f_var_mean_correction(&dims[..], 0i64, false))?;
    let out = x.raw().f_native_batch_norm(
        weight.map(TorchTensor::raw),
        bias.map(TorchTensor::raw),
        Some(&mean),
        Some(&var),
        false,
        0.0,
        eps,
    );
    three(x, [out.named(op)?.0, mean, var])
}

pub(crate) fn batch_norm_backward(
    grad: &TorchTensor,
    x: &TorchTensor,
    mean: &TorchTensor,
    var: &TorchTensor,
    weight: Option<&TorchTensor>,
    eps: f64,
) -> Result<Three> {
    if !is_wide(x.dtype()) || x.shape().numel() == 0 {
        return decompose::batch_norm_backward::<Torch>(grad, x, mean, var, weight, eps);
    }
    let op = "batch_norm_backward";
    // LibTorch's kernel reads weight and statistics as if they were contiguous, whatever their strides.
    let (grad, x, mean) = (&grad.contiguous()?, &x.contiguous()?, &mean.contiguous()?);
    let var = var.contiguous()?;
    let rstd = guarded(op, || var.raw().f_add_scalar(eps)?.f_rsqrt())?;
    let ones;
    let weight = match weight {
        Some(weight) => {
            ones = weight.contiguous()?;
            &ones
        }
        None => {
            ones = TorchTensor::full(Shape::from([x.shape()[1]]), 1.0.into(), x.dtype(), x.device())?;
            &ones
        }
    };
    // SAFETY: native_batch_norm_backward(Tensor grad_out, Tensor input, Tensor? weight, Tensor? running_mean,
    // Tensor? running_var, Tensor? save_mean, Tensor? save_invstd, bool train, float eps, bool[3] output_mask) ->
    // (Tensor, Tensor, Tensor)
    let out = unsafe {
        ffi::call(
            op,
            c"aten::native_batch_norm_backward",
            &[
                Arg::Tensor(grad.raw()),
                Arg::Tensor(x.raw()),
                Arg::Maybe(Some(weight.raw())),
                Arg::Maybe(None),
                Arg::Maybe(None),
                Arg::Maybe(Some(mean.raw())),
                Arg::Maybe(Some(&rstd)),
                Arg::Bool(true),
                Arg::Float(eps),
                Arg::Mask([true; 3]),
            ],
        )
    };
    let (grad_x, grad_weight, grad_bias) = three(x, out?)?;
    Ok((reshape(&grad_x, *x.shape())?, grad_weight, grad_bias))
}
