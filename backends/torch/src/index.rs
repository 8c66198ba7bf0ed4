//! Indexing ops. Positions are checked before LibTorch gets them, since on a GPU it could only end the process.

use polygrad_core::{DType, Error, Result, decompose};
use tch::Tensor;

use crate::Torch;
use crate::error::{Named, refused};
use crate::tensor::{TorchTensor, kind, positions};

/// Fails if a position is outside `0..dim`.
pub(crate) fn check(op: &'static str, index: &TorchTensor, axis: usize, dim: usize) -> Result<()> {
    if index.shape().numel() == 0 {
        return Ok(());
    }
    let (low, high) = match positions(index) {
        Some(values) => values
            .iter()
            .fold((i64::MAX, i64::MIN), |(low, high), &i| (low.min(i), high.max(i))),
        None => {
            let (low, high) = index.raw().f_aminmax(None, false).named(op)?;
            (low.f_int64_value(&[]).named(op)?, high.f_int64_value(&[]).named(op)?)
        }
    };
    let wrong = if low < 0 { low } else { high };
    if wrong < 0 || wrong as u64 >= dim as u64 {
        return Err(Error::out_of_range(format!("index {wrong} is outside 0..{dim} of axis {axis}")).with_op(op));
    }
    Ok(())
}

pub(crate) fn gather(x: &TorchTensor, axis: usize, index: &TorchTensor) -> Result<TorchTensor> {
    check("gather", index, axis, x.shape()[axis])?;
    x.wrap("gather", x.raw().f_gather(axis as i64, index.raw(), false))
}

pub(crate) fn scatter(x: &TorchTensor, axis: usize, index: &TorchTensor, src: &TorchTensor) -> Result<TorchTensor> {
    check("scatter", index, axis, x.shape()[axis])?;
    x.wrap("scatter", x.raw().f_scatter(axis as i64, index.raw(), src.raw()))
}

/// The dtype for sums: LibTorch sums in the tensor's own dtype, and f16 and bf16 lose the sum of many small terms.
fn wide(x: &TorchTensor) -> Option<DType> {
    matches!(x.dtype(), DType::F16 | DType::BF16).then_some(DType::F32)
}

pub(crate) fn scatter_add(x: &TorchTensor, axis: usize, index: &TorchTensor, src: &TorchTensor) -> Result<TorchTensor> {
    let op = "scatter_add";
    if x.dtype() == DType::Bool {
        return Err(refused(op, x.dtype()));
    }
    check(op, index, axis, x.shape()[axis])?;
    adding(op, x, src, |x, src| x.f_scatter_add(axis as i64, index.raw(), src))
}

pub(crate) fn index_add(x: &TorchTensor, axis: usize, index: &TorchTensor, src: &TorchTensor) -> Result<TorchTensor> {
    let op = "index_add";
    if x.dtype() == DType::Bool {
        return Err(refused(op, x.dtype()));
    }
    check(op, index, axis, x.shape()[axis])?;
    adding(op, x, src, |x, src| x.f_index_add(axis as i64, index.raw(), src))
}

fn adding(
    op: &'static str,
    x: &TorchTensor,
    src: &TorchTensor,
    add: impl Fn(&Tensor, &Tensor) -> std::result::Result<Tensor, tch::TchError>,
) -> Result<TorchTensor> {
    let Some(dtype) = wide(x) else {
        return x.wrap(op, add(x.raw(), src.raw()));
    };
    let widen = |x: &TorchTensor| x.raw().f_to_dtype(kind(dtype), false, false).named(op);
    let sum = add(&widen(x)?, &widen(src)?).named(op)?;
    x.wrap(op, sum.f_to_dtype(kind(x.dtype()), false, false))
}

pub(crate) fn index_select(x: &TorchTensor, axis: usize, index: &TorchTensor) -> Result<TorchTensor> {
    check("index_select", index, axis, x.shape()[axis])?;
    x.wrap("index_select", x.raw().f_index_select(axis as i64, index.raw()))
}

pub(crate) fn embedding(weight: &TorchTensor, index: &TorchTensor) -> Result<TorchTensor> {
    check("embedding", index, 0, weight.shape()[0])?;
    weight.wrap(
        "embedding",
        Tensor::f_embedding(weight.raw(), index.raw(), -1, false, false),
    )
}

pub(crate) fn embedding_backward(
    grad: &TorchTensor,
    index: &TorchTensor,
    rows: usize,
    padding_idx: Option<usize>,
) -> Result<TorchTensor> {
    if wide(grad).is_some() {
        return decompose::embedding_backward::<Torch>(grad, index, rows, padding_idx);
    }
    let op = "embedding_backward";
    check(op, index, 0, rows)?;
    let padding = padding_idx.map_or(-1, |row| row as i64);
    let out = Tensor::f_embedding_dense_backward(grad.raw(), index.raw(), rows as i64, padding, false);
    grad.wrap(op, out)
}
