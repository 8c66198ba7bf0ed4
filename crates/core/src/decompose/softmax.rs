//! Softmax and cross entropy.

use super::wide::{is_narrow, narrow2, widen};
use crate::{Axes, Backend, CompareOp, CrossEntropyParams, DType, ReduceOp, Result, Scalar, Shape, UnaryOp};

/// See [`Backend::softmax`].
pub(super) fn softmax<B: Backend>(x: &B::Tensor, axis: usize) -> Result<B::Tensor> {
    if is_narrow::<B>(x) {
        return B::cast(&B::softmax(&widen::<B>(x)?, axis)?, B::dtype(x));
    }
    if B::shape(x).numel() == 0 {
        return Ok(x.clone());
    }
    let weights = B::exp(&B::sub(x, &largest::<B>(x, axis)?)?)?;
    B::div(&weights, &B::sum_keep(&weights, Axes::one(axis))?)
}

/// See [`Backend::softmax_backward`].
pub(super) fn softmax_backward<B: Backend>(grad: &B::Tensor, output: &B::Tensor, axis: usize) -> Result<B::Tensor> {
    if is_narrow::<B>(grad) {
        let wide = B::softmax_backward(&widen::<B>(grad)?, &widen::<B>(output)?, axis)?;
        return B::cast(&wide, B::dtype(grad));
    }
    let weighted = B::mul(grad, output)?;
    let total = B::sum_keep(&weighted, Axes::one(axis))?;
    B::sub(&weighted, &B::mul(output, &total)?)
}

/// See [`Backend::log_softmax`].
pub(super) fn log_softmax<B: Backend>(x: &B::Tensor, axis: usize) -> Result<B::Tensor> {
    if is_narrow::<B>(x) {
        return B::cast(&B::log_softmax(&widen::<B>(x)?, axis)?, B::dtype(x));
    }
    if B::shape(x).numel() == 0 {
        return Ok(x.clone());
    }
    let shifted = B::sub(x, &largest::<B>(x, axis)?)?;
    let total = B::sum_keep(&B::exp(&shifted)?, Axes::one(axis))?;
    B::sub(&shifted, &B::unary(UnaryOp::Log, &total)?)
}

/// See [`Backend::log_softmax_backward`].
pub(super) fn log_softmax_backward<B: Backend>(grad: &B::Tensor, output: &B::Tensor, axis: usize) -> Result<B::Tensor> {
    if is_narrow::<B>(grad) {
        let wide = B::log_softmax_backward(&widen::<B>(grad)?, &widen::<B>(output)?, axis)?;
        return B::cast(&wide, B::dtype(grad));
    }
    let total = B::sum_keep(grad, Axes::one(axis))?;
    B::sub(grad, &B::mul(&B::exp(output)?, &total)?)
}

/// See [`Backend::cross_entropy`].
pub(super) fn cross_entropy<B: Backend>(
    logits: &B::Tensor,
    target: &B::Tensor,
    params: &CrossEntropyParams,
) -> Result<(B::Tensor, B::Tensor)> {
    if is_narrow::<B>(logits) {
        return narrow2::<B>(
            B::cross_entropy(&widen::<B>(logits)?, target, params)?,
            B::dtype(logits),
        );
    }
    if params.mean {
        let (losses, logsumexp) = B::cross_entropy(logits, target, &of_rows(params))?;
        let total = B::reduce(ReduceOp::Sum, &losses, Axes::one(0), false)?;
        let counted = counted::<B>(target, B::dtype(logits), params)?;
        return Ok((B::div(&total, &counted)?, logsumexp));
    }
    let shape = B::shape(logits);
    let (rows, classes) = (shape[0], shape[1]);
    let flat = Shape::from([rows]);
    let top = largest::<B>(logits, 1)?;
    let total = B::sum_keep(&B::exp(&B::sub(logits, &top)?)?, Axes::one(1))?;
    let logsumexp = B::reshape(&B::add(&top, &B::unary(UnaryOp::Log, &total)?)?, flat)?;

    let (kept, index) = kept_and_index::<B>(target, params)?;
    let column = B::reshape(&index, Shape::from([rows, 1]))?;
    let picked = B::reshape(&B::gather(logits, 1, &column)?, flat)?;
    let mut loss = B::sub(&logsumexp, &picked)?;
    if params.label_smoothing > 0.0 {
        let all = B::reduce(ReduceOp::Sum, logits, Axes::one(1), false)?;
        let even = B::sub(&logsumexp, &B::mul_scalar(&all, 1.0 / classes as f64)?)?;
        loss = B::add(
            &B::mul_scalar(&loss, 1.0 - params.label_smoothing)?,
            &B::mul_scalar(&even, params.label_smoothing)?,
        )?;
    }
    Ok((B::select(&kept, &loss, &zero_like::<B>(&loss)?)?, logsumexp))
}

/// See [`Backend::cross_entropy_backward`].
pub(super) fn cross_entropy_backward<B: Backend>(
    grad: &B::Tensor,
    logits: &B::Tensor,
    target: &B::Tensor,
    logsumexp: &B::Tensor,
    params: &CrossEntropyParams,
) -> Result<B::Tensor> {
    if is_narrow::<B>(logits) {
        let (grad, wide, logsumexp) = (widen::<B>(grad)?, widen::<B>(logits)?, widen::<B>(logsumexp)?);
        let wide = B::cross_entropy_backward(&grad, &wide, target, &logsumexp, params)?;
        return B::cast(&wide, B::dtype(logits));
    }
    if params.mean {
        let each = B::div(grad, &counted::<B>(target, B::dtype(logits), params)?)?;
        let each = B::expand(&B::reshape(&each, Shape::from([1]))?, B::shape(target))?;
        return B::cross_entropy_backward(&each, logits, target, logsumexp, &of_rows(params));
    }
    let shape = B::shape(logits);
    let (rows, classes) = (shape[0], shape[1]);
    let column = Shape::from([rows, 1]);
    let (kept, index) = kept_and_index::<B>(target, params)?;
    let grad = B::select(&kept, grad, &zero_like::<B>(grad)?)?;
    let grad = B::reshape(&grad, column)?;

    let probabilities = B::exp(&B::sub(logits, &B::reshape(logsumexp, column)?)?)?;
    let spread = B::mul(
        &B::add_scalar(&probabilities, -params.label_smoothing / classes as f64)?,
        &grad,
    )?;
    let at_target = B::mul_scalar(&grad, params.label_smoothing - 1.0)?;
    B::scatter_add(&spread, 1, &B::reshape(&index, column)?, &at_target)
}

/// The same parameters without the mean.
fn of_rows(params: &CrossEntropyParams) -> CrossEntropyParams {
    CrossEntropyParams { mean: false, ..*params }
}

/// The number of rows that are not ignored.
fn counted<B: Backend>(target: &B::Tensor, dtype: DType, params: &CrossEntropyParams) -> Result<B::Tensor> {
    let kept = B::compare_scalar(CompareOp::Ne, target, Scalar::Int(params.ignore_index))?;
    B::reduce(ReduceOp::Sum, &B::cast(&kept, dtype)?, Axes::one(0), false)
}

fn largest<B: Backend>(x: &B::Tensor, axis: usize) -> Result<B::Tensor> {
    B::reduce(ReduceOp::Max, x, Axes::one(axis), true)
}

/// Which rows are not ignored, and the targets, with 0 in place of ignored ones.
fn kept_and_index<B: Backend>(target: &B::Tensor, params: &CrossEntropyParams) -> Result<(B::Tensor, B::Tensor)> {
    let kept = B::compare_scalar(CompareOp::Ne, target, Scalar::Int(params.ignore_index))?;
    let index = B::select(&kept, target, &zero_like::<B>(target)?)?;
    Ok((kept, index))
}

/// Zero of rank 0, in a tensor's dtype and on its device.
fn zero_like<B: Backend>(x: &B::Tensor) -> Result<B::Tensor> {
    B::zeros(Shape::SCALAR, B::dtype(x), &B::device(x))
}
