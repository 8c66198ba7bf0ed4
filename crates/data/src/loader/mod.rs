//! Batches, in an order that is known, from threads that work ahead.

mod batches;
mod config;
mod plan;

use std::sync::{Mutex, MutexGuard, PoisonError};

use polygrad_core::{Error, Result};
use serde::{Deserialize, Serialize};

pub use batches::Batches;
pub use config::DataLoaderConfig;
use plan::{Batch, Plan, Shard};

/// Where a loader stands: with the same dataset and options, another loader goes on from here with the same batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoaderState {
    /// What the order and the transforms of each epoch depend on.
    pub seed: u64,
    /// Epochs done.
    pub epoch: u64,
    /// Examples of the running epoch that are in batches which have been taken, those of other ranks too.
    pub position: u64,
}

/// Makes batches of the examples of a [`Dataset`](crate::Dataset) or a [`Stream`](crate::Stream); made by a
/// [`DataLoaderConfig`].
///
/// A loop over `&loader` gives the batches that are left of the running epoch, and begins the next epoch at its end.
/// [`DataLoader::state`] counts a batch as soon as the loop has it: a checkpoint that is written after the step with
/// that batch goes on with the next one.
///
/// The batches are the same for any number of workers. An error ends the loop, and the next one tries
/// the same batch again.
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
    /// Where it stands.
    pub fn state(&self) -> LoaderState {
        *self.lock()
    }

    /// Goes on from a state of this loader, or of one with the same dataset and options. A loop that runs
    /// meanwhile is not affected.
    pub fn set_state(&self, state: LoaderState) {
        *self.lock() = state;
    }

    /// Batches in an epoch; `None` for a stream, whose end nobody knows.
    pub fn batches(&self) -> Option<usize> {
        self.length.map(|length| self.plan().batches(length))
    }

    /// Examples in an epoch, those of all ranks; `None` for a stream.
    pub fn examples(&self) -> Option<usize> {
        self.length
    }

    /// What [`Dataset::fingerprint`](crate::Dataset::fingerprint) gives, of all ranks' examples and without transforms;
    /// `None` for a stream. Each call computes it.
    pub fn fingerprint(&self) -> Option<u64> {
        (self.fingerprint)()
    }

    /// Examples in each batch but perhaps the last one.
    pub fn batch_size(&self) -> usize {
        self.plan().batch_size
    }

    /// Takes the part of process `rank` out of `ranks` from now on, as [`DataLoaderConfig::shard`]; a loop that runs
    /// meanwhile is not affected. With `fills`, a process for which nothing is left of the last batch gets an example
    /// of another one, so that all have as many batches: [`DataLoader::share`] says that none of it is its own.
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

    /// How many examples are this process's own of a step with `count` examples of all processes together.
    pub fn share(&self, count: usize) -> usize {
        self.plan().shard.part(count).len()
    }

    /// The batches that are left of the running epoch.
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
