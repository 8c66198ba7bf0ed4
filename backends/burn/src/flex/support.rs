//! Which op takes which dtype, and how it is computed.

use polygrad_core::{DType, Error};

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
