//! What is computed for which dtype, and the errors for the rest.

use polygrad_core::{BinaryOp, DType, Error, Op, OpDesc, Result, Support};

use crate::tensor::ReferenceTensor;
use crate::{elementwise, reduce};

/// How an op computes: on reals or on integers.
pub(crate) enum Rule<R, I> {
    Real(R),
    Int(I),
}

/// An op that makes no sense for a dtype.
pub(crate) fn refused(op: &'static str, dtype: DType) -> Error {
    Error::dtype(format!("not defined for {dtype}"))
        .with_op(op)
        .with_device(crate::ReferenceDevice)
}

/// An op that is newer than this backend.
pub(crate) fn unknown(op: &'static str) -> Error {
    Error::unsupported("not known to this backend")
        .with_op(op)
        .with_device(crate::ReferenceDevice)
}

/// An operand that must have a certain dtype.
pub(crate) fn expect(op: &'static str, x: &ReferenceTensor, dtype: DType) -> Result<()> {
    if x.dtype() == dtype {
        return Ok(());
    }
    Err(Error::dtype(format!("takes {dtype} here, got {}", x.dtype())).with_op(op))
}

/// An op for floats alone.
pub(crate) fn floats(op: &'static str, dtype: DType) -> Result<()> {
    if dtype.is_float() {
        Ok(())
    } else {
        Err(refused(op, dtype))
    }
}

/// An op for all numbers, but not for bool.
pub(crate) fn numbers(op: &'static str, dtype: DType) -> Result<()> {
    if dtype == DType::Bool {
        Err(refused(op, dtype))
    } else {
        Ok(())
    }
}

/// See [`polygrad_core::Backend::supports`].
pub(crate) fn supports(call: &OpDesc<'_>) -> Support {
    let (op, dtype) = (call.op, call.dtype);
    let name = op.name();
    let (accepted, support) = match op {
        Op::Unary(op) => (elementwise::accepts(*op, dtype), Support::Native),
        Op::Binary(op) => (elementwise::binary_rule(*op, dtype).map(drop), Support::Native),
        Op::Compare(op) => (elementwise::holds(*op, 0, 0).map(drop), Support::Native),
        Op::Reduce { op, .. } => (reduce::rule(*op, dtype).map(drop), Support::Native),
        Op::ArgReduce { op, .. } => (reduce::arg_rule(*op).map(drop), Support::Native),
        Op::Select => {
            let condition = if dtype == DType::Bool {
                Ok(())
            } else {
                Err(refused(name, dtype))
            };
            (condition, Support::Native)
        }
        Op::CumSum { .. } | Op::ScatterAdd { .. } | Op::MaxPool(_) => (numbers(name, dtype), Support::Native),
        Op::Matmul | Op::Conv(_) | Op::AvgPool(_) => (floats(name, dtype), Support::Native),
        Op::Cast(_)
        | Op::Reshape(_)
        | Op::Permute(_)
        | Op::Expand(_)
        | Op::Slice(_)
        | Op::Pad { .. }
        | Op::Concat { .. }
        | Op::Gather { .. }
        | Op::Scatter { .. }
        | Op::IndexSelect { .. }
        | Op::Sort { .. } => (Ok(()), Support::Native),

        Op::BinaryScalar { op, .. } => (elementwise::binary_rule(*op, dtype).map(drop), Support::Decomposed),
        Op::CompareScalar { op, .. } => (elementwise::holds(*op, 0, 0).map(drop), Support::Decomposed),
        Op::IndexAdd { .. } | Op::SumTo(_) | Op::MaxPoolBackward { .. } => (numbers(name, dtype), Support::Decomposed),
        Op::AccumulateGrad => (
            elementwise::binary_rule(BinaryOp::Add, dtype).map(drop),
            Support::Decomposed,
        ),
        Op::Embedding { .. } => (Ok(()), Support::Decomposed),
        Op::Linear
        | Op::Activation(_)
        | Op::ActivationBackward(_)
        | Op::Softmax { .. }
        | Op::SoftmaxBackward { .. }
        | Op::LogSoftmax { .. }
        | Op::LogSoftmaxBackward { .. }
        | Op::CrossEntropy(_)
        | Op::CrossEntropyBackward(_)
        | Op::LayerNorm { .. }
        | Op::LayerNormBackward { .. }
        | Op::RmsNorm { .. }
        | Op::RmsNormBackward { .. }
        | Op::BatchNorm { .. }
        | Op::BatchNormBackward { .. }
        | Op::Attention { .. }
        | Op::EmbeddingBackward { .. }
        | Op::LstmCell
        | Op::GruCell
        | Op::ConvInputGrad { .. }
        | Op::ConvWeightGrad { .. }
        | Op::AvgPoolBackward { .. }
        | Op::SgdStep(_)
        | Op::AdamStep(_) => (floats(name, dtype), Support::Decomposed),
        _ => (Err(unknown(name)), Support::Decomposed),
    };
    match accepted {
        Ok(()) => support,
        Err(reason) => Support::No(reason.to_string()),
    }
}
