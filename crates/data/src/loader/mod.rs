//! Batches in a reproducible order, made ahead by threads.

mod batches;
mod config;
mod plan;

use std::sync::{Mutex, MutexGuard, PoisonError};

use polygrad_core::{Error, Result};
use serde::{Deserialize, Serialize};

pub use batches::Batches;
pub use config::DataLoaderConfig;
use plan::{Batch, Plan, Shard};

/// The position of a loader: another loader with the same dataset and options continues from here with the same
/// batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoaderState {
    /// The seed for the order and the transforms of each epoch.
    pub seed: u64,
    /// Epochs done.
    pub epoch: u64,
    /// Examples in the running epoch's batches taken so far, including those of other ranks.
    pub position: u64,
}

/// Combines the examples of a [`Dataset`](crate::Dataset) or a [`Stream`](crate::Stream) into batches; built by a
/// [`DataLoaderConfig`].
///
/// A loop over `&loader` yields the remaining batches of the running epoch, and then begins the next epoch.
/// [`DataLoader::state`] counts a batch as soon as the loop gets it, so that a checkpoint written after the step with
/// that batch continues with the next one.
///
/// The batches do not depend on the number of workers. An error ends the loop, and the next loop tries the same batch
/// again.
pub struct DataLoader<T> {
    plan: Mutex<Plan>,
    source: config::Source<T>,
    length: Option<usize>,
    fingerprint: config::Fingerprint,
    workers: usize,
    prefetch: usize,
    state: Mutex<LoaderState>,
}

impl<T: Send + 'static> DataLoader<T> {
    /// The current position.
    pub fn state(&self) -> LoaderState {
        *self.lock()
    }

    /// Continues from a state of this loader, or of one with the same dataset and options. A running loop is not
    /// affected.
    pub fn set_state(&self, state: LoaderState) {
        *self.lock() = state;
    }

    /// Number of batches in an epoch; `None` for a stream, whose length is unknown.
    pub fn batches(&self) -> Option<usize> {
        self.length.map(|length| self.plan().batches(length))
    }

    /// Number of examples in an epoch, over all ranks; `None` for a stream.
    pub fn examples(&self) -> Option<usize> {
        self.length
    }

    /// The dataset's [`Dataset::fingerprint`](crate::Dataset::fingerprint), for all ranks' examples and without
    /// transforms; `None` for a stream. Each call computes it.
    pub fn fingerprint(&self) -> Option<u64> {
        (self.fingerprint)()
    }

    /// Examples in each batch, except perhaps the last one.
    pub fn batch_size(&self) -> usize {
        self.plan().batch_size
    }

    /// Selects the part of process `rank` out of `ranks` from now on, as [`DataLoaderConfig::shard`]; a running loop is
    /// not affected. With `fills`, a process without a part of the last batch gets an example of another process, so
    /// that all have the same number of batches; [`DataLoader::share`] then returns 0 for it.
    ///
    /// # Errors
    /// A rank that is not below the number of ranks.
    pub fn set_shard(&self, rank: usize, ranks: usize, fills: bool) -> Result<()> {
        let mut plan = self.plan();
        if rank >= ranks || plan.batch_size.checked_mul(ranks).is_none() {
            let message = format!("rank {rank} of {ranks}: ranks are counted from 0");
            return Err(Error::invalid(message).with_op("DataLoader"));
        }
        plan.shard = Shard { rank, ranks, fills };
        Ok(())
    }

    /// How many of `count` examples in a step, over all processes, belong to this process.
    pub fn share(&self, count: usize) -> usize {
        self.plan().shard.part(count).len()
    }

    /// The remaining batches of the running epoch.
    pub fn iter(&self) -> Batches<'_, T> {
        Batches::new(self)
    }

    fn lock(&self) -> MutexGuard<'_, LoaderState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn started(&self) -> Result<plan::Batches<T>> {
        (self.source)(&self.plan(), self.state())
    }
}

impl<'a, T: Send + 'static> IntoIterator for &'a DataLoader<T> {
    type Item = Result<T>;
    type IntoIter = Batches<'a, T>;

    fn into_iter(self) -> Batches<'a, T> {
        self.iter()
    }
}

impl<T> std::fmt::Debug for DataLoader<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DataLoader")
            .field("plan", &self.plan)
            .field("length", &self.length)
            .field("workers", &self.workers)
            .field("prefetch", &self.prefetch)
            .field("state", &self.state)
            .finish()
    }
}
