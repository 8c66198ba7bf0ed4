//! Optimizer steps. Source: the algorithms in PyTorch's documentation of SGD, Adam and AdamW.

use super::wide::{is_narrow, widen, widen_option};
use crate::{AdamParams, Backend, BinaryOp, DType, Result, SgdParams, UnaryOp};

/// See [`Backend::sgd_step`].
pub fn sgd_step<B: Backend>(
    param: &mut B::Tensor,
    grad: &B::Tensor,
    momentum: Option<&mut B::Tensor>,
    params: &SgdParams,
) -> Result<()> {
    if is_narrow::<B>(param) {
        let dtype = B::dtype(param);
        let mut wide = widen::<B>(param)?;
        let mut buffer = widen_option::<B>(momentum.as_deref())?;
        B::sgd_step(&mut wide, &widen::<B>(grad)?, buffer.as_mut(), params)?;
        store::<B>(momentum, buffer, dtype)?;
        *param = B::cast(&wide, dtype)?;
        return Ok(());
    }
    let grad = decayed::<B>(grad, param, params.weight_decay)?;
    let direction = match momentum {
        None => grad,
        Some(buffer) => {
            *buffer = if params.first {
                grad.clone()
            } else {
                B::add(
                    &B::mul_scalar(buffer, params.momentum)?,
                    &B::mul_scalar(&grad, 1.0 - params.dampening)?,
                )?
            };
            if params.nesterov {
                B::add(&grad, &B::mul_scalar(buffer, params.momentum)?)?
            } else {
                buffer.clone()
            }
        }
    };
    *param = B::sub(param, &B::mul_scalar(&direction, params.lr)?)?;
    Ok(())
}

/// See [`Backend::adam_step`].
pub fn adam_step<B: Backend>(
    param: &mut B::Tensor,
    grad: &B::Tensor,
    first: &mut B::Tensor,
    second: &mut B::Tensor,
    max_second: Option<&mut B::Tensor>,
    params: &AdamParams,
) -> Result<()> {
    if is_narrow::<B>(param) {
        let dtype = B::dtype(param);
        let (mut wide, mut wide_first, mut wide_second) = (widen::<B>(param)?, widen::<B>(first)?, widen::<B>(second)?);
        let mut largest = widen_option::<B>(max_second.as_deref())?;
        B::adam_step(
            &mut wide,
            &widen::<B>(grad)?,
            &mut wide_first,
            &mut wide_second,
            largest.as_mut(),
            params,
        )?;
        store::<B>(max_second, largest, dtype)?;
        *first = B::cast(&wide_first, dtype)?;
        *second = B::cast(&wide_second, dtype)?;
        *param = B::cast(&wide, dtype)?;
        return Ok(());
    }
    let grad = if params.decoupled {
        *param = B::mul_scalar(param, 1.0 - params.lr * params.weight_decay)?;
        grad.clone()
    } else {
        decayed::<B>(grad, param, params.weight_decay)?
    };
    *first = blend::<B>(first, &grad, params.beta1)?;
    *second = blend::<B>(second, &B::mul(&grad, &grad)?, params.beta2)?;
    let step = params.step as f64;
    let correction1 = 1.0 - params.beta1.powf(step);
    let correction2 = 1.0 - params.beta2.powf(step);
    let largest = match max_second {
        Some(largest) => {
            *largest = B::binary(BinaryOp::Maximum, largest, second)?;
            largest
        }
        None => second,
    };
    let root = B::mul_scalar(&B::unary(UnaryOp::Sqrt, largest)?, 1.0 / correction2.sqrt())?;
    let change = B::div(first, &B::add_scalar(&root, params.eps)?)?;
    *param = B::sub(param, &B::mul_scalar(&change, params.lr / correction1)?)?;
    Ok(())
}

/// Writes a widened tensor back.
fn store<B: Backend>(target: Option<&mut B::Tensor>, wide: Option<B::Tensor>, dtype: DType) -> Result<()> {
    if let (Some(target), Some(wide)) = (target, wide) {
        *target = B::cast(&wide, dtype)?;
    }
    Ok(())
}

fn decayed<B: Backend>(grad: &B::Tensor, param: &B::Tensor, weight_decay: f64) -> Result<B::Tensor> {
    if weight_decay == 0.0 {
        return Ok(grad.clone());
    }
    B::add(grad, &B::mul_scalar(param, weight_decay)?)
}

/// `decay * old + (1 - decay) * new`.
fn blend<B: Backend>(old: &B::Tensor, new: &B::Tensor, decay: f64) -> Result<B::Tensor> {
    B::add(&B::mul_scalar(old, decay)?, &B::mul_scalar(new, 1.0 - decay)?)
}
