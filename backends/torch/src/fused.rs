//! Linear maps, activations, softmax and attention with LibTorch's fused kernels.

use polygrad_core::{Activation, DType, Result, decompose};
use tch::Tensor;

use crate::Torch;
use crate::tensor::{TorchTensor, kind};
use crate::window::is_wide;

pub(crate) fn linear(x: &TorchTensor, weight: &TorchTensor, bias: Option<&TorchTensor>) -> Result<TorchTensor> {
    // For f16 and bf16, LibTorch ignores the bias if there are no terms to sum up.
    if !is_wide(x.dtype()) {
        return decompose::linear::<Torch>(x, weight, bias, None);
    }
    x.wrap("linear", x.raw().f_linear(weight.raw(), bias.map(TorchTensor::raw)))
}

pub(crate) fn activation(op: Activation, x: &TorchTensor) -> Result<TorchTensor> {
    let t = x.raw();
    let out = match op {
        Activation::Relu => t.f_relu(),
        Activation::Tanh => t.f_tanh(),
        Activation::Sigmoid => t.f_sigmoid(),
        Activation::Gelu => t.f_gelu("none"),
        Activation::GeluTanh => t.f_gelu("tanh"),
        Activation::Silu => t.f_silu(),
        // tch has the forward op for only one slope; the backward op of x by x is the same function.
        Activation::LeakyRelu { slope } => return x.guard(op.name(), || t.f_leaky_relu_backward(t, slope, false)),
        _ => return decompose::activation::<Torch>(op, x),
    };
    x.wrap(op.name(), out)
}

pub(crate) fn activation_backward(op: Activation, grad: &TorchTensor, saved: &TorchTensor) -> Result<TorchTensor> {
    let (name, g, s) = ("activation_backward", grad.raw(), saved.raw());
    let out = match op {
        Activation::Relu => return grad.guard(name, || s.f_threshold_backward(g, 0.0)),
        Activation::Tanh => Tensor::f_tanh_backward(g, s),
        Activation::Sigmoid => Tensor::f_sigmoid_backward(g, s),
        Activation::Gelu => s.f_gelu_backward(g, "none"),
        Activation::GeluTanh => s.f_gelu_backward(g, "tanh"),
        Activation::Silu => s.f_silu_backward(g),
        Activation::LeakyRelu { slope } => return grad.guard(name, || s.f_leaky_relu_backward(g, slope, false)),
        _ => return decompose::activation_backward::<Torch>(op, grad, saved),
    };
    grad.wrap(name, out)
}

pub(crate) fn softmax(x: &TorchTensor, axis: usize) -> Result<TorchTensor> {
    x.wrap("softmax", x.raw().f_internal_softmax(axis as i64, false))
}

pub(crate) fn softmax_backward(grad: &TorchTensor, output: &TorchTensor, axis: usize) -> Result<TorchTensor> {
    let dtype = kind(grad.dtype());
    let out = Tensor::f_internal_softmax_backward_data(grad.raw(), output.raw(), axis as i64, dtype);
    grad.wrap("softmax_backward", out)
}

pub(crate) fn log_softmax(x: &TorchTensor, axis: usize) -> Result<TorchTensor> {
    x.wrap("log_softmax", x.raw().f_internal_log_softmax(axis as i64, false))
}

pub(crate) fn log_softmax_backward(grad: &TorchTensor, output: &TorchTensor, axis: usize) -> Result<TorchTensor> {
    let dtype = kind(grad.dtype());
    let out = Tensor::f_internal_log_softmax_backward_data(grad.raw(), output.raw(), axis as i64, dtype);
    grad.wrap("log_softmax_backward", out)
}

/// LibTorch's flash attention if it computes the same. It aligns a causal mask to the top left, and returns NaN for a
/// row that sees no key.
pub(crate) fn attention(
    q: &TorchTensor,
    k: &TorchTensor,
    v: &TorchTensor,
    mask: Option<&TorchTensor>,
    scale: f64,
    causal: bool,
) -> Result<TorchTensor> {
    let (queries, keys) = (q.shape(), k.shape());
    let rank = queries.rank();
    let leading = |x: &TorchTensor| x.shape().rank() == rank && x.shape()[..rank - 2] == queries[..rank - 2];
    let same = mask.is_none()
        && rank >= 3
        && matches!(q.dtype(), DType::F32 | DType::F64)
        && leading(k)
        && leading(v)
        && (!causal || queries[rank - 2] == keys[rank - 2])
        && keys[rank - 2] > 0
        && queries.numel() > 0
        && v.shape().numel() > 0;
    if !same {
        return decompose::attention::<Torch>(q, k, v, mask, scale, causal);
    }
    let out =
        Tensor::f_scaled_dot_product_attention(q.raw(), k.raw(), v.raw(), None::<&Tensor>, 0.0, causal, scale, false);
    q.wrap("scaled_dot_product_attention", out)
}
