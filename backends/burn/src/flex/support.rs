//! Which op takes which dtype, and how it is computed.

use polygrad_core::{DType, Error, Op, OpDesc, Support};

use crate::BurnDevice;

/// Why an op does not take a dtype: no op of Polygrad's is without one that Burn has.
pub(crate) fn refused(op: &'static str, dtype: DType) -> Error {
    Error::dtype(format!("not defined for {dtype}"))
        .with_op(op)
        .with_device(BurnDevice::Cpu)
}

/// An op that Polygrad learned after this backend was written.
pub(crate) fn unknown(op: &'static str) -> Error {
    Error::unsupported("the adapter to Burn does not know this op")
        .with_op(op)
        .with_device(BurnDevice::Cpu)
}

/// See [`Backend::supports`](polygrad_core::Backend::supports).
pub(crate) fn supports(call: &OpDesc<'_>) -> Support {
    let (op, dtype) = (call.op, call.dtype);
    let wide = matches!(dtype, DType::F32 | DType::F64);
    match op {
        _ if !op.accepts(dtype) => Support::No(refused(op.name(), dtype).to_string()),
        // What Burn has a kernel for, or a kernel that maps any function over a tensor, or memory that a loop can go over once.
        Op::BinaryScalar { .. }
        | Op::CompareScalar { .. }
        | Op::Linear
        | Op::Activation(_)
        | Op::ActivationBackward(_)
        | Op::Softmax { .. }
        | Op::ConvInputGrad { .. }
        | Op::ConvWeightGrad { .. }
        | Op::AccumulateGrad => Support::Native,
        Op::MaxPoolBackward { .. } if dtype.is_float() => Support::Native,
        Op::AvgPoolBackward { params, .. } if wide && !params.ceil_mode => Support::Native,
        Op::IndexAdd { .. } | Op::SgdStep(_) | Op::AdamStep(_) if wide => Support::Native,
        _ if op.is_fused() => Support::Decomposed,
        _ => Support::Native,
    }
}
