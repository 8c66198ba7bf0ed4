//! How far from the truth an answer may be: one table for all backends.

use polygrad_tensor::DType;

/// How far a number may be from the truth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bounds {
    /// As a share of the truth.
    pub(crate) relative: f64,
    /// Where the truth is near 0.
    pub(crate) absolute: f64,
}

impl Bounds {
    /// Whether an answer is near enough; infinities and NaN never are.
    pub(crate) fn admit(self, answer: f64, truth: f64) -> bool {
        (answer - truth).abs() <= self.absolute + self.relative * truth.abs()
    }
}

/// The bounds of results in a dtype, by the op's PyTorch name.
///
/// They leave room for some tens of roundings, each of half a unit in the last place (f64 1e-16, f32 6e-8, f16 5e-4, bf16 4e-3), in a
/// different order than the truth's: sums of up to a thousand terms, and gradients that are sums of products. Cancellation makes the error
/// relative to the terms rather than to the result: hence the absolute part, for terms of about 1, as the samples have them.
pub(crate) fn tolerance(dtype: DType, _op: &str) -> Bounds {
    let (relative, absolute) = match dtype {
        DType::F64 => (1e-10, 1e-12),
        DType::F32 => (1e-5, 1e-5),
        DType::F16 => (1e-2, 1e-2),
        DType::BF16 => (5e-2, 5e-2),
        DType::Bool | DType::U8 | DType::I32 | DType::I64 => (0.0, 0.0),
    };
    Bounds { relative, absolute }
}
