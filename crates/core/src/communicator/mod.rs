//! Processes that compute together: the interface to engines that move values between them.
//!
//! A [`Communicator`] is one process's end of a group: its engine is MPI, Gloo, NCCL, or threads of one process. Every
//! process of the group, a *rank*, calls the same collectives in the same order with the same sizes. [`Checked`]
//! verifies this, and names the rank that deviates.

mod buffer;
mod call;
mod checked;
mod error;
mod lists;
mod reduce;
mod slice;
mod tensors;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

pub use buffer::HostBuffer;
pub use call::{Call, Collective};
pub use checked::Checked;
pub use error::LostPeer;
pub use reduce::Reduction;
pub use slice::{HostSlice, HostSliceMut};

use crate::{Error, Result};

/// The default [time limit](Communicator::timeout) of a collective.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(300);

/// One process's end of a group of processes that compute together.
///
/// # Callers guarantee
/// Every rank calls the same collectives, in the same order, with slices of the same length and dtype, the same
/// reduction and root; one at a time in each process, from any of its threads.
///
/// # Engines guarantee
/// - Every rank gets the same bits from an `all_reduce`, and the same call on the same group gives the same bits again.
///   Another number of ranks may give others: floating-point sums depend on their order.
/// - f16 and bf16 are reduced in f32 or wider and rounded at most once for each pair that is added. Integers wrap.
/// - Empty slices are legal, and still wait for all.
/// - Lengths that do not match within one process are an [`InvalidArgument`](crate::ErrorKind::InvalidArgument) before
///   anything is sent.
/// - A peer that is gone, or a call that takes longer than the [time limit](Communicator::timeout), is a
///   [`Communication`](crate::ErrorKind::Communication) error. If the engine knows which peer, the error names it and
///   has [`LostPeer`] as its source. After such an error the group can only be used for [`Communicator::shrink`].
/// - Nothing panics, and nothing waits forever.
pub trait Communicator: Debug + Send + Sync {
    /// The engine and its version, as in `Open MPI 5.0.11`.
    fn name(&self) -> String;

    /// The number of this process, from 0.
    fn rank(&self) -> usize;

    /// How many processes there are, at least 1.
    fn size(&self) -> usize;

    /// The longest time that a collective may take.
    fn timeout(&self) -> Duration;

    /// Replaces `values` by the element-wise reduction of the values of all ranks.
    ///
    /// # Errors
    /// A reduction that is not defined for the dtype; those of the engine.
    fn all_reduce(&self, values: HostSliceMut<'_>, op: Reduction) -> Result<()>;

    /// Reduces `values` as [`Communicator::all_reduce`] does, and gives each rank its part: rank 0 the first, and so
    /// on. `values` is as long as the parts of all ranks together.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce`].
    fn reduce_scatter(&self, values: HostSlice<'_>, own: HostSliceMut<'_>, op: Reduction) -> Result<()>;

    /// The values of all ranks, those of rank 0 first. `all` is as long as the parts of all ranks together.
    ///
    /// # Errors
    /// Those of the engine.
    fn all_gather(&self, own: HostSlice<'_>, all: HostSliceMut<'_>) -> Result<()>;

    /// Gives every rank the values of rank `root`.
    ///
    /// # Errors
    /// A root that is not a rank; those of the engine.
    fn broadcast(&self, values: HostSliceMut<'_>, root: usize) -> Result<()>;

    /// Waits until every rank has called it.
    ///
    /// # Errors
    /// Those of the engine.
    fn barrier(&self) -> Result<()>;

    /// A second group of the same ranks, whose collectives are independent of this one's: two threads may each use one
    /// of the groups, in any order. Like a collective, this must be called by every rank.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) by default; those of the engine.
    fn duplicate(&self) -> Result<Arc<dyn Communicator>> {
        let message = format!("{} has no second group of the same processes", self.name());
        Err(Error::unsupported(message).with_op("duplicate"))
    }

    /// After an error: a new group of the remaining ranks, which agree on its members. Every remaining rank must call
    /// it.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) by default: most engines cannot go on without a peer.
    fn shrink(&self) -> Result<Arc<dyn Communicator>> {
        let message = format!("{} cannot go on without one of its processes", self.name());
        Err(Error::unsupported(message)
            .with_hint("start all of them again: they go on from the last checkpoint; MPI with ULFM can go on (mpirun --with-ft ulfm)"))
    }

    /// Tells the peers, if the engine can, that this process gives up, so that they neither wait for it nor continue.
    /// Does nothing by default.
    fn abort(&self, _why: &str) {}
}

/// Checks that every engine runs before it sends anything.
pub mod check {
    use super::{HostSlice, HostSliceMut, Reduction};
    use crate::{DType, Error, Result};

    /// Whether a reduction is defined for a dtype.
    ///
    /// # Errors
    /// A sum of bools.
    pub fn reduction(dtype: DType, op: Reduction) -> Result<()> {
        match (dtype, op) {
            (DType::Bool, Reduction::Sum) => {
                Err(Error::dtype("bools have no sum")
                    .with_hint("reduce them with Reduction::Max, which is any, or as u8"))
            }
            _ => Ok(()),
        }
    }

    /// Whether `whole` has the dtype of `part`, and the length of the parts of `size` ranks.
    ///
    /// # Errors
    /// When it is not.
    pub fn parts(whole: HostSlice<'_>, part: HostSlice<'_>, size: usize) -> Result<()> {
        if whole.dtype() != part.dtype() {
            let message = format!("{} and {} are two dtypes", whole.dtype(), part.dtype());
            return Err(Error::invalid(message));
        }
        if part.len().checked_mul(size) != Some(whole.len()) {
            let (whole, part) = (whole.len(), part.len());
            let message = format!("{whole} values are not {size} parts of {part}");
            return Err(Error::invalid(message).with_hint("pad the values, so that every rank has as many"));
        }
        Ok(())
    }

    /// Whether `root` is a rank.
    ///
    /// # Errors
    /// When it is not.
    pub fn root(root: usize, size: usize) -> Result<()> {
        match root < size {
            true => Ok(()),
            false => Err(Error::invalid(format!("there is no rank {root} among {size}"))),
        }
    }

    /// All checks of [`all_reduce`](super::Communicator::all_reduce).
    ///
    /// # Errors
    /// Those of the checks.
    pub fn all_reduce(values: &HostSliceMut<'_>, op: Reduction) -> Result<()> {
        reduction(values.dtype(), op)
    }

    /// All checks of [`reduce_scatter`](super::Communicator::reduce_scatter).
    ///
    /// # Errors
    /// Those of the checks.
    pub fn reduce_scatter(values: HostSlice<'_>, own: &HostSliceMut<'_>, op: Reduction, size: usize) -> Result<()> {
        reduction(values.dtype(), op)?;
        parts(values, own.as_slice(), size)
    }
}
