//! Which dtypes there are and which op takes which of them.

use polygrad::backend::{BinaryOp, DType, Error, Op, OpDesc, Result, Support};

use crate::{ToyDevice, elementwise, reduce};

/// What tensors can hold. Each further one would be a Rust type more in the lists of `typed!`.
pub(crate) const DTYPES: [DType; 4] = [DType::F32, DType::F64, DType::I64, DType::Bool];

/// Runs code with `T` standing for the Rust type of a dtype, if that is among those listed; else the op is refused.
macro_rules! typed {
    ($op:expr, $dtype:expr, [$($type:ident)+], $T:ident => $body:expr) => {{
        let dtype: polygrad::backend::DType = $dtype;
        match dtype {
            $(_ if dtype == <$type as polygrad::backend::Element>::DTYPE => {
                type $T = $type;
                $body
            })+
            _ => Err($crate::support::refused($op, dtype)),
        }
    }};
}
pub(crate) use typed;

/// Why an op does not take a dtype: it is not defined for it, or the backend does not have it.
pub(crate) fn refused(op: &'static str, dtype: DType) -> Error {
    let error = if DTYPES.contains(&dtype) {
        Error::dtype(format!("not defined for {dtype}"))
    } else {
        Error::unsupported(format!("it has no {dtype}")).with_hint("it has f32, f64, i64 and bool")
    };
    error.with_op(op).with_device(ToyDevice)
}

/// An op that Polygrad learned after this backend was written.
pub(crate) fn unknown(op: &'static str) -> Error {
    Error::unsupported("it does not know this op")
        .with_op(op)
        .with_device(ToyDevice)
}

/// See [`Backend::supports`](polygrad::backend::Backend::supports).
pub(crate) fn supports(call: &OpDesc<'_>) -> Support {
    const FLOATS: &[DType] = &[DType::F32, DType::F64];
    const NUMBERS: &[DType] = &[DType::F32, DType::F64, DType::I64];
    let (op, dtype) = (call.op, call.dtype);
    let among = |dtypes: &[DType]| {
        dtypes
            .contains(&dtype)
            .then_some(())
            .ok_or_else(|| refused(op.name(), dtype))
    };
    let native = |accepted: Result<()>| (accepted, Support::Native);
    let decomposed = |accepted: Result<()>| (accepted, Support::Decomposed);
    let (accepted, support) = match op {
        _ if !DTYPES.contains(&dtype) => native(among(&DTYPES)),
        Op::Unary(op) => native(elementwise::unary_defined(*op, dtype)),
        Op::Binary(op) => native(elementwise::binary_defined(*op, dtype)),
        Op::Reduce { op, .. } => native(reduce::defined(*op, dtype)),
        Op::Select => native(among(&[DType::Bool])),
        Op::Cast(to) if !DTYPES.contains(to) => native(Err(refused(op.name(), *to))),
        Op::CumSum { .. } | Op::ScatterAdd { .. } | Op::MaxPool(_) => native(among(NUMBERS)),
        Op::Matmul | Op::Conv(_) | Op::AvgPool(_) => native(among(FLOATS)),
        Op::Compare(_)
        | Op::Cast(_)
        | Op::ArgReduce { .. }
        | Op::Reshape(_)
        | Op::Permute(_)
        | Op::Expand(_)
        | Op::Slice(_)
        | Op::Pad { .. }
        | Op::Concat { .. }
        | Op::Gather { .. }
        | Op::Scatter { .. }
        | Op::IndexSelect { .. }
        | Op::Sort { .. } => native(Ok(())),
        // What is left is fused, and is made of the ops above by Polygrad's decompositions.
        Op::BinaryScalar { op, .. } => decomposed(elementwise::binary_defined(*op, dtype)),
        Op::AccumulateGrad => decomposed(elementwise::binary_defined(BinaryOp::Add, dtype)),
        Op::CompareScalar { .. } | Op::Embedding { .. } => decomposed(Ok(())),
        Op::IndexAdd { .. } | Op::SumTo(_) | Op::MaxPoolBackward { .. } => decomposed(among(NUMBERS)),
        _ => decomposed(among(FLOATS)),
    };
    match accepted {
        Ok(()) => support,
        Err(reason) => Support::No(reason.to_string()),
    }
}
