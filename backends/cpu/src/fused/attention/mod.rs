//! Attention, one block of scores at a time: the block stays in the cache for its product, its softmax and the products
//! that follow.

mod backward;
mod task;
mod weights;

use polygrad_core::{Result, decompose};

pub(crate) use backward::attention_backward;
use task::{Output, Task};

use crate::gemm::{self, Dims, Mat, MatMut, Update};
use crate::{Cpu, CpuTensor};

/// See [`polygrad_core::Backend::attention`].
pub(crate) fn attention(
    q: &CpuTensor,
    k: &CpuTensor,
    v: &CpuTensor,
    mask: Option<&CpuTensor>,
    scale: f64,
    causal: bool,
) -> Result<CpuTensor> {
    let Some(task) = Task::new(q, k, v, mask, scale, causal)? else {
        return decompose::attention::<Cpu>(q, k, v, mask, scale, causal);
    };
    let Task { device, keys, out, .. } = task;
    let mut y = Output::new(q.shape().with_dim(q.shape().rank() - 1, out), device)?;
    let to = y.matrices(&task.batch);
    task.each(task.width + out, |i| {
        let (v, y) = (task.v.at(&task.batch, i), to.at(&task.batch, i));
        let room = task.room()?;
        let scores = room.as_ptr().cast::<f32>();
        for block in task.blocks() {
            let dims = Dims {
                m: block.rows,
                n: out,
                k: block.keys,
            };
            let weights = Mat::new(scores.cast_const(), keys.cast_signed(), 1);
            let part = MatMut::new(y.at(block.first, 0), y.rows, y.cols);
            // SAFETY: the matrices are parts of the tensors, the buffer has room for a block, and each block of the
            // output is written by one task.
            unsafe {
                task.weights(i, block, scores)?;
                gemm::gemm(device, dims, weights, v.readable(), part, Update::set())?;
            }
        }
        Ok(())
    })?;
    Ok(y.finish())
}
