//! The supported combinations of op, dtype and device.

use polygrad_core::{DType, Error, Op, OpDesc, ReduceOp, Result};

use crate::tensor::only_cpu;
use crate::{CandleDevice, binary, unary};

/// The error for an op that is not supported.
pub(crate) fn refused(op: &'static str, reason: String) -> Error {
    Error::unsupported(reason).with_op(op)
}

/// The error for an op that is not defined for a dtype.
pub(crate) fn refused_dtype(op: &'static str, dtype: DType) -> Error {
    Error::dtype(format!("not defined for {dtype}")).with_op(op)
}

/// The error for an op that is newer than this crate.
pub(crate) fn unknown(op: &'static str) -> Error {
    refused(op, "polygrad-candle does not know this op".to_owned()).with_hint("use a version of it as new as Polygrad")
}

/// See [`polygrad_core::Backend::supports`].
pub(crate) fn supports(device: &CandleDevice, call: &OpDesc<'_>) -> Result<()> {
    let (op, dtype) = (call.op, call.dtype);
    if !op.accepts(dtype) {
        return Err(refused_dtype(op.name(), dtype));
    }
    if !device.is_cpu() && !is_everywhere(op, dtype) {
        return Err(only_cpu(op.name(), device));
    }
    Ok(())
}

/// Whether an op is computed on GPUs too.
fn is_everywhere(op: &Op, dtype: DType) -> bool {
    match op {
        Op::Unary(op) => unary::is_everywhere(*op, dtype),
        Op::Binary(op) | Op::BinaryScalar { op, .. } => binary::is_everywhere(*op, dtype),
        Op::Reduce { op, .. } => !matches!(op, ReduceOp::Prod),
        Op::ArgReduce { .. }
        | Op::CumSum { .. }
        | Op::Sort { .. }
        | Op::MaxPool { .. }
        | Op::AvgPool(_)
        | Op::AvgPoolBackward { .. }
        | Op::Conv { .. }
        | Op::ConvInputGrad { .. }
        | Op::ConvWeightGrad { .. }
        | Op::MaxPoolBackward { .. } => false,
        _ => true,
    }
}
