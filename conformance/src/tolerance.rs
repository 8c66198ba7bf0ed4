//! Tolerances: one table for all backends.

use polygrad_core::{Activation, BinaryOp, Op, ReduceOp, UnaryOp, bf16, f16};
use polygrad_tensor::DType;

/// The allowed difference of a number from the truth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bounds {
    /// Relative to the truth.
    pub(crate) relative: f64,
    /// If the truth is near 0, for terms of about 1. It is at most `cap`.
    pub(crate) absolute: f64,
    /// The largest value of `absolute` relative to the largest number of the truth, so that small results cannot pass
    /// trivially.
    pub(crate) cap: f64,
    /// Relative to the largest number of the truth, for results in which larger terms cancel.
    pub(crate) of_largest: f64,
    /// The spacing of the smallest numbers of the dtype: rounding to one of them loses up to half of it.
    pub(crate) smallest: f64,
}

impl Bounds {
    /// No difference allowed.
    pub(crate) const EXACT: Self = Self {
        relative: 0.0,
        absolute: 0.0,
        cap: 0.0,
        of_largest: 0.0,
        smallest: 0.0,
    };

    /// The allowed difference from this number of a truth whose largest is `largest`; zero for infinities.
    pub(crate) fn around(self, truth: f64, largest: f64) -> f64 {
        let near_zero = self.absolute.min(self.cap * largest);
        if !truth.is_finite() {
            return 0.0;
        }
        near_zero + self.of_largest * largest + self.relative * truth.abs() + self.smallest / 2.0
    }

    /// Adds a tenth of the relative bound, relative to the largest number.
    fn with_cancellation(self) -> Self {
        Self {
            of_largest: self.relative / 10.0,
            ..self
        }
    }

    fn times(self, factor: f64) -> Self {
        Self {
            relative: self.relative * factor,
            cap: (self.cap * factor).min(0.1),
            ..self
        }
    }
}

/// The bounds of results in a dtype, by the op's PyTorch name.
///
/// They leave room for some tens of roundings, each of half a unit in the last place (f64 1e-16, f32 6e-8, f16 5e-4,
/// bf16 4e-3), in a different order than the truth's: sums of up to a thousand terms, and gradients that are sums of
/// products. Cancellation makes the error relative to the terms rather than to the result: hence the absolute part, for
/// terms of about 1, as in the samples, or for terms as large as the largest result, whichever is less. Therefore 0 is
/// never accepted in place of a nonzero result.
pub(crate) fn tolerance(dtype: DType, op: &str) -> Bounds {
    let (relative, absolute, smallest) = match dtype {
        DType::F64 => (1e-10, 1e-12, 0.0),
        DType::F32 => (1e-5, 1e-5, f64::from(f32::from_bits(1))),
        DType::F16 => (1e-2, 1e-2, f16::from_bits(1).to_f64()),
        DType::BF16 => (5e-2, 5e-2, bf16::from_bits(1).to_f64()),
        DType::Bool | DType::U8 | DType::I32 | DType::I64 => (0.0, 0.0, 0.0),
    };
    let bounds = Bounds {
        relative,
        absolute,
        cap: relative,
        of_largest: 0.0,
        smallest,
    };
    match op {
        // Sums of up to thousands of products that cancel to a small part of the largest sum. Their rounding depends on
        // the order of the terms, each of which may be as large as the samples' squares, about 80.
        "matmul" | "mm" | "bmm" | "addmm" | "einsum" => bounds.with_cancellation(),
        _ if op.starts_with("nn.functional.conv") || op == "nn.functional.linear" || op == "quantized_linear" => {
            bounds.with_cancellation()
        }
        // An engine may add up to 280 terms one by one; each addition rounds by up to 6e-8 of the sum so far.
        "sum" => bounds.times(2.0),
        // Scores are sums of products of up to some tens, and e^score has the score's absolute error as its relative
        // error.
        "nn.functional.scaled_dot_product_attention" => bounds.with_cancellation().times(10.0),
        // `1 - tanh²`, `1 + erf` and the like cancel for large arguments to a small part of their terms of 1.
        "gelu" | "activation_backward" => Bounds { cap: 0.1, ..bounds },
        // The relative error is y ln x times that of the operands, up to 20 times for the samples; gradients sum such
        // powers.
        "pow" => bounds.times(10.0),
        // PyTorch's slope of 1/6 is an f32.
        "nn.Hardsigmoid" => Bounds {
            relative: relative.max(1e-7),
            ..bounds
        },
        _ => bounds,
    }
}

/// Whether an op only moves, selects or compares numbers, so that its results are exact.
pub(crate) fn is_exact(op: &Op) -> bool {
    match op {
        Op::Unary(op) => matches!(
            op,
            UnaryOp::Neg
                | UnaryOp::Abs
                | UnaryOp::Sign
                | UnaryOp::Floor
                | UnaryOp::Ceil
                | UnaryOp::Round
                | UnaryOp::Trunc
                | UnaryOp::Relu
        ),
        Op::Binary(op) => matches!(op, BinaryOp::Maximum | BinaryOp::Minimum),
        Op::Reduce { op, .. } => matches!(op, ReduceOp::Max | ReduceOp::Min),
        Op::Activation(op) => matches!(op, Activation::Relu),
        _ => matches!(
            op,
            Op::Select
                | Op::Cast(_)
                | Op::Reshape(_)
                | Op::Permute(_)
                | Op::Expand(_)
                | Op::Slice(_)
                | Op::Pad { .. }
                | Op::Concat { .. }
                | Op::Gather { .. }
                | Op::Scatter { .. }
                | Op::IndexSelect { .. }
                | Op::Sort { .. }
                | Op::MaxPool { .. }
                | Op::Prepack(_)
                | Op::MatmulU8
                | Op::ConvU8(_)
                | Op::MatmulRequantizeU8
                | Op::ConvRequantizeU8(_)
                | Op::QuantizeU8
                | Op::DynamicQuantizeU8
                | Op::Embedding { .. }
        ),
    }
}

/// The binary digits of a float dtype.
pub(crate) fn digits(dtype: DType) -> Option<i32> {
    match dtype {
        DType::F64 => Some(53),
        DType::F32 => Some(24),
        DType::F16 => Some(11),
        DType::BF16 => Some(8),
        DType::Bool | DType::U8 | DType::I32 | DType::I64 => None,
    }
}

/// The largest error of an elementary function in units in the last place, over its whole range. PyTorch guarantees
/// none; NumPy requires 1 to 4 of its own kernels.
pub(crate) fn ulp_bound(op: UnaryOp, dtype: DType) -> u64 {
    match (dtype, op) {
        (DType::F64, _) => 2,
        // The argument is reduced by parts of π/2 that are not exact for large arguments.
        (_, UnaryOp::Sin | UnaryOp::Cos | UnaryOp::Tan) => 4,
        _ => 2,
    }
}
