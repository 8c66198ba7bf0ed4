//! A training on several ranks.

use std::sync::Arc;

use polygrad_core::Rng;
use polygrad_core::communicator::{Communicator, HostSliceMut, Reduction};
use polygrad_nn::Module;
use polygrad_tensor::Result;
use polygrad_train::DataParallel;

use crate::Episode;

/// The ranks that train together; only this one, unless it has joined a group.
#[derive(Default)]
pub(super) struct Ranks {
    group: Option<Arc<dyn Communicator>>,
    parallel: Option<Arc<DataParallel>>,
}

impl Ranks {
    pub(super) fn of(parallel: Arc<DataParallel>) -> Self {
        Self {
            group: Some(parallel.communicator()),
            parallel: Some(parallel),
        }
    }

    pub(super) fn group(&self) -> Option<&Arc<dyn Communicator>> {
        self.group.as_ref()
    }

    /// Continues with the ranks that are left.
    pub(super) fn rejoin(&mut self, group: &Arc<dyn Communicator>) -> Result<()> {
        if let Some(parallel) = &self.parallel {
            parallel.rejoin(group)?;
            self.group = Some(Arc::clone(group));
        }
        Ok(())
    }

    pub(super) fn rank(&self) -> usize {
        self.group().map_or(0, |group| group.rank())
    }

    pub(super) fn size(&self) -> usize {
        self.group().map_or(1, |group| group.size())
    }

    /// This rank's own seed; on rank 0 that of the options.
    pub(super) fn seed(&self, seed: u64) -> u64 {
        match self.rank() as u64 {
            0 => seed,
            rank => other_seed(seed, rank),
        }
    }

    /// Gathers numbers from every rank.
    fn gather(&self, own: Vec<f64>) -> Result<Vec<Vec<f64>>> {
        match self.group() {
            Some(group) => group.all_gather_vec(&own),
            None => Ok(vec![own]),
        }
    }

    /// Gathers the same count of numbers from every rank.
    pub(super) fn gather_all<const N: usize>(&self, own: [f64; N]) -> Result<Vec<[f64; N]>> {
        let all = self.gather(own.to_vec())?.concat();
        Ok(all.as_chunks().0.to_vec())
    }

    /// The mean of a number over all ranks.
    pub(super) fn mean(&self, own: f64) -> Result<f64> {
        let mut sum = [own];
        if let Some(group) = self.group() {
            group.all_reduce(HostSliceMut::new(&mut sum), Reduction::Sum)?;
        }
        Ok(sum[0] / self.size() as f64)
    }

    /// The episodes of all ranks, which have `rows` rows each: one of each rank in turn, while it has any left.
    pub(super) fn episodes(&self, own: Vec<Episode>, rows: usize) -> Result<Vec<Episode>> {
        if self.parallel.is_none() {
            return Ok(own);
        }
        let numbers = own.iter().flat_map(|episode| {
            let row = self.rank() * rows + episode.row;
            [row as f64, episode.total_reward, episode.length as f64]
        });
        let all = self.gather(numbers.collect())?;
        let mut found = Vec::with_capacity(all.iter().map(Vec::len).sum::<usize>() / 3);
        for i in 0..all.iter().map(Vec::len).max().unwrap_or(0) / 3 {
            for [row, total_reward, length] in all.iter().filter_map(|own| own.as_chunks().0.get(i)) {
                found.push(Episode {
                    row: *row as usize,
                    total_reward: *total_reward,
                    length: *length as usize,
                });
            }
        }
        Ok(found)
    }

    /// Copies the policy's buffers of rank 0 to all ranks.
    pub(super) fn broadcast_buffers(&self, policy: &impl Module) -> Result<()> {
        match &self.parallel {
            Some(parallel) => parallel.broadcast_buffers(policy),
            None => Ok(()),
        }
    }

    /// Fails unless all ranks have the same policy and pass the same texts.
    pub(super) fn check(&self, policy: &impl Module, others: &[(&str, String)]) -> Result<()> {
        match &self.parallel {
            Some(parallel) => parallel
                .check_ranks(policy, others)
                .map_err(|error| error.with_op("PPO")),
            None => Ok(()),
        }
    }
}

/// Derives a seed for each number from 1 on from another seed.
pub(super) fn other_seed(seed: u64, number: u64) -> u64 {
    // The top bits keep the counters apart from those of environments, of iterations and of `Rng::new(seed)`.
    Rng::at(seed, 1 << 62 | number).next_u64()
}
