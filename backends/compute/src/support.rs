//! Who computes what.

use polygrad_core::compute::Kernel;
use polygrad_core::{Op, OpDesc, Support};

use crate::Context;
use crate::elementwise::refused;

/// See [`Backend::supports`](polygrad_core::Backend::supports).
pub(crate) fn supports(context: &Context, call: &OpDesc<'_>) -> Support {
    let (op, dtype) = (call.op, call.dtype);
    if let Err(error) = context.expect(dtype) {
        return Support::No(error.to_string());
    }
    if !op.accepts(dtype) {
        return Support::No(refused(op.name(), dtype).to_string());
    }
    if let Op::Cast(to) = op
        && let Err(error) = context.expect(*to)
    {
        return Support::No(error.to_string());
    }
    let if_there = |kernel| match context.driver.supports(kernel, dtype) {
        true => Support::Native,
        false => Support::Host,
    };
    let if_fused = |kernel| match context.driver.supports(kernel, dtype) {
        true => Support::Native,
        false => Support::Decomposed,
    };
    match op {
        Op::Unary(_)
        | Op::Binary(_)
        | Op::Compare(_)
        | Op::Select
        | Op::Cast(_)
        | Op::Pad { .. }
        | Op::Concat { .. }
        | Op::BinaryScalar { .. }
        | Op::CompareScalar { .. } => if_there(Kernel::Elementwise),
        Op::ArgReduce { .. } => if_there(Kernel::ArgReduce),
        Op::CumSum { .. } => if_there(Kernel::CumSum),
        Op::Sort { .. } => if_there(Kernel::Sort),
        Op::Gather { .. } | Op::IndexSelect { .. } => if_there(Kernel::Gather),
        Op::Scatter { .. } => if_there(Kernel::Scatter),
        Op::ScatterAdd { .. } | Op::IndexAdd { .. } => if_there(Kernel::ScatterAdd),
        Op::MaxPool(_) => if_there(Kernel::MaxPool2d),
        Op::AvgPool(_) => if_there(Kernel::AvgPool2d),
        Op::Softmax { .. } | Op::LogSoftmax { .. } => if_fused(Kernel::Softmax),
        Op::SoftmaxBackward { .. } | Op::LogSoftmaxBackward { .. } => if_fused(Kernel::SoftmaxBackward),
        Op::LayerNorm { .. } => if_fused(Kernel::LayerNorm),
        Op::Attention { .. } => if_fused(Kernel::Attention),
        Op::ConvInputGrad { .. } => if_fused(Kernel::Conv2dInputGrad),
        Op::ConvWeightGrad { .. } => if_fused(Kernel::Conv2dWeightGrad),
        _ if op.is_fused() => Support::Decomposed,
        _ => Support::Native,
    }
}
