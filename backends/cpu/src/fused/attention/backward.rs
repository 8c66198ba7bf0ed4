//! The gradient of attention: the weights are recomputed block by block, from the last block to the first.

use polygrad_core::{DType, Result, decompose};

use super::task::{Block, Matrices, Output, Task};
use super::weights::ToScores;
use crate::gemm::{self, Dims, Mat, MatMut, Update};
use crate::{Cpu, CpuTensor};

/// See [`polygrad_core::Backend::attention_backward`].
pub(crate) fn attention_backward(
    grad: &CpuTensor,
    q: &CpuTensor,
    k: &CpuTensor,
    v: &CpuTensor,
    mask: Option<&CpuTensor>,
    scale: f64,
    causal: bool,
) -> Result<(CpuTensor, CpuTensor, CpuTensor)> {
    let task = Task::new(q, k, v, mask, scale, causal)?.filter(|task| {
        let rank = q.shape().rank();
        grad.dtype() == DType::F32 && *grad.shape() == q.shape().with_dim(rank - 1, task.out) && task.queries > 0
    });
    let Some(task) = task else {
        return decompose::attention_backward::<Cpu>(grad, q, k, v, mask, scale, causal);
    };
    let Task { device, keys, .. } = task;
    let grads = Matrices::new(grad, &task.batch)?;
    let new = |x: &CpuTensor| Output::new(*x.shape(), device);
    let (mut to_q, mut to_k, mut to_v) = (new(q)?, new(k)?, new(v)?);
    let to = [&mut to_q, &mut to_k, &mut to_v].map(|output| output.matrices(&task.batch));
    task.each(3 * task.width + 2 * task.out, |i| {
        let at = |x: &Matrices| x.at(&task.batch, i);
        let (q, k, v, grad) = (at(&task.q), at(&task.k), at(&task.v), at(&grads));
        let [to_q, to_k, to_v] = [at(&to[0]), at(&to[1]), at(&to[2])];
        let (room, more) = (task.room()?, task.room()?);
        let (weights, scores) = (room.as_ptr().cast::<f32>(), more.as_ptr().cast::<f32>());
        let mut update = Update::set();
        // The last block sees all keys, so its product may overwrite the gradients instead of adding to them.
        for block in task.blocks().rev() {
            let Block {
                first,
                rows,
                keys: seen,
            } = block;
            let of_block = |x: MatMut<f32>| MatMut::new(x.at(first, 0), x.rows, x.cols);
            let (q, grad, to_q) = (of_block(q).readable(), of_block(grad).readable(), of_block(to_q));
            let square = |ptr: *mut f32| Mat::new(ptr.cast_const(), keys.cast_signed(), 1);
            let dims = |m, n, k| Dims { m, n, k };
            // SAFETY: the matrices are parts of the tensors, the buffers have room for a block, and each matrix of the
            // results is written by one task.
            unsafe {
                task.weights(i, block, weights)?;
                let c = MatMut::new(scores, keys.cast_signed(), 1);
                let values = v.readable().transposed();
                gemm::gemm(device, dims(rows, seen, task.out), grad, values, c, Update::set())?;
                task.level.run(ToScores {
                    weights,
                    grad: scores,
                    stride: keys,
                    block,
                    sight: task.sight,
                    scale: task.scale,
                });
                let (weights, scores) = (square(weights), square(scores));
                let dims_q = dims(rows, task.width, seen);
                gemm::gemm(device, dims_q, scores, k.readable(), to_q, Update::set())?;
                gemm::gemm(
                    device,
                    dims(seen, task.width, rows),
                    scores.transposed(),
                    q,
                    to_k,
                    update,
                )?;
                gemm::gemm(
                    device,
                    dims(seen, task.out, rows),
                    weights.transposed(),
                    grad,
                    to_v,
                    update,
                )?;
            }
            update = Update::add();
        }
        Ok(())
    })?;
    Ok((to_q.finish(), to_k.finish(), to_v.finish()))
}
