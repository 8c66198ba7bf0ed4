//! Optimizer steps with LibTorch's fused kernels, in place if the memory is not shared.

#![allow(unsafe_code, reason = "ops that are called by name, beside their schemas")]

use polygrad_core::{AdamParams, DType, Result, Scalar, SgdParams, Shape, decompose};

use crate::Torch;
use crate::error::Named;
use crate::ffi::{self, Arg};
use crate::tensor::TorchTensor;
use crate::window::is_wide;

pub(crate) fn accumulate_grad(mut acc: TorchTensor, grad: &TorchTensor) -> Result<TorchTensor> {
    match acc.writable() {
        Some(sum) => {
            // It returns another handle to the same tensor.
            drop(sum.f_add_(grad.raw()).named("accumulate_grad")?);
            Ok(acc)
        }
        None => acc.wrap("accumulate_grad", acc.raw().f_add(grad.raw())),
    }
}

pub(crate) fn sgd_step(
    param: &mut TorchTensor,
    grad: &TorchTensor,
    momentum: Option<&mut TorchTensor>,
    params: &SgdParams,
) -> Result<()> {
    // If the momentum is 0, the fused kernel does not update its buffer.
    if !is_wide(param.dtype()) || (momentum.is_some() && params.momentum == 0.0) {
        return decompose::sgd_step::<Torch>(param, grad, momentum, params);
    }
    let op = "sgd_step";
    let grad = grad.contiguous()?;
    param.make_writable()?;
    let mut momentum = momentum;
    if let Some(buffer) = &mut momentum {
        buffer.make_writable()?;
    }
    // SAFETY: _fused_sgd_(Tensor[] self, Tensor[] grads, Tensor[] momentum_buffer_list, *, float weight_decay, float
    // momentum, float lr, float dampening, bool nesterov, bool maximize, bool is_first_step, Tensor? grad_scale,
    // Tensor? found_inf) -> () Its outputs were made writable above, and are borrowed mutably.
    let done: Result<[_; 0]> = unsafe {
        ffi::call(
            op,
            c"aten::_fused_sgd_",
            &[
                Arg::List(Some(param.raw())),
                Arg::List(Some(grad.raw())),
                Arg::List(momentum.as_deref().map(TorchTensor::raw)),
                Arg::Float(params.weight_decay),
                // Without a buffer, a nonzero momentum would make the kernel look for one.
                Arg::Float(if momentum.is_some() { params.momentum } else { 0.0 }),
                Arg::Float(params.lr),
                Arg::Float(params.dampening),
                Arg::Bool(params.nesterov),
                Arg::Bool(false),
                Arg::Bool(params.first),
                Arg::Maybe(None),
                Arg::Maybe(None),
            ],
        )
    };
    done.map(|_| ())
}

pub(crate) fn adam_step(
    param: &mut TorchTensor,
    grad: &TorchTensor,
    first: &mut TorchTensor,
    second: &mut TorchTensor,
    max_second: Option<&mut TorchTensor>,
    params: &AdamParams,
) -> Result<()> {
    // The fused kernel counts steps in f32.
    if !is_wide(param.dtype()) || params.step >= 1 << 24 {
        return decompose::adam_step::<Torch>(param, grad, first, second, max_second, params);
    }
    let grad = grad.contiguous()?;
    let mut max_second = max_second;
    for state in [&mut *param, first, second] {
        state.make_writable()?;
    }
    if let Some(state) = &mut max_second {
        state.make_writable()?;
    }
    let step = Scalar::Float(params.step as f64);
    // On CUDA the step count is on the parameter's device.
    let step = TorchTensor::full(Shape::SCALAR, step, DType::F32, param.device())?;
    let name = if params.decoupled {
        c"aten::_fused_adamw_"
    } else {
        c"aten::_fused_adam_"
    };
    // SAFETY: _fused_adam_ and _fused_adamw_(Tensor[] self, Tensor[] grads, Tensor[] exp_avgs, Tensor[] exp_avg_sqs,
    // Tensor[] max_exp_avg_sqs, Tensor[] state_steps, *, float lr, float beta1, float beta2, float weight_decay, float
    // eps, bool amsgrad, bool maximize, Tensor? grad_scale, Tensor? found_inf) -> () Its outputs were made writable
    // above, and are borrowed mutably.
    let done: Result<[_; 0]> = unsafe {
        ffi::call(
            "adam_step",
            name,
            &[
                Arg::List(Some(param.raw())),
                Arg::List(Some(grad.raw())),
                Arg::List(Some(first.raw())),
                Arg::List(Some(second.raw())),
                Arg::List(max_second.as_deref().map(TorchTensor::raw)),
                Arg::List(Some(step.raw())),
                Arg::Float(params.lr),
                Arg::Float(params.beta1),
                Arg::Float(params.beta2),
                Arg::Float(params.weight_decay),
                Arg::Float(params.eps),
                Arg::Bool(max_second.is_some()),
                Arg::Bool(false),
                Arg::Maybe(None),
                Arg::Maybe(None),
            ],
        )
    };
    done.map(|_| ())
}
