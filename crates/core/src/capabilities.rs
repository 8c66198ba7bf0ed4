//! What a backend can do, queried before use.

use crate::DType;

/// What a device offers in general; [`Backend::supports`](crate::Backend::supports) answers for a single op.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Dtypes that tensors can have.
    pub dtypes: Vec<DType>,
    /// Whether ops return before they are done, so that timings need
    /// [`Backend::synchronize`](crate::Backend::synchronize).
    pub asynchronous: bool,
    /// Whether the device computes in host memory.
    pub unified_memory: bool,
    /// Whether the device can record a computation and launch it as a whole: [`Backend::graph`](crate::Backend::graph).
    pub graphs: bool,
    /// Whether products of rounded rows are faster with [interleaved](crate::BlockScheme) weights in blocks.
    pub interleaves_blocks: bool,
}

impl Capabilities {
    /// Synchronous, in host memory, with these dtypes.
    pub fn host(dtypes: impl Into<Vec<DType>>) -> Self {
        Self {
            dtypes: dtypes.into(),
            asynchronous: false,
            unified_memory: true,
            graphs: false,
            interleaves_blocks: false,
        }
    }
}
