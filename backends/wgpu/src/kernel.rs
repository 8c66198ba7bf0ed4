//! All kernels that there are. Each is a value that is told apart from others by what its text depends on, and nothing else.

use polygrad_core::Result;

use crate::source::{Access, Slots};
use crate::{conv, elementwise, flash, gemm, index, loss, pool, random, reduce, rows, scan, sort};

/// A kernel: what its shader's text is made from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kernel {
    Elementwise(elementwise::Form),
    Gemm(gemm::Form),
    Reduce(reduce::Form),
    Rows(rows::Form),
    Loss(loss::Form),
    Scan(scan::Form),
    Index(index::Form),
    Pool(pool::Form),
    Conv(conv::Form),
    Sort(sort::Form),
    Random(random::Form),
    Flash(flash::Form),
}

impl Kernel {
    /// For labels and errors.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Elementwise(_) => "elementwise",
            Self::Gemm(_) => "gemm",
            Self::Reduce(_) => "reduce",
            Self::Rows(_) => "rows",
            Self::Loss(_) => "cross_entropy",
            Self::Scan(_) => "scan",
            Self::Index(_) => "index",
            Self::Pool(_) => "pool",
            Self::Conv(_) => "conv",
            Self::Sort(_) => "sort",
            Self::Random(_) => "random",
            Self::Flash(_) => "attention",
        }
    }

    /// What happens to each operand, in order.
    pub(crate) fn accesses(&self) -> Vec<Access> {
        match self {
            Self::Elementwise(form) => form.accesses(),
            Self::Gemm(form) => form.accesses(),
            Self::Reduce(form) => form.accesses(),
            Self::Rows(form) => form.accesses(),
            Self::Loss(form) => form.accesses(),
            Self::Scan(form) => form.accesses(),
            Self::Index(form) => form.accesses(),
            Self::Pool(form) => form.accesses(),
            Self::Conv(form) => form.accesses(),
            Self::Sort(form) => form.accesses(),
            Self::Random(form) => form.accesses(),
            Self::Flash(form) => form.accesses(),
        }
    }

    /// The shader.
    pub(crate) fn source(&self, slots: &Slots) -> Result<String> {
        Ok(match self {
            Self::Elementwise(form) => form.source(slots)?,
            Self::Gemm(form) => form.source(slots),
            Self::Reduce(form) => form.source(slots),
            Self::Rows(form) => form.source(slots),
            Self::Loss(form) => form.source(slots),
            Self::Scan(form) => form.source(slots),
            Self::Index(form) => form.source(slots),
            Self::Pool(form) => form.source(slots),
            Self::Conv(form) => form.source(slots),
            Self::Sort(form) => form.source(slots),
            Self::Random(form) => form.source(slots),
            Self::Flash(form) => form.source(slots),
        })
    }
}
