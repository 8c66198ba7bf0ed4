//! The supported dtypes, and which op takes which of them.

use polygrad::backend::{DType, Error};

use crate::ToyDevice;

/// The dtypes of tensors. Each further one would be another Rust type in the lists of `typed!`.
pub(crate) const DTYPES: [DType; 4] = [DType::F32, DType::F64, DType::I64, DType::Bool];

/// Runs code with `T` as the Rust type of a dtype if it is in the list; otherwise fails.
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

/// The error for a dtype: the op is not defined for it, or the backend does not have it.
pub(crate) fn refused(op: &'static str, dtype: DType) -> Error {
    let error = if DTYPES.contains(&dtype) {
        Error::dtype(format!("not defined for {dtype}"))
    } else {
        Error::unsupported(format!("it has no {dtype}")).with_hint("it has f32, f64, i64 and bool")
    };
    error.with_op(op).with_device(ToyDevice)
}

/// The error for an op that was added to Polygrad after this backend was written.
pub(crate) fn unknown(op: &'static str) -> Error {
    Error::unsupported("it does not know this op")
        .with_op(op)
        .with_device(ToyDevice)
}
