//! What is computed for which dtype.

use polygrad_core::{BinaryOp, DType, Op, OpDesc, Support};

use crate::ops::{binary, compare, floats, numbers, reduce, refused, unary, unknown};

/// See [`polygrad_core::Backend::supports`].
pub(crate) fn supports(call: &OpDesc<'_>) -> Support {
    let (op, dtype) = (call.op, call.dtype);
    let name = op.name();
    let accepted = match op {
        Op::Unary(op) => unary::accepts(*op, dtype),
        Op::Binary(op) | Op::BinaryScalar { op, .. } => binary::accepts(*op, dtype),
        Op::AccumulateGrad => binary::accepts(BinaryOp::Add, dtype),
        Op::Compare(op) | Op::CompareScalar { op, .. } => compare::accepts(*op),
        Op::Reduce { op, .. } => reduce::accepts(*op, dtype),
        Op::Select if dtype != DType::Bool => Err(refused(name, dtype)),
        Op::CumSum { .. }
        | Op::ScatterAdd { .. }
        | Op::IndexAdd { .. }
        | Op::SumTo(_)
        | Op::MaxPool(_)
        | Op::MaxPoolValues(_)
        | Op::MaxPoolBackward { .. } => numbers(name, dtype),
        Op::Select
        | Op::ArgReduce { .. }
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
        | Op::Embedding { .. } => Ok(()),
        Op::Matmul
        | Op::Conv(_)
        | Op::AvgPool(_)
        | Op::Linear
        | Op::LinearWeightGrad
        | Op::LinearActivation(_)
        | Op::ConvActivation { .. }
        | Op::Prepack(_)
        | Op::Activation(_)
        | Op::ActivationBackward(_)
        | Op::Softmax { .. }
        | Op::SoftmaxBackward { .. }
        | Op::LogSoftmax { .. }
        | Op::LogSoftmaxBackward { .. }
        | Op::CrossEntropy(_)
        | Op::CrossEntropyBackward(_)
        | Op::CrossEntropyMean(_)
        | Op::CrossEntropyMeanBackward(_)
        | Op::LayerNorm { .. }
        | Op::LayerNormBackward { .. }
        | Op::RmsNorm { .. }
        | Op::RmsNormBackward { .. }
        | Op::BatchNorm { .. }
        | Op::BatchNormBackward { .. }
        | Op::BatchNormRunning { .. }
        | Op::Attention { .. }
        | Op::AttentionBackward { .. }
        | Op::EmbeddingBackward { .. }
        | Op::LstmCell
        | Op::LstmSteps { .. }
        | Op::LstmStepsBackward { .. }
        | Op::GruCell
        | Op::Rnn { .. }
        | Op::Lstm { .. }
        | Op::Gru { .. }
        | Op::ConvInputGrad { .. }
        | Op::ConvWeightGrad { .. }
        | Op::AvgPoolBackward { .. }
        | Op::SgdStep(_)
        | Op::AdamStep(_) => floats(name, dtype),
        _ => Err(unknown(name)),
    };
    match accepted {
        Err(reason) => Support::No(reason.to_string()),
        Ok(()) if is_decomposed(op, dtype) => Support::Decomposed,
        Ok(()) => Support::Native,
    }
}

/// Whether an op is left to its decomposition in core.
fn is_decomposed(op: &Op, dtype: DType) -> bool {
    let single = matches!(
        op,
        Op::Lstm { .. }
            | Op::LstmSteps { .. }
            | Op::LstmStepsBackward { .. }
            | Op::Attention { .. }
            | Op::AttentionBackward { .. }
    );
    single && dtype != DType::F32
        || matches!(
            op,
            Op::BatchNormRunning { .. } | Op::LstmCell | Op::GruCell | Op::Rnn { .. } | Op::Gru { .. }
        )
}
