//! How far from the truth an answer may be: one table for all backends.

use polygrad_tensor::DType;

/// Relative and absolute tolerance of results in a dtype. They differ from the truth by the rounding of the inputs too, whose effect
/// grows with the op's condition number.
pub(crate) fn tolerance(dtype: DType, op: &str) -> (f64, f64) {
    match (dtype, op) {
        (DType::F64, _) => (1e-10, 1e-12),
        // Near a pole, an input rounded by e is worth e (1 + tan²) / tan; the samples come within 0.003 of one.
        (DType::F32, "tan") => (1e-3, 1e-5),
        (DType::F32, _) => (1e-5, 1e-5),
        (other, _) => panic!("there is no tolerance for {other}"),
    }
}
