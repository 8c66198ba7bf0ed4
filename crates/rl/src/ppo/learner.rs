//! Makes PPO a [`Learner`] that a [`RunConfig`](polygrad_train::RunConfig) trains.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use polygrad_core::communicator::Communicator;
use polygrad_nn::{Checkpoint, Module, SyncGroup, sync_batch_norm};
use polygrad_tensor::{Error, Result};
use polygrad_train::{Learner, Measured};

use super::Ppo;
use crate::agent::score;
use crate::experience::survives;
use crate::{Agent, Episode, Policy};

const METRICS: [&str; 6] = [
    "return",
    "length",
    "value_loss",
    "entropy",
    "approx_kl",
    "explained_variance",
];

impl<P: Policy> Learner for Ppo<P> {
    fn communicator(&self) -> Option<&Arc<dyn Communicator>> {
        self.ranks.group()
    }

    fn unit(&self) -> &'static str {
        "steps"
    }

    /// `return` and `length` are means of the last 100 episodes of training; the loss is the clipped surrogate.
    fn metrics(&self) -> Vec<&str> {
        METRICS.to_vec()
    }

    fn steps(&self) -> u64 {
        Ppo::steps(self)
    }

    fn is_done(&self) -> bool {
        Ppo::is_done(self)
    }

    fn advance(&mut self) -> Result<Measured> {
        let stop = self.stop.take();
        let Some(iteration) = self.iterate_until(stop.as_deref())? else {
            return Ok(Measured::nothing(METRICS.len()));
        };
        self.ended = iteration.episodes;
        Ok(Measured {
            loss: iteration.policy_loss,
            metrics: vec![
                self.recent.mean_return().unwrap_or(f64::NAN),
                self.recent.mean_length().unwrap_or(f64::NAN),
                iteration.value_loss,
                iteration.entropy,
                iteration.approx_kl,
                iteration.explained_variance,
            ],
            learning_rate: iteration.learning_rate,
            loading_seconds: iteration.env_seconds,
        })
    }

    /// It returns early from rollouts.
    fn watch(&mut self, stop: Option<&Arc<AtomicBool>>) -> bool {
        self.stop = stop.cloned();
        true
    }

    fn score(&self) -> Option<f64> {
        score(&self.recent)
    }

    fn checkpoint(&self) -> Result<Checkpoint> {
        Ppo::checkpoint(self)
    }

    fn restore(&mut self, checkpoint: &Checkpoint) -> Result<Vec<String>> {
        self.restored(checkpoint)
    }

    fn take_notices(&mut self) -> Vec<String> {
        self.collector.envs.take_notices()
    }

    fn survives(&self, error: &Error) -> bool {
        survives(error, &*self.collector.envs)
    }

    fn rejoin(&mut self, group: &Arc<dyn Communicator>) -> Result<bool> {
        self.ranks.rejoin(group)?;
        if SyncGroup::of(self.policy()).is_some() {
            sync_batch_norm(self.policy(), &**group)?;
        }
        Ok(true)
    }

    fn model(&self) -> Option<&dyn Module> {
        Some(self.policy())
    }

    fn save_model(&self, path: &Path, metadata: &BTreeMap<String, String>) -> Result<()> {
        self.trained_policy()?.state_dict()?.save_with_metadata(path, metadata)
    }
}

impl<P: Policy> Ppo<P> {
    /// Writes the policy for use: the weights under the names of a [`NormalizedPolicy`](crate::NormalizedPolicy) if
    /// observations are normalized, otherwise those of the policy itself.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save_policy(&self, path: impl AsRef<Path>) -> Result<()> {
        self.trained_policy()?.save(path)
    }
}

impl<P: Policy> Agent for Ppo<P> {
    fn algorithm(&self) -> &'static str {
        "PPO"
    }

    fn total_steps(&self) -> u64 {
        self.iterations() * self.steps_per_iteration()
    }

    fn steps_per_advance(&self) -> u64 {
        self.steps_per_iteration()
    }

    fn num_parameters(&self) -> usize {
        self.policy().num_parameters()
    }

    fn mean_return(&self) -> Option<f64> {
        self.recent.mean_return()
    }

    fn episodes(&self) -> &[Episode] {
        &self.ended
    }

    fn trained_policy(&self) -> Result<Box<dyn Policy + '_>> {
        Ppo::trained_policy(self)
    }
}
