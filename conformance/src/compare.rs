//! Comparison of answers with the truth.

use polygrad_tensor::{DType, HostTensor};

use crate::tolerance::Bounds;

/// The truth and the tolerance for an answer.
pub(crate) struct Comparison<'a> {
    /// The values, in f64 for floats.
    pub(crate) truth: &'a HostTensor,
    /// The dtype that the answer must have.
    pub(crate) dtype: DType,
    pub(crate) bounds: Bounds,
}

/// The first difference of an answer in shape, dtype or a value. Floats may differ by the bounds; everything else must
/// be exact. If the truth exceeds the dtype's range, the answer must be the infinity that it rounds to.
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
    let largest = largest(truth);
    let values = answer.to_f64_vec().into_iter().zip(truth.to_f64_vec());
    let in_dtype = truth.cast(*dtype).to_f64_vec();
    for (i, ((a, t), rounded)) in values.zip(in_dtype).enumerate() {
        let same = a == t || a == rounded || (a.is_nan() && t.is_nan());
        // Infinities and NaN are near nothing.
        let near = (a - t).abs() <= bounds.around(t, largest);
        if !same && (exact || !near) {
            return Err(format!("element {i} is {a:e}, {t:e} is right"));
        }
    }
    Ok(())
}

/// The largest magnitude among a tensor's finite values; 0 if there are none.
pub(crate) fn largest(host: &HostTensor) -> f64 {
    let finite = host.to_f64_vec().into_iter().filter(|x| x.is_finite());
    finite.map(f64::abs).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use polygrad_core::Shape;

    use super::*;
    use crate::tolerance::tolerance;

    fn passes(answer: &[f64], truth: &[f64], dtype: DType, op: &str) -> bool {
        let host = |values: &[f64]| HostTensor::new(Shape::from([values.len()]), values.to_vec()).unwrap();
        let with = Comparison {
            truth: &host(truth),
            dtype,
            bounds: tolerance(dtype, op),
        };
        compare(&host(answer).cast(dtype), &with).is_ok()
    }

    #[test]
    fn zeros_are_never_right_for_numbers_however_small() {
        for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
            for op in ["add", "matmul", "pow", "nn.functional.scaled_dot_product_attention"] {
                for size in [1e9, 1.0, 1e-2, 1e-3, 1e-7, 1e-12, 1e-30] {
                    let truth = [size, -size / 3.0, 0.0];
                    let zero = truth
                        .iter()
                        .all(|&x| HostTensor::scalar(x).cast(dtype).to_f64_vec() == [0.0]);
                    assert_eq!(passes(&[0.0; 3], &truth, dtype, op), zero, "{op} {dtype} {size:e}");
                    assert!(passes(&truth, &truth, dtype, op), "{op} {dtype} {size:e}");
                }
            }
        }
    }

    #[test]
    fn only_an_infinity_is_an_infinity() {
        let inf = f64::INFINITY;
        for truth in [inf, -inf, f64::NAN] {
            assert!(passes(&[truth], &[truth], DType::F32, "add"));
            assert!(!passes(&[0.0], &[truth], DType::F32, "add"));
            assert!(!passes(&[3e38], &[truth], DType::F32, "add"));
        }
        assert!(!passes(&[-inf], &[inf], DType::F32, "add"));
        assert!(passes(&[inf], &[1e39], DType::F32, "add"), "beyond the range");
    }
}
