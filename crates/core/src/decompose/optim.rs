//! Optimizer steps. Source: the algorithms in PyTorch's documentation of SGD, Adam and AdamW.
//!
//! Everything is computed before anything is changed, so that a device that fails in between leaves parameter
//! and state as they were.

use super::wide::{is_narrow, widen, widen_option};
use crate::{AdamParams, Backend, BinaryOp, DType, Error, Result, SgdParams, Shape, SliceRange, UnaryOp, observe};

/// See [`Backend::accumulate_grad`].
///
/// # Errors
/// Those of the ops that it is made of.
pub fn accumulate_grad<B: Backend>(acc: &B::Tensor, grad: &B::Tensor) -> Result<B::Tensor> {
    observe::decomposed("AccumulateGrad");
    B::binary(BinaryOp::Add, acc, grad)
}

/// See [`Backend::slice_scatter`]: joins the part before, `src`, and the part after.
///
/// # Errors
/// When `src` does not fit there; those of the ops that it is made of.
pub fn slice_scatter<B: Backend>(x: &B::Tensor, src: &B::Tensor, axis: usize, start: usize) -> Result<B::Tensor> {
    observe::decomposed("SliceScatter");
    let (shape, part) = (B::shape(x), B::shape(src));
    check_slice_scatter((&shape, B::dtype(x)), (&part, B::dtype(src)), axis, start)?;
    let end = start + part[axis];
    let piece = |from: usize, to: usize| {
        let mut ranges: Vec<SliceRange> = shape.iter().map(|&dim| SliceRange::new(0, dim, 1)).collect();
        ranges[axis] = SliceRange::new(from, to - from, 1);
        B::slice(x, &ranges)
    };
    match (start > 0, end < shape[axis]) {
        (false, false) => Ok(src.clone()),
        (true, false) => B::concat(&[&piece(0, start)?, src], axis),
        (false, true) => B::concat(&[src, &piece(end, shape[axis])?], axis),
        (true, true) => B::concat(&[&piece(0, start)?, src, &piece(end, shape[axis])?], axis),
    }
}

/// Fails unless `src` fits into `x` at `start` along an axis. Both are given by shape and dtype.
///
/// # Errors
/// Says how they do not fit.
pub fn check_slice_scatter(
    (x, dtype): (&Shape, DType),
    (src, src_dtype): (&Shape, DType),
    axis: usize,
    start: usize,
) -> Result<()> {
    let fits = axis < x.rank()
        && src.rank() == x.rank()
        && dtype == src_dtype
        && (0..x.rank()).all(|i| i == axis || src[i] == x[i])
        && start.checked_add(src[axis]).is_some_and(|end| end <= x[axis]);
    if fits {
        return Ok(());
    }
    Err(Error::shape(format!(
        "{src_dtype}{src} does not fit into {dtype}{x} from {start} on along axis {axis}"
    ))
    .with_op("slice_scatter"))
}

/// See [`Backend::sgd_step`].
///
/// # Errors
/// Those of the ops that it is made of; nothing has changed then.
pub fn sgd_step<B: Backend>(
    param: &mut B::Tensor,
    grad: &B::Tensor,
    momentum: Option<&mut B::Tensor>,
    params: &SgdParams,
) -> Result<()> {
    observe::decomposed("SgdStep");
    if is_narrow::<B>(param) {
        let dtype = B::dtype(param);
        let mut wide = widen::<B>(param)?;
        let mut buffer = widen_option::<B>(momentum.as_deref())?;
        B::sgd_step(&mut wide, &widen::<B>(grad)?, buffer.as_mut(), params)?;
        let (buffer, wide) = (narrow_option::<B>(buffer, dtype)?, B::cast(&wide, dtype)?);
        store(momentum, buffer);
        *param = wide;
        return Ok(());
    }
    let grad = decayed::<B>(grad, param, params.weight_decay)?;
    let buffer = match &momentum {
        None => None,
        Some(_) if params.first => Some(grad.clone()),
        Some(buffer) => Some(B::add(
            &B::mul_scalar(buffer, params.momentum)?,
            &B::mul_scalar(&grad, 1.0 - params.dampening)?,
        )?),
    };
    let direction = match &buffer {
        None => grad,
        Some(buffer) if params.nesterov => B::add(&grad, &B::mul_scalar(buffer, params.momentum)?)?,
        Some(buffer) => buffer.clone(),
    };
    *param = B::sub(param, &B::mul_scalar(&direction, params.lr)?)?;
    store(momentum, buffer);
    Ok(())
}

/// See [`Backend::adam_step`].
///
/// # Errors
/// Those of the ops that it is made of; nothing has changed then.
pub fn adam_step<B: Backend>(
    param: &mut B::Tensor,
    grad: &B::Tensor,
    first: &mut B::Tensor,
    second: &mut B::Tensor,
    max_second: Option<&mut B::Tensor>,
    params: &AdamParams,
) -> Result<()> {
    observe::decomposed("AdamStep");
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
        let largest = narrow_option::<B>(largest, dtype)?;
        let (wide, wide_first) = (B::cast(&wide, dtype)?, B::cast(&wide_first, dtype)?);
        *second = B::cast(&wide_second, dtype)?;
        store(max_second, largest);
        (*param, *first) = (wide, wide_first);
        return Ok(());
    }
    let (base, grad) = if params.decoupled {
        let kept = 1.0 - params.lr * params.weight_decay;
        (B::mul_scalar(param, kept)?, grad.clone())
    } else {
        (param.clone(), decayed::<B>(grad, param, params.weight_decay)?)
    };
    let new_first = blend::<B>(first, &grad, params.beta1)?;
    let new_second = blend::<B>(second, &B::mul(&grad, &grad)?, params.beta2)?;
    let step = params.step as f64;
    let correction1 = 1.0 - params.beta1.powf(step);
    let correction2 = 1.0 - params.beta2.powf(step);
    let largest = match &max_second {
        Some(largest) => Some(B::binary(BinaryOp::Maximum, largest, &new_second)?),
        None => None,
    };
    let root = B::unary(UnaryOp::Sqrt, largest.as_ref().unwrap_or(&new_second))?;
    let root = B::mul_scalar(&root, 1.0 / correction2.sqrt())?;
    let change = B::div(&new_first, &B::add_scalar(&root, params.eps)?)?;
    *param = B::sub(&base, &B::mul_scalar(&change, params.lr / correction1)?)?;
    (*first, *second) = (new_first, new_second);
    store(max_second, largest);
    Ok(())
}

/// Replaces an optional value.
fn store<T>(target: Option<&mut T>, new: Option<T>) {
    if let (Some(target), Some(new)) = (target, new) {
        *target = new;
    }
}

/// Casts a widened tensor back to its own dtype.
fn narrow_option<B: Backend>(wide: Option<B::Tensor>, dtype: DType) -> Result<Option<B::Tensor>> {
    wide.map(|wide| B::cast(&wide, dtype)).transpose()
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
