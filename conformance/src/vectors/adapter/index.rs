//! Gathering, scattering and ordering elements.

use polygrad_core::BinaryOp;
use polygrad_tensor::{Backend, Index, Tensor};

use crate::vectors::call::{Call, CaseError, CaseOutputs, one, pair, unsupported};

fn scatter<B: Backend>(call: &Call<'_, B>) -> CaseOutputs<B> {
    let (x, index) = (call.tensor(0, "input")?, call.tensor(2, "index")?);
    let axis = call.int(1, "dim", 0)?;
    let filled;
    let src = match call.scalar(3, "value") {
        Some(value) => {
            filled = Tensor::full(index.shape(), value, (&x.device(), x.dtype()))?;
            &filled
        }
        None => call.tensor(3, "src")?,
    };
    one(match (call.op(), call.text(4, "reduce")?) {
        ("scatter", None) => x.scatter(axis, index, src)?,
        ("scatter_add", None) | (_, Some("add")) => x.scatter_add(axis, index, src)?,
        (_, Some("multiply")) => x.scatter_mul(axis, index, src)?,
        (_, other) => return unsupported(format!("argument reduce={other:?}")),
    })
}

fn index_add<B: Backend>(call: &Call<'_, B>) -> CaseOutputs<B> {
    let (x, index) = (call.tensor(0, "input")?, call.tensor(2, "index")?);
    let source = call.tensor(3, "source")?;
    let source = match call.scalar(4, "alpha") {
        Some(alpha) => source.binary_scalar(BinaryOp::Mul, alpha, false)?,
        None => source.clone(),
    };
    one(x.index_add(call.int(1, "dim", 0)?, index, &source)?)
}

fn index_put<B: Backend>(call: &Call<'_, B>) -> CaseOutputs<B> {
    let (x, value) = (call.tensor(0, "input")?, call.tensor(2, "values")?);
    let index: Vec<Index<B>> = call.tensors(1, "indices")?.into_iter().map(Index::from).collect();
    one(if call.flag(3, "accumulate", false)? {
        x.index_put_accumulate(index.as_slice(), value)?
    } else {
        x.index_put(index.as_slice(), value)?
    })
}

fn sort<B: Backend>(call: &Call<'_, B>) -> CaseOutputs<B> {
    // Polygrad's sort is always stable, which an unstable sort may also be.
    call.ignore(9, "stable");
    let (axis, descending) = (call.int(1, "dim", -1)?, call.flag(2, "descending", false)?);
    pair(call.tensor(0, "input")?.sort(axis, descending)?)
}

fn topk<B: Backend>(call: &Call<'_, B>) -> CaseOutputs<B> {
    // Polygrad's results are always sorted, which an unsorted result may also be.
    call.ignore(4, "sorted");
    let (k, axis) = (call.size(1, "k", 1)?, call.int(2, "dim", -1)?);
    pair(call.tensor(0, "input")?.topk(k, axis, call.flag(3, "largest", true)?)?)
}

fn repeat_interleave<B: Backend>(call: &Call<'_, B>) -> CaseOutputs<B> {
    call.ignore(3, "output_size");
    let (x, axis) = match call.optional_int(2, "dim")? {
        Some(axis) => (call.tensor(0, "input")?.clone(), axis),
        None => (call.tensor(0, "input")?.flatten(0, -1)?, 0),
    };
    let counts: Vec<usize> = match call.optional_tensor(1, "repeats")? {
        None => vec![call.size(1, "repeats", 1)?],
        Some(counts) => {
            let counts = counts.to_f64_vec()?;
            if counts.iter().any(|&count| count < 0.0 || count.fract() != 0.0) {
                return unsupported(format!("argument repeats is no list of sizes: {counts:?}"));
            }
            counts.into_iter().map(|count| count as usize).collect()
        }
    };
    one(match counts.as_slice() {
        [count] => x.repeat_interleave(*count, axis)?,
        counts => x.repeat_interleave_each(counts, axis)?,
    })
}

/// Without a number of classes, PyTorch uses the largest index plus one.
fn one_hot<B: Backend>(call: &Call<'_, B>) -> CaseOutputs<B> {
    let x = call.tensor(0, "input")?;
    let classes = match call.optional_int(1, "num_classes")? {
        Some(classes) if classes >= 0 => classes as usize,
        _ => x.amax(())?.item()? as usize + 1,
    };
    one(x.one_hot(classes)?)
}

pub(super) fn answer<B: Backend>(call: &Call<'_, B>) -> CaseOutputs<B> {
    let x = || call.tensor(0, "input");
    let axis = || call.int(1, "dim", 0);
    match call.op() {
        "index_select" => one(x()?.index_select(axis()?, call.tensor(2, "index")?)?),
        "gather" => one(x()?.gather(axis()?, call.tensor(2, "index")?)?),
        "scatter" | "scatter_add" => scatter(call),
        "index_add" => index_add(call),
        "index_put" => index_put(call),
        "masked_select" => one(x()?.masked_select(call.tensor(1, "mask")?)?),
        "nonzero" => one(x()?.nonzero()?),
        "sort" => sort(call),
        "topk" => topk(call),
        "repeat_interleave" => repeat_interleave(call),
        "nn.functional.one_hot" => one_hot(call),
        "nn.functional.embedding" => {
            let (mut index, mut weight) = (x()?, call.tensor(1, "weight")?);
            // OpInfo's own order has the weight first.
            if index.dtype().is_float() {
                (index, weight) = (weight, index);
            }
            if call.has(3, "max_norm") {
                return unsupported("argument max_norm: it changes the weight in place, which no op does here");
            }
            if call.flag(5, "scale_grad_by_freq", false)? {
                return unsupported("argument scale_grad_by_freq: gradients are not divided by the index's frequency");
            }
            // The storage of gradients does not affect their values; and without max_norm there is no norm.
            call.ignore(4, "norm_type");
            call.ignore(6, "sparse");
            let padding = call.optional_int(2, "padding_idx")?;
            let rows = weight.dims().first().map_or(0, |&rows| rows as isize);
            let padding = match padding {
                Some(row) if (-rows..rows).contains(&row) => Some(row.rem_euclid(rows) as usize),
                Some(row) => return unsupported(format!("argument padding_idx: {row} is no row of {rows}")),
                None => None,
            };
            one(index.embedding(weight, padding)?)
        }
        _ => Err(CaseError::OtherFamily),
    }
}
