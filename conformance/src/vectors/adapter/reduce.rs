//! Reductions, scans and matrix products.

use polygrad_core::ReduceOp;
use polygrad_tensor::{Backend, Scalar, Tensor};

use crate::vectors::call::{Call, CaseError, CaseOutputs, CaseResult, one, pair, unsupported};

/// Axes in the form of PyTorch's reductions: none or an empty list selects all.
fn axes<B: Backend>(call: &Call<'_, B>, position: usize, x: &Tensor<B>) -> CaseResult<Vec<isize>> {
    Ok(match call.ints(position, "dim")? {
        Some(axes) if !axes.is_empty() => axes,
        _ => (0..x.rank() as isize).collect(),
    })
}

fn reduce<B: Backend>(call: &Call<'_, B>, op: ReduceOp) -> CaseOutputs<B> {
    let (x, asked) = call.input_in_dtype(9)?;
    let y = x.reduce(op, &axes(call, 1, &x)?, call.flag(2, "keepdim", false)?)?;
    // Integers and bools are summed in i64, unless another dtype is requested.
    one(if asked { y.to_dtype(x.dtype())? } else { y })
}

/// `max` and `min`: along an axis with positions, or over all elements.
fn extreme<B: Backend>(call: &Call<'_, B>, largest: bool) -> CaseOutputs<B> {
    let x = call.tensor(0, "input")?;
    match (call.optional_int(1, "dim")?, call.flag(2, "keepdim", false)?) {
        (Some(axis), true) if largest => pair(x.max_keepdim(axis)?),
        (Some(axis), false) if largest => pair(x.max(axis)?),
        (Some(axis), true) => pair(x.min_keepdim(axis)?),
        (Some(axis), false) => pair(x.min(axis)?),
        (None, _) if largest => one(x.amax(())?),
        (None, _) => one(x.amin(())?),
    }
}

fn position<B: Backend>(call: &Call<'_, B>, largest: bool) -> CaseOutputs<B> {
    let x = call.tensor(0, "input")?;
    let keepdims = call.flag(2, "keepdim", false)?;
    let (x, axis) = match call.optional_int(1, "dim")? {
        Some(axis) => (x.clone(), axis),
        None => (x.reshape([x.numel()])?, 0),
    };
    one(match (largest, keepdims) {
        (true, true) => x.argmax_keepdim(axis)?,
        (true, false) => x.argmax(axis)?,
        (false, true) => x.argmin_keepdim(axis)?,
        (false, false) => x.argmin(axis)?,
    })
}

fn spread<B: Backend>(call: &Call<'_, B>, root: bool) -> CaseOutputs<B> {
    let x = call.tensor(0, "input")?;
    // `var(x, unbiased)` has its flag where `var(x, dim)` has its axes.
    let flag = match call.scalar(1, "dim") {
        Some(Scalar::Bool(flag)) => Some(flag),
        _ => None,
    };
    let axes = match flag {
        Some(_) => (0..x.rank() as isize).collect(),
        None => axes(call, 1, x)?,
    };
    let unbiased = call.flag(9, "unbiased", flag.unwrap_or(true))?;
    let correction = call.float(9, "correction", if unbiased { 1.0 } else { 0.0 })?;
    let keepdims = call.flag(9, "keepdim", false)?;
    one(match (root, keepdims) {
        (true, true) => x.std_keepdim(&axes, correction)?,
        (true, false) => x.std(&axes, correction)?,
        (false, true) => x.variance_keepdim(&axes, correction)?,
        (false, false) => x.variance(&axes, correction)?,
    })
}

fn norm<B: Backend>(call: &Call<'_, B>) -> CaseOutputs<B> {
    let x = call.tensor(0, "input")?;
    let p = match call.scalar(1, "p") {
        Some(p) => p.to_f64(),
        None => match call.text(1, "p")? {
            None | Some("fro") => 2.0,
            Some("nuc") => {
                let axes = axes(call, 2, x)?;
                let &[row, column] = axes.as_slice() else {
                    return unsupported(format!("argument dim: the nuclear norm takes two axes, not {axes:?}"));
                };
                return one(if call.flag(3, "keepdim", false)? {
                    x.nuclear_norm_keepdim([row, column])?
                } else {
                    x.nuclear_norm([row, column])?
                });
            }
            Some(other) => return unsupported(format!("argument p={other}")),
        },
    };
    let axes = axes(call, 2, x)?;
    one(if call.flag(3, "keepdim", false)? {
        x.norm_keepdim(p, &axes)?
    } else {
        x.norm(p, &axes)?
    })
}

fn einsum<B: Backend>(call: &Call<'_, B>) -> CaseOutputs<B> {
    // OpInfo's own order has the operands first.
    let (equation, operands) = match call.word(0, "equation") {
        Some(equation) => (Some(equation), 1),
        None => (call.text(1, "equation")?, 0),
    };
    let Some(equation) = equation else {
        return unsupported("argument equation is missing");
    };
    one(Tensor::einsum(equation, &call.tensors(operands, "operands")?)?)
}

pub(super) fn answer<B: Backend>(call: &Call<'_, B>) -> CaseOutputs<B> {
    let x = || call.tensor(0, "input");
    match call.op() {
        "sum" => reduce(call, ReduceOp::Sum),
        "mean" => reduce(call, ReduceOp::Mean),
        "prod" => reduce(call, ReduceOp::Prod),
        "amax" => reduce(call, ReduceOp::Max),
        "amin" => reduce(call, ReduceOp::Min),
        "max" => extreme(call, true),
        "min" => extreme(call, false),
        "argmax" => position(call, true),
        "argmin" => position(call, false),
        "var" => spread(call, false),
        "std" => spread(call, true),
        "norm" => norm(call),
        "logsumexp" => {
            let axes = axes(call, 1, x()?)?;
            one(if call.flag(2, "keepdim", false)? {
                x()?.logsumexp_keepdim(&axes)?
            } else {
                x()?.logsumexp(&axes)?
            })
        }
        "cumsum" => one(call.input_in_dtype(2)?.0.cumsum(call.int(1, "dim", 0)?)?),
        "cumprod" => one(call.input_in_dtype(2)?.0.cumprod(call.int(1, "dim", 0)?)?),
        "median" => match (call.optional_int(1, "dim")?, call.flag(2, "keepdim", false)?) {
            (Some(axis), true) => pair(x()?.median_keepdim(axis)?),
            (Some(axis), false) => pair(x()?.median(axis)?),
            (None, _) => one(x()?.median_all()?),
        },
        "softmax" | "log_softmax" => {
            let ((x, _), axis) = (call.input_in_dtype(2)?, call.int(1, "dim", -1)?);
            one(if call.op() == "softmax" {
                x.softmax(axis)?
            } else {
                x.log_softmax(axis)?
            })
        }
        "matmul" => one(x()?.matmul(call.tensor(1, "other")?)?),
        "mm" => one(x()?.mm(call.tensor(1, "mat2")?)?),
        "bmm" => one(x()?.bmm(call.tensor(1, "mat2")?)?),
        "addmm" => {
            let (a, b) = (call.tensor(1, "mat1")?, call.tensor(2, "mat2")?);
            one(x()?.addmm(a, b, call.float(9, "beta", 1.0)?, call.float(9, "alpha", 1.0)?)?)
        }
        "einsum" => einsum(call),
        _ => Err(CaseError::OtherFamily),
    }
}
