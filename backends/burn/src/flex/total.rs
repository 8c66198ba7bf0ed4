//! Running sums of f64, which has no wider type to add in.

use polygrad_core::Result;

use crate::flex::support::refused;
use crate::flex::tensor::BurnTensor;

/// A running sum that also accumulates the rounding error of each addition.
///
/// Source: Knuth, "The Art of Computer Programming", volume 2, 4.2.2, theorem B (the rounding error of a sum).
pub(crate) fn cumsum(x: &BurnTensor, axis: usize) -> Result<BurnTensor> {
    let shape = x.shape();
    let Some(values) = x.values::<f64>() else {
        return Err(refused("cumsum", x.dtype()));
    };
    let (dim, inner) = (shape[axis], shape[axis + 1..].iter().product::<usize>());
    let mut out = values.to_vec();
    for block in out.chunks_mut(dim * inner) {
        for column in 0..inner {
            let (mut sum, mut lost) = (0.0f64, 0.0f64);
            for value in block[column..].iter_mut().step_by(inner) {
                let (before, term) = (sum, *value);
                sum = before + term;
                let added = sum - before;
                lost += (before - (sum - added)) + (term - added);
                // An infinite sum has no finite rounding error.
                *value = if sum.is_finite() { sum + lost } else { sum };
            }
        }
    }
    Ok(BurnTensor::from_values(shape, out))
}
