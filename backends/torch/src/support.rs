//! What is computed for which dtype.

use polygrad_core::{DType, Op, OpDesc, Support};

use crate::error::refused;
use crate::fused::has_activation;
use crate::window::is_wide;

/// See [`polygrad_core::Backend::supports`].
pub(crate) fn supports(call: &OpDesc<'_>) -> Support {
    let (op, dtype) = (call.op, call.dtype);
    if !op.accepts(dtype) {
        return Support::No(refused(op.name(), dtype).to_string());
    }
    let native = match op {
        Op::SumTo(_)
        | Op::RmsNorm { .. }
        | Op::RmsNormBackward { .. }
        | Op::BatchNormRunning { .. }
        | Op::LinearWeightGrad
        | Op::CrossEntropyMean(_)
        | Op::CrossEntropyMeanBackward(_)
        | Op::AttentionBackward { .. }
        | Op::LstmCell
        | Op::LstmSteps { .. }
        | Op::LstmStepsBackward { .. }
        | Op::GruCell
        | Op::Rnn { .. }
        | Op::Lstm { .. }
        | Op::Gru { .. } => false,
        Op::Activation(function) | Op::ActivationBackward(function) => has_activation(*function),
        Op::BinaryScalar { .. }
        | Op::CompareScalar { .. }
        | Op::Linear
        | Op::CrossEntropy(_)
        | Op::CrossEntropyBackward(_)
        | Op::LayerNorm { .. }
        | Op::LayerNormBackward { .. }
        | Op::BatchNorm { .. }
        | Op::BatchNormBackward { .. }
        | Op::Attention { .. }
        | Op::EmbeddingBackward { .. }
        | Op::ConvInputGrad { .. }
        | Op::ConvWeightGrad { .. }
        | Op::MaxPoolBackward { .. }
        | Op::AvgPoolBackward { .. }
        | Op::SgdStep(_)
        | Op::AdamStep(_) => is_wide(dtype),
        Op::AccumulateGrad => dtype != DType::Bool,
        _ => true,
    };
    if native { Support::Native } else { Support::Decomposed }
}
