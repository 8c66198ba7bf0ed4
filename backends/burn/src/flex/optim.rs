//! Optimizer steps, in one pass over the memory of Burn's tensors, while Burn's own optimizers take a dozen ops. Shared
//! memory is copied first, by Burn's copy-on-write.

use std::sync::LazyLock;

use burn_flex::FlexTensor;
use polygrad_core::{AdamParams, BinaryOp, DType, Result, SgdParams, Shape, decompose};

use crate::Burn;
use crate::flex::elementwise::combine;
use crate::flex::tensor::{BurnTensor, ensure_room};

/// See [`Backend::accumulate_grad`](polygrad_core::Backend::accumulate_grad).
pub(crate) fn accumulate_grad(acc: BurnTensor, grad: &BurnTensor) -> Result<BurnTensor> {
    let dtype = acc.dtype();
    ensure_room(&acc.shape(), dtype)?;
    // Only contiguous memory is added to in place.
    let acc: FlexTensor = if acc.flex().is_contiguous() {
        acc.into()
    } else {
        acc.operand()?
    };
    combine(BinaryOp::Add, acc, grad.operand()?, dtype)
}

/// The tensor's elements in row-major order and nothing else, in memory that may be shared.
fn dense(x: &BurnTensor) -> Result<FlexTensor> {
    // Burn copies unless the memory holds exactly these elements.
    ensure_room(&x.shape(), x.dtype())?;
    Ok(x.flex().to_contiguous())
}

/// See [`Backend::sgd_step`](polygrad_core::Backend::sgd_step).
pub(crate) fn sgd_step(
    param: &mut BurnTensor,
    grad: &BurnTensor,
    momentum: Option<&mut BurnTensor>,
    params: &SgdParams,
) -> Result<()> {
    macro_rules! step {
        ($T:ty) => {{
            let (lr, decay) = (params.lr as $T, params.weight_decay as $T);
            let (kept, fresh) = (params.momentum as $T, (1.0 - params.dampening) as $T);
            let (grad, mut new) = (dense(grad)?, dense(param)?);
            let grad = grad.storage::<$T>();
            let Some(momentum) = momentum else {
                release(param);
                for (p, &g) in new.storage_mut::<$T>().iter_mut().zip(grad) {
                    *p -= lr * (g + decay * *p);
                }
                *param = BurnTensor::new(new);
                return Ok(());
            };
            let mut buffer = dense(momentum)?;
            release(param);
            release(momentum);
            for ((p, b), &g) in new
                .storage_mut::<$T>()
                .iter_mut()
                .zip(buffer.storage_mut::<$T>())
                .zip(grad)
            {
                let g = g + decay * *p;
                *b = if params.first { g } else { kept * *b + fresh * g };
                *p -= lr * if params.nesterov { g + kept * *b } else { *b };
            }
            (*param, *momentum) = (BurnTensor::new(new), BurnTensor::new(buffer));
            Ok(())
        }};
    }
    match param.dtype() {
        DType::F32 => step!(f32),
        DType::F64 => step!(f64),
        _ => decompose::sgd_step::<Burn>(param, grad, momentum, params),
    }
}

/// The placeholder for a tensor while its memory is written.
static NOTHING: LazyLock<BurnTensor> = LazyLock::new(|| BurnTensor::from_values::<f32>(Shape::from([0]), Vec::new()));

/// Drops a tensor that is about to be replaced, so that it does not keep its memory shared. After this nothing may
/// fail.
fn release(x: &mut BurnTensor) {
    *x = NOTHING.clone();
}

/// See [`Backend::adam_step`](polygrad_core::Backend::adam_step).
pub(crate) fn adam_step(
    param: &mut BurnTensor,
    grad: &BurnTensor,
    first: &mut BurnTensor,
    second: &mut BurnTensor,
    max_second: Option<&mut BurnTensor>,
    params: &AdamParams,
) -> Result<()> {
    macro_rules! step {
        ($T:ty) => {{
            let (beta1, rest1) = (params.beta1 as $T, (1.0 - params.beta1) as $T);
            let (beta2, rest2) = (params.beta2 as $T, (1.0 - params.beta2) as $T);
            let correction1 = 1.0 - params.beta1.powf(params.step as f64);
            let correction2 = 1.0 - params.beta2.powf(params.step as f64);
            let (rate, scale, eps) = (
                (params.lr / correction1) as $T,
                (1.0 / correction2.sqrt()) as $T,
                params.eps as $T,
            );
            let kept = if params.decoupled {
                (1.0 - params.lr * params.weight_decay) as $T
            } else {
                1.0
            };
            let decay = if params.decoupled {
                0.0
            } else {
                params.weight_decay as $T
            };
            let (grad, mut p) = (dense(grad)?, dense(param)?);
            let (mut m, mut v) = (dense(first)?, dense(second)?);
            let mut largest = max_second.as_deref().map(dense).transpose()?;
            release(param);
            release(first);
            release(second);
            let grad = grad.storage::<$T>();
            let count = grad.len();
            {
                let (p, m, v) = (p.storage_mut::<$T>(), m.storage_mut::<$T>(), v.storage_mut::<$T>());
                let (p, m, v) = (&mut p[..count], &mut m[..count], &mut v[..count]);
                // The step uses the second moment in `v`, or AMSGrad's largest one, which is stored separately.
                match (&mut largest, max_second) {
                    (Some(largest), Some(target)) => {
                        release(target);
                        let top = &mut largest.storage_mut::<$T>()[..count];
                        for i in 0..count {
                            let g = grad[i] + decay * p[i];
                            m[i] = beta1 * m[i] + rest1 * g;
                            v[i] = beta2 * v[i] + rest2 * g * g;
                            top[i] = if v[i] > top[i] || v[i].is_nan() { v[i] } else { top[i] };
                            p[i] = kept * p[i] - rate * (m[i] / (top[i].sqrt() * scale + eps));
                        }
                        *target = BurnTensor::new(largest.clone());
                    }
                    _ => {
                        for i in 0..count {
                            let g = grad[i] + decay * p[i];
                            m[i] = beta1 * m[i] + rest1 * g;
                            v[i] = beta2 * v[i] + rest2 * g * g;
                            p[i] = kept * p[i] - rate * (m[i] / (v[i].sqrt() * scale + eps));
                        }
                    }
                }
            }
            (*param, *first, *second) = (BurnTensor::new(p), BurnTensor::new(m), BurnTensor::new(v));
            Ok(())
        }};
    }
    match param.dtype() {
        DType::F32 => step!(f32),
        DType::F64 => step!(f64),
        _ => decompose::adam_step::<Burn>(param, grad, first, second, max_second, params),
    }
}
