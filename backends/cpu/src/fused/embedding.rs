//! The gradient of an embedding table.

use polygrad_core::{DType, Error, Result, Shape, decompose};

use crate::Pointer;
use crate::ops::floats;
use crate::{Cpu, CpuTensor};

/// Columns of the table that one task adds up.
const STRIP: usize = 64;

/// See [`polygrad_core::Backend::embedding_backward`].
pub(crate) fn embedding_backward(
    grad: &CpuTensor,
    index: &CpuTensor,
    num_embeddings: usize,
    padding_idx: Option<usize>,
) -> Result<CpuTensor> {
    let op = "embedding_backward";
    floats(op, grad.dtype())?;
    let rank = grad.shape().rank();
    if rank == 0 || grad.shape()[..rank - 1] != *index.shape().dims() || index.dtype() != DType::I64 {
        return Err(Error::shape("takes a gradient […, dim] for an i64 index […]")
            .with_op(op)
            .with_operands([grad, index].map(|x| (*x.shape(), x.dtype()))));
    }
    if grad.dtype() != DType::F32 || padding_idx.is_some_and(|row| row >= num_embeddings) {
        return decompose::embedding_backward::<Cpu>(grad, index, num_embeddings, padding_idx);
    }
    let dim = grad.shape()[rank - 1];
    let (grad, index) = (grad.contiguous()?, index.contiguous()?);
    let rows = index.slice::<i64>()?;
    if let Some(row) = rows
        .iter()
        .find(|&&row| usize::try_from(row).map_or(true, |row| row >= num_embeddings))
    {
        return Err(Error::out_of_range(format!("index {row} is outside 0..{num_embeddings}")).with_op(op));
    }
    let mut out = CpuTensor::empty(Shape::new(&[num_embeddings, dim])?, DType::F32, grad.device())?;
    let to = Pointer(out.ptr_mut().cast::<f32>());
    let from = grad.slice::<f32>()?;
    // Each task has columns of its own, so that rows are added up in order for any number of threads.
    let ns = (rows.len() * STRIP) as f32 * 0.3 + (num_embeddings * STRIP) as f32 * 0.05;
    grad.device().each(dim.div_ceil(STRIP), ns, |strip| {
        let start = strip * STRIP;
        let n = STRIP.min(dim - start);
        // SAFETY: a row of the output, or of these columns of it; all bits zero are the number 0.
        let place = |row: usize| unsafe { std::slice::from_raw_parts_mut(to.at(row * dim + start), n) };
        (0..num_embeddings).for_each(|row| place(row).fill(0.0));
        for (i, &row) in rows.iter().enumerate() {
            if padding_idx == Some(row as usize) {
                continue;
            }
            let grad = &from[i * dim + start..][..n];
            for (sum, x) in place(row as usize).iter_mut().zip(grad) {
                *sum += x;
            }
        }
    });
    Ok(out)
}
