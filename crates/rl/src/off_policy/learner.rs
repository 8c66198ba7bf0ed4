//! Makes algorithms with a replay buffer a [`Learner`] that a [`RunConfig`](polygrad_train::RunConfig) trains and
//! resumes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use polygrad_nn::{Checkpoint, Module};
use polygrad_tensor::{Error, ErrorKind, Result};
use polygrad_train::{Learner, Measured};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Method, OffPolicy};
use crate::agent::score;
use crate::experience::{Stand, survives};
use crate::{Agent, Episode, Policy};

/// The key of the transitions in a checkpoint.
const REPLAY: &str = "replay";

#[derive(Serialize, Deserialize)]
struct Record {
    iteration: u64,
    steps: u64,
    #[serde(flatten)]
    stand: Stand,
}

fn unfit<M: Method>(what: impl std::fmt::Display) -> Error {
    Error::new(
        ErrorKind::StateDict,
        format!("cannot go on from this checkpoint: {what}"),
    )
    .with_op(M::NAME)
    .with_hint("go on with the environments, the network and the options that it was made with")
}

impl<M: Method> Learner for OffPolicy<M> {
    fn unit(&self) -> &'static str {
        "steps"
    }

    /// `return` and `length` are means of the last 100 episodes of training; `q_value` is the mean value of the actions
    /// in the training batches.
    fn metrics(&self) -> Vec<&str> {
        [&["return", "length"], M::LEARNT, M::TOLD].concat()
    }

    fn steps(&self) -> u64 {
        Self::steps(self)
    }

    fn is_done(&self) -> bool {
        Self::is_done(self)
    }

    fn advance(&mut self) -> Result<Measured> {
        let stop = self.stop.take();
        self.iterate_until(stop.as_deref())
    }

    /// It returns early between steps of the environments.
    fn watch(&mut self, stop: Option<&Arc<AtomicBool>>) -> bool {
        self.stop = stop.cloned();
        true
    }

    fn score(&self) -> Option<f64> {
        score(&self.experience.recent)
    }

    fn checkpoint(&self) -> Result<Checkpoint> {
        let record = Record {
            iteration: self.iteration,
            steps: self.steps,
            stand: self.experience.state()?,
        };
        let record = serde_json::to_value(record).map_err(unfit::<M>)?;
        let checkpoint = self.method.trained().checkpoint(self.iteration)?;
        Ok(checkpoint
            .with_part(REPLAY, self.experience.replay.state_dict()?)
            .with_config(json!({ M::KEY: record })))
    }

    fn restore(&mut self, checkpoint: &Checkpoint) -> Result<Vec<String>> {
        let record = checkpoint
            .config
            .get(M::KEY)
            .ok_or_else(|| unfit::<M>(format!("it is none of {}", M::NAME)))?;
        let record = Record::deserialize(record).map_err(unfit::<M>)?;
        if !self.experience.fits(&record.stand) {
            return Err(unfit::<M>(
                "it is of other environments, or of transitions over other numbers of steps",
            ));
        }
        let replay = self.experience.replay.load_state_dict(checkpoint.part(REPLAY)?);
        replay.map_err(|e| unfit::<M>(e.message()))?;
        self.experience.restore(record.stand)?;
        self.method.trained_mut().restore(checkpoint)?;
        (self.iteration, self.steps) = (record.iteration, record.steps);
        let anew = self.experience.begun_anew();
        if anew.is_some() {
            (0..self.experience.rows()).for_each(|row| self.method.ended(row));
        }
        Ok(Vec::from_iter(anew))
    }

    fn take_notices(&mut self) -> Vec<String> {
        self.experience.envs.take_notices()
    }

    fn survives(&self, error: &Error) -> bool {
        survives(error, &*self.experience.envs)
    }

    fn model(&self) -> Option<&dyn Module> {
        Some(self.method.policy())
    }

    fn save_model(&self, path: &Path, metadata: &BTreeMap<String, String>) -> Result<()> {
        self.method.policy().state_dict()?.save_with_metadata(path, metadata)
    }
}

impl<M: Method> Agent for OffPolicy<M> {
    fn algorithm(&self) -> &'static str {
        M::NAME
    }

    fn total_steps(&self) -> u64 {
        self.iterations() * self.steps_per_iteration()
    }

    fn steps_per_advance(&self) -> u64 {
        self.steps_per_iteration()
    }

    fn num_parameters(&self) -> usize {
        self.method.policy().num_parameters()
    }

    fn mean_return(&self) -> Option<f64> {
        self.experience.recent.mean_return()
    }

    fn episodes(&self) -> &[Episode] {
        &self.experience.ended
    }

    fn trained_policy(&self) -> Result<Box<dyn Policy + '_>> {
        Ok(Box::new(self.method.policy()))
    }
}
