//! Whether an answer is the right one.

use polygrad_tensor::{DType, HostTensor};

use crate::tolerance::Bounds;

/// What an answer is compared with.
pub(crate) struct Comparison<'a> {
    /// The values, in f64 for floats.
    pub(crate) truth: &'a HostTensor,
    /// The dtype that the answer must have.
    pub(crate) dtype: DType,
    pub(crate) bounds: Bounds,
}

/// Where an answer first differs in shape, dtype or a value. Floats may differ by the bounds; everything else is exact. A truth beyond
/// the dtype's range asks for the infinity that it rounds to.
pub(crate) fn compare(answer: &HostTensor, with: &Comparison<'_>) -> Result<(), String> {
    let Comparison { truth, dtype, bounds } = with;
    if answer.shape() != truth.shape() || answer.dtype() != *dtype {
        return Err(format!(
            "{}{} where {dtype}{} is right",
            answer.dtype(),
            answer.shape(),
            truth.shape()
        ));
    }
    let exact = !dtype.is_float();
    let finite = truth.to_f64_vec().into_iter().filter(|t| t.is_finite());
    let bounds = bounds.for_largest(finite.map(f64::abs).fold(0.0, f64::max));
    let values = answer.to_f64_vec().into_iter().zip(truth.to_f64_vec());
    let in_dtype = truth.cast(*dtype).to_f64_vec();
    for (i, ((a, t), rounded)) in values.zip(in_dtype).enumerate() {
        let same = a == t || a == rounded || (a.is_nan() && t.is_nan());
        if !same && (exact || !bounds.admit(a, t)) {
            return Err(format!("element {i} is {a:e}, {t:e} is right"));
        }
    }
    Ok(())
}
