//! Cross entropy, from LibTorch's softmax and in-place ops on its result.

use polygrad_core::{CrossEntropyParams, Result, decompose};
use tch::Tensor;

use crate::Torch;
use crate::error::{Named, guarded};
use crate::index::check;
use crate::tensor::{TorchTensor, positions};
use crate::window::is_wide;

/// The classes as a column, all in range, and a mask of the ignored rows, if there are any.
fn targets(target: &TorchTensor, classes: usize, ignored: i64) -> Result<(Tensor, Option<Tensor>)> {
    let op = "cross_entropy";
    let none_ignored = positions(target).is_some_and(|values| !values.contains(&ignored));
    let (index, mask) = if none_ignored {
        (target.clone(), None)
    } else {
        let mask = guarded(op, || target.raw().f_eq(ignored))?;
        (
            target.guard(op, || target.raw().f_masked_fill(&mask, 0i64))?,
            Some(mask),
        )
    };
    check(op, &index, 1, classes)?;
    Ok((index.raw().f_unsqueeze(1).named(op)?, mask))
}

pub(crate) fn forward(
    logits: &TorchTensor,
    target: &TorchTensor,
    params: &CrossEntropyParams,
) -> Result<(TorchTensor, TorchTensor)> {
    if params.mean || !is_wide(logits.dtype()) || logits.shape().numel() == 0 {
        return decompose::cross_entropy::<Torch>(logits, target, params);
    }
    let op = "cross_entropy";
    let (index, ignored) = targets(target, logits.shape()[1], params.ignore_index)?;
    let x = logits.raw();
    let share = params.label_smoothing;
    let compute = || {
        // The largest probability is `e^top / Σ e^x`, which neither overflows nor underflows for any x.
        let top = x.f_amax(&[1i64][..], false)?;
        let largest = x.f_internal_softmax(1, false)?.f_amax(&[1i64][..], false)?;
        let logsumexp = top.f_sub(&largest.f_log()?)?;
        let mut loss = logsumexp.f_sub(&x.f_gather(1, &index, false)?.f_squeeze_dim(1)?)?;
        if share > 0.0 {
            let even = logsumexp.f_sub(&x.f_mean_dim(&[1i64][..], false, None)?)?;
            loss = loss.f_mul_scalar(1.0 - share)?.f_add(&even.f_mul_scalar(share)?)?;
        }
        if let Some(ignored) = &ignored {
            loss = loss.f_masked_fill(ignored, 0.0)?;
        }
        Ok((loss, logsumexp))
    };
    let (loss, logsumexp) = guarded(op, compute)?;
    let device = logits.device();
    Ok((TorchTensor::new(loss, device)?, TorchTensor::new(logsumexp, device)?))
}

pub(crate) fn backward(
    grad: &TorchTensor,
    logits: &TorchTensor,
    target: &TorchTensor,
    logsumexp: &TorchTensor,
    params: &CrossEntropyParams,
) -> Result<TorchTensor> {
    if params.mean || !is_wide(logits.dtype()) || logits.shape().numel() == 0 {
        return decompose::cross_entropy_backward::<Torch>(grad, logits, target, logsumexp, params);
    }
    let (index, ignored) = targets(target, logits.shape()[1], params.ignore_index)?;
    let share = params.label_smoothing;
    let compute = || {
        let mut column = grad.raw().f_unsqueeze(1)?;
        if let Some(ignored) = &ignored {
            column = column.f_masked_fill(&ignored.f_unsqueeze(1)?, 0.0)?;
        }
        // One pass, while using the saved logarithm would take two.
        let mut out = logits.raw().f_internal_softmax(1, false)?;
        if share > 0.0 {
            drop(out.f_sub_scalar_(share / logits.shape()[1] as f64)?);
        }
        drop(out.f_mul_(&column)?);
        drop(out.f_scatter_add_(1, &index, &column.f_mul_scalar(share - 1.0)?)?);
        Ok(out)
    };
    logits.guard("cross_entropy_backward", compute)
}
