//! Checks of whether an op can be recorded.

use polygrad_core::{BinaryOp, DType, Error, Op, OpDesc, Result};

use super::elementwise::has_binary;
use crate::export::Opset;

/// See [`Backend::supports`](polygrad_core::Backend::supports).
pub(crate) fn supports(opset: Opset, call: &OpDesc<'_>) -> Result<()> {
    let (op, dtype) = (call.op, call.dtype);
    call.check(&DType::ALL)?;
    match op {
        _ if op.is_training() => Err(training(op.name())),
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

/// An op of training.
pub(crate) fn training(name: &'static str) -> Error {
    Error::unsupported("a training step cannot be recorded: only a model's forward pass can")
        .with_op(name)
        .with_hint("leave backward and the optimizer out of what is exported")
}
