//! What can be recorded.

use polygrad_core::{BinaryOp, DType, Error, Op, OpDesc, Result};

use super::elementwise::has_binary;
use crate::export::Opset;

/// See [`Backend::supports`](polygrad_core::Backend::supports).
pub(crate) fn supports(opset: Opset, call: &OpDesc<'_>) -> Result<()> {
    let (op, dtype) = (call.op, call.dtype);
    call.check(&DType::ALL)?;
    match op {
        _ if is_training(op) => Err(training(op.name())),
        Op::Binary(op) | Op::BinaryScalar { op, .. } if !op.is_fused() && !has_binary(*op) => {
            Err(super::elementwise::unknown(op.name()))
        }
        Op::Binary(BinaryOp::And | BinaryOp::Or | BinaryOp::Xor) if dtype != DType::Bool && !opset.has_bitwise() => {
            let version = opset.version();
            Err(Error::unsupported(format!("opset {version} has no op on single bits")).with_op(op.name()))
        }
        _ => Ok(()),
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
