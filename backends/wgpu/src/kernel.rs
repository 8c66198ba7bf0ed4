//! All kernels that there are. Each is a value that is told apart from others by what its text depends on, and nothing else.

use polygrad_core::Result;

use crate::elementwise;
use crate::source::{Access, Slots};

/// A kernel: what its shader's text is made from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kernel {
    Elementwise(elementwise::Form),
}

impl Kernel {
    /// For labels and errors.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Elementwise(_) => "elementwise",
        }
    }

    /// What happens to each operand, in order.
    pub(crate) fn accesses(&self) -> Vec<Access> {
        match self {
            Self::Elementwise(form) => form.accesses(),
        }
    }

    /// The shader.
    pub(crate) fn source(&self, slots: &Slots) -> Result<String> {
        Ok(match self {
            Self::Elementwise(form) => return form.source(slots),
        })
    }
}
