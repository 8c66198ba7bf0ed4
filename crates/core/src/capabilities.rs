//! What a backend can do, asked before it is asked to do it.

use crate::DType;

/// How a backend computes an op.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Support {
    /// By a kernel of its own.
    Native,
    /// By other ops.
    Decomposed,
    /// In host memory, where the device has no kernel for it: right, and slow.
    Host,
    /// Not at all, for this reason.
    No(String),
}

/// What a device offers, in the coarse grain; [`Backend::supports`](crate::Backend::supports) is the fine one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Dtypes that tensors can have.
    pub dtypes: Vec<DType>,
    /// Dtypes in which arithmetic is done at full speed, rather than through a wider type.
    pub native_dtypes: Vec<DType>,
    /// Whether ops return before they are done, so that timings need [`Backend::synchronize`](crate::Backend::synchronize).
    pub asynchronous: bool,
    /// Whether the device computes in host memory.
    pub unified_memory: bool,
    /// Whether the same inputs give the same bits on every run.
    pub deterministic: bool,
}

impl Capabilities {
    /// Synchronous, in host memory, deterministic, with these dtypes, all native.
    pub fn host(dtypes: impl Into<Vec<DType>>) -> Self {
        let dtypes = dtypes.into();
        Self {
            native_dtypes: dtypes.clone(),
            dtypes,
            asynchronous: false,
            unified_memory: true,
            deterministic: true,
        }
    }
}
