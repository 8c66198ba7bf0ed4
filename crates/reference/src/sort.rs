//! Sorting.

use polygrad_core::{DType, Result};

use crate::positions::lines;
use crate::tensor::ReferenceTensor;

/// Sorted values along an axis, and the original position of each. Stable in both directions; NaN is the largest.
pub(crate) fn sort(x: &ReferenceTensor, axis: usize, descending: bool) -> Result<(ReferenceTensor, ReferenceTensor)> {
    let shape = *x.shape();
    let mut indices = vec![0; shape.numel()];
    let mut sources = vec![0; shape.numel()];
    for line in lines(&shape, axis) {
        let mut order: Vec<(usize, usize)> = line.positions().enumerate().collect();
        order.sort_by(|&(_, a), &(_, b)| {
            let (first, second) = if descending { (b, a) } else { (a, b) };
            x.values().compare(first, second)
        });
        for (to, (index, from)) in line.positions().zip(order) {
            indices[to] = index as i64;
            sources[to] = from;
        }
    }
    let sorted = x.pick(shape, |at| Ok(sources[crate::positions::position(at, &shape)]))?;
    Ok((sorted, ReferenceTensor::int(shape, DType::I64, indices)))
}
