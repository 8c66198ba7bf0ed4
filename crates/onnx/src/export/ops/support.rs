//! What can be recorded.

use polygrad_core::{Activation, BinaryOp, Error, Op, OpDesc, Support};

use super::elementwise::has_binary;
use crate::export::Opset;

/// See [`Backend::supports`](polygrad_core::Backend::supports).
pub(crate) fn supports(opset: Opset, call: &OpDesc<'_>) -> Support {
    let (op, dtype) = (call.op, call.dtype);
    if !op.accepts(dtype) {
        return Support::No(format!("{} is not defined for {dtype}", op.name()));
    }
    match op {
        _ if is_training(op) => Support::No(training(op.name()).to_string()),
        Op::Binary(op) | Op::BinaryScalar { op, .. } if !has_binary(*op) => {
            Support::No(super::elementwise::unknown(op.name()).to_string())
        }
        Op::Binary(BinaryOp::And | BinaryOp::Or | BinaryOp::Xor)
            if dtype != polygrad_core::DType::Bool && !opset.has_bitwise() =>
        {
            Support::No(format!("opset {} has no op on single bits", opset.version()))
        }
        Op::Activation(Activation::Gelu | Activation::GeluTanh) if opset.has_gelu() => Support::Native,
        Op::Activation(
            Activation::Relu
            | Activation::Tanh
            | Activation::Sigmoid
            | Activation::Softplus { .. }
            | Activation::Elu { .. }
            | Activation::LeakyRelu { .. },
        )
        | Op::Linear
        | Op::Softmax { .. }
        | Op::LogSoftmax { .. }
        | Op::LayerNorm { .. }
        | Op::BatchNormRunning { .. }
        | Op::Embedding { .. }
        | Op::ConvInputGrad { .. }
        | Op::Rnn { .. }
        | Op::Lstm { .. }
        | Op::Gru { .. } => Support::Native,
        Op::RmsNorm { .. } | Op::Attention { .. } if opset.has_attention() => Support::Native,
        _ if op.is_fused() => Support::Decomposed,
        _ => Support::Native,
    }
}

/// Whether an op occurs in training alone.
fn is_training(op: &Op) -> bool {
    matches!(
        op,
        Op::ActivationBackward(_)
            | Op::SoftmaxBackward { .. }
            | Op::LogSoftmaxBackward { .. }
            | Op::CrossEntropyBackward(_)
            | Op::CrossEntropyMeanBackward(_)
            | Op::LinearWeightGrad
            | Op::LayerNormBackward { .. }
            | Op::RmsNormBackward { .. }
            | Op::BatchNormBackward { .. }
            | Op::AttentionBackward { .. }
            | Op::EmbeddingBackward { .. }
            | Op::ConvWeightGrad { .. }
            | Op::MaxPoolBackward { .. }
            | Op::AvgPoolBackward { .. }
            | Op::AccumulateGrad
            | Op::SgdStep(_)
            | Op::AdamStep(_)
    )
}

/// An op of training.
pub(crate) fn training(name: &'static str) -> Error {
    Error::unsupported("a training step cannot be recorded: only a model's forward pass can")
        .with_op(name)
        .with_hint("leave backward and the optimizer out of what is exported")
}
