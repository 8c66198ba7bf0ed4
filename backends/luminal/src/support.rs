//! The supported dtypes, and which op supports which of them.

use polygrad_core::{DType, Error};

use crate::LuminalDevice;

/// The supported dtypes: luminal computes only in f32; positions and booleans are stored by custom nodes.
pub(crate) const DTYPES: [DType; 3] = [DType::F32, DType::I64, DType::Bool];

/// Runs code with `T` as the Rust type of a dtype; other dtypes are an error of the op.
macro_rules! typed {
    ($op:expr, $dtype:expr, $T:ident => $body:expr) => {{
        let dtype: polygrad_core::DType = $dtype;
        match dtype {
            polygrad_core::DType::F32 => {
                type $T = f32;
                $body
            }
            polygrad_core::DType::I64 => {
                type $T = i64;
                $body
            }
            polygrad_core::DType::Bool => {
                type $T = bool;
                $body
            }
            _ => Err($crate::support::refused($op, dtype)),
        }
    }};
}
pub(crate) use typed;

/// The error for a dtype: the op is not defined for it, or luminal does not have it.
pub(crate) fn refused(op: &'static str, dtype: DType) -> Error {
    let error = if DTYPES.contains(&dtype) {
        Error::dtype(format!("not defined for {dtype}"))
    } else {
        Error::unsupported(format!("luminal has no {dtype}")).with_hint(
            "it has f32, i64 and bool: convert with to_dtype(DType::F32) before moving there, or use backend cpu",
        )
    };
    error.with_op(op).with_device(LuminalDevice)
}

/// The error for an op that is newer than this backend.
pub(crate) fn unknown(op: &'static str) -> Error {
    Error::unsupported("the adapter to luminal does not know this op")
        .with_op(op)
        .with_device(LuminalDevice)
        .with_hint("use backend cpu for it")
}
