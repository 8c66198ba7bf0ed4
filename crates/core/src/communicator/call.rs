//! Descriptions of collective calls, by which ranks are compared.

use std::fmt;

use super::{HostSlice, Reduction};
use crate::DType;

/// A collective call without its values. An engine that compares the calls of its ranks can name the rank that calls
/// something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The collective.
    pub kind: Collective,
    dtype: DType,
    len: usize,
    op: Option<Reduction>,
    root: Option<usize>,
}

/// The collectives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collective {
    /// [`all_reduce`](super::Communicator::all_reduce).
    AllReduce,
    /// [`reduce_scatter`](super::Communicator::reduce_scatter).
    ReduceScatter,
    /// [`all_gather`](super::Communicator::all_gather).
    AllGather,
    /// [`broadcast`](super::Communicator::broadcast).
    Broadcast,
    /// [`barrier`](super::Communicator::barrier).
    Barrier,
    /// [`duplicate`](super::Communicator::duplicate).
    Duplicate,
}

const COLLECTIVES: [Collective; 6] = [
    Collective::AllReduce,
    Collective::ReduceScatter,
    Collective::AllGather,
    Collective::Broadcast,
    Collective::Barrier,
    Collective::Duplicate,
];
const REDUCTIONS: [Reduction; 3] = [Reduction::Sum, Reduction::Min, Reduction::Max];
const NONE: u64 = u64::MAX;

impl Collective {
    /// The name of the method.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::ReduceScatter => "reduce_scatter",
            Self::AllGather => "all_gather",
            Self::Broadcast => "broadcast",
            Self::Barrier => "barrier",
            Self::Duplicate => "duplicate",
        }
    }
}

impl Call {
    /// A call with the length and dtype of `values`.
    pub fn new(kind: Collective, values: HostSlice<'_>) -> Self {
        Self {
            kind,
            dtype: values.dtype(),
            len: values.len(),
            op: None,
            root: None,
        }
    }

    /// A collective without values.
    pub fn bare(kind: Collective) -> Self {
        Self::new(kind, HostSlice::new::<u8>(&[]))
    }

    /// The dtype of the values.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The call with this reduction.
    #[must_use]
    pub fn by(self, op: Reduction) -> Self {
        Self { op: Some(op), ..self }
    }

    /// The call with this root rank.
    #[must_use]
    pub fn rooted(self, root: usize) -> Self {
        Self {
            root: Some(root),
            ..self
        }
    }

    /// The call as numbers that can be sent to other ranks.
    pub(super) fn numbers(&self) -> [u64; 5] {
        [
            self.kind as u64,
            self.dtype as u64,
            self.len as u64,
            self.op.map_or(NONE, |op| op as u64),
            self.root.map_or(NONE, |root| root as u64),
        ]
    }

    /// The call that another rank sent as numbers; `None` if they do not describe one.
    pub(super) fn from_numbers([kind, dtype, len, op, root]: [u64; 5]) -> Option<Self> {
        Some(Self {
            kind: COLLECTIVES.into_iter().find(|x| *x as u64 == kind)?,
            dtype: DType::ALL.into_iter().find(|x| *x as u64 == dtype)?,
            len: usize::try_from(len).ok()?,
            op: REDUCTIONS.into_iter().find(|x| *x as u64 == op),
            root: (root != NONE).then_some(root as usize),
        })
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        if matches!(self.kind, Collective::Barrier | Collective::Duplicate) {
            return Ok(());
        }
        write!(f, " of {} {}", self.len, self.dtype)?;
        if let Some(op) = self.op {
            write!(f, " by {}", op.as_str())?;
        }
        match self.root {
            Some(root) => write!(f, " from rank {root}"),
            None => Ok(()),
        }
    }
}
