//! The dtypes that each op supports, and how it is computed.

use polygrad_core::{DType, Error};

use crate::BurnDevice;

/// The error for an op that does not support a dtype: Burn has every dtype for which Polygrad's ops are defined.
pub(crate) fn refused(op: &'static str, dtype: DType) -> Error {
    Error::dtype(format!("not defined for {dtype}"))
        .with_op(op)
        .with_device(BurnDevice::Cpu)
}

/// The error for an op that is newer than this backend.
pub(crate) fn unknown(op: &'static str) -> Error {
    Error::unsupported("the adapter to Burn does not know this op")
        .with_op(op)
        .with_device(BurnDevice::Cpu)
}
