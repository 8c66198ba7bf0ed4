//! Matrix products.

use std::ops::{Add, Mul};

use polygrad::backend::{Axes, Element, Error, Layout, Result, Shape, room};

use crate::movement::permute;
use crate::support::typed;
use crate::tensor::ToyTensor;

/// Number of rows of the right matrix that are used before the next row of the left one: few enough to stay in the
/// cache.
const BLOCK: usize = 64;

pub(crate) fn matmul(a: &ToyTensor, b: &ToyTensor) -> Result<ToyTensor> {
    let (&[ref a_batch @ .., m, k], &[ref b_batch @ .., _, n]) = (a.shape().dims(), b.shape().dims()) else {
        return Err(Error::shape("both must have rank 2 or more").with_op("matmul"));
    };
    // The inner loop runs over columns: if there are few, the transposed product is faster.
    if n < m {
        return transposed(&matmul(&transposed(b)?, &transposed(a)?)?);
    }
    let (a_batch, b_batch) = (Shape::new(a_batch)?, Shape::new(b_batch)?);
    let batch = a_batch.broadcast(&b_batch)?;
    let shape = Shape::new(&[batch.dims(), &[m, n]].concat())?;
    typed!("matmul", a.dtype(), [f32 f64], T => {
        let (a, b) = (a.values::<T>()?, b.values::<T>()?);
        let mut out = room::<T>(shape.numel())?;
        out.resize(shape.numel(), 0.0);
        if shape.numel() > 0 && k > 0 {
            let pairs = starts(a_batch, batch, m * k).into_iter().zip(starts(b_batch, batch, k * n));
            for ((a_start, b_start), out) in pairs.zip(out.chunks_exact_mut(m * n)) {
                product(&a[a_start..a_start + m * k], &b[b_start..b_start + k * n], k, n, out);
            }
        }
        Ok(ToyTensor::new(shape, out))
    })
}

fn transposed(x: &ToyTensor) -> Result<ToyTensor> {
    let rank = x.shape().rank();
    Ok(permute(x, Axes::new((0..rank - 2).chain([rank - 1, rank - 2]))?))
}

/// Where each matrix of a batch begins, for matrices of `size` values whose leading axes broadcast to those of the
/// batch.
fn starts(own: Shape, batch: Shape, size: usize) -> Vec<usize> {
    let mut starts = Vec::new();
    Layout::contiguous(own).expand(batch).rows(|start, count, step| {
        starts.extend((0..count).map(|i| (start + i * step as usize) * size));
    });
    starts
}

/// Adds `a [m, k] × b [k, n]` to `out [m, n]`, none of which is empty. The inner loops run along rows, which the
/// compiler vectorizes. Each block is summed separately, so that rounding errors grow with the number of blocks rather
/// than of terms.
fn product<T>(a: &[T], b: &[T], k: usize, n: usize, out: &mut [T])
where
    T: Element + Default + Add<Output = T> + Mul<Output = T>,
{
    let mut sums = vec![T::default(); n];
    for start in (0..k).step_by(BLOCK) {
        let end = (start + BLOCK).min(k);
        for (a, out) in a.chunks_exact(k).zip(out.chunks_exact_mut(n)) {
            sums.fill(T::default());
            // Four rows at once need a quarter of the loads and stores of `sums`.
            for (a, b) in a[start..end].chunks(4).zip(b[start * n..end * n].chunks(4 * n)) {
                if let &[a0, a1, a2, a3] = a {
                    let (b0, rest) = b.split_at(n);
                    let (b1, rest) = rest.split_at(n);
                    let (b2, b3) = rest.split_at(n);
                    let rows = b0.iter().zip(b1).zip(b2.iter().zip(b3));
                    for (sum, ((&b0, &b1), (&b2, &b3))) in sums.iter_mut().zip(rows) {
                        *sum = *sum + ((a0 * b0 + a1 * b1) + (a2 * b2 + a3 * b3));
                    }
                } else {
                    for (&a, b) in a.iter().zip(b.chunks_exact(n)) {
                        sums.iter_mut().zip(b).for_each(|(sum, &b)| *sum = *sum + a * b);
                    }
                }
            }
            out.iter_mut().zip(&sums).for_each(|(out, &sum)| *out = *out + sum);
        }
    }
}
