//! How far from the truth an answer may be: one table for all backends.

use polygrad_core::{Activation, BinaryOp, Op, ReduceOp, UnaryOp};
use polygrad_tensor::DType;

/// How far a number may be from the truth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bounds {
    /// As a share of the truth.
    pub(crate) relative: f64,
    /// Where the truth is near 0.
    pub(crate) absolute: f64,
    /// As a share of the largest number of the truth, for results in which larger terms cancel.
    pub(crate) of_largest: f64,
}

impl Bounds {
    /// No difference at all.
    pub(crate) const EXACT: Self = Self {
        relative: 0.0,
        absolute: 0.0,
        of_largest: 0.0,
    };

    /// The bounds for results of which this is the largest.
    pub(crate) fn for_largest(self, largest: f64) -> Self {
        Self {
            absolute: self.absolute + self.of_largest * largest,
            of_largest: 0.0,
            ..self
        }
    }

    /// A tenth of the relative bound, of the largest number.
    fn with_cancellation(self) -> Self {
        Self {
            of_largest: self.relative / 10.0,
            ..self
        }
    }

    fn times(self, factor: f64) -> Self {
        Self {
            relative: self.relative * factor,
            ..self
        }
    }

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
pub(crate) fn tolerance(dtype: DType, op: &str) -> Bounds {
    let (relative, absolute) = match dtype {
        DType::F64 => (1e-10, 1e-12),
        DType::F32 => (1e-5, 1e-5),
        DType::F16 => (1e-2, 1e-2),
        DType::BF16 => (5e-2, 5e-2),
        DType::Bool | DType::U8 | DType::I32 | DType::I64 => (0.0, 0.0),
    };
    let bounds = Bounds {
        relative,
        absolute,
        of_largest: 0.0,
    };
    match op {
        // Sums of up to thousands of products that cancel to a small part of the largest sum. Their rounding depends on the order of
        // the terms, each of which may be as large as the samples' squares, about 80.
        "matmul" | "mm" | "bmm" | "addmm" | "einsum" => bounds.with_cancellation(),
        _ if op.starts_with("nn.functional.conv") || op == "nn.functional.linear" => bounds.with_cancellation(),
        // Scores are sums of products up to some tens, and e^score has the score's absolute error as its relative one.
        "nn.functional.scaled_dot_product_attention" => bounds.with_cancellation().times(10.0),
        // The relative error is y ln x times that of the operands, for the samples up to 20; in gradients such powers are added up.
        "pow" => bounds.times(10.0),
        _ => bounds,
    }
}

/// Whether an op only moves, picks or compares numbers, so that nothing is rounded and its results are exact.
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
                | Op::MaxPool(_)
                | Op::MaxPoolValues(_)
                | Op::Prepack(_)
                | Op::Embedding { .. }
        ),
    }
}

/// How many units in the last place an elementary function may be off, over its whole range. PyTorch promises none; NumPy asks for 1 to
/// 4 of its own kernels.
pub(crate) fn ulp_bound(op: UnaryOp, dtype: DType) -> u64 {
    match (dtype, op) {
        (DType::F64, _) => 2,
        // Reduced by parts of π/2 that are not exact for large arguments.
        (_, UnaryOp::Sin | UnaryOp::Cos | UnaryOp::Tan) => 4,
        _ => 2,
    }
}
