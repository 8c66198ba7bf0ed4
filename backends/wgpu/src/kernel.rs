//! All kernels that there are. Each is a value that is told apart from others by what its text depends on, and nothing else.

use polygrad_core::Result;

use crate::source::{Access, Slots};
use crate::{elementwise, gemm};

/// A kernel: what its shader's text is made from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kernel {
    Elementwise(elementwise::Form),
    Gemm(gemm::Form),
}

impl Kernel {
    /// For labels and errors.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Elementwise(_) => "elementwise",
            Self::Gemm(_) => "gemm",
        }
    }

    /// What happens to each operand, in order.
    pub(crate) fn accesses(&self) -> Vec<Access> {
        match self {
            Self::Elementwise(form) => form.accesses(),
            Self::Gemm(form) => form.accesses(),
        }
    }

    /// The shader.
    pub(crate) fn source(&self, slots: &Slots) -> Result<String> {
        Ok(match self {
            Self::Elementwise(form) => form.source(slots)?,
            Self::Gemm(form) => form.source(slots),
        })
    }
}
