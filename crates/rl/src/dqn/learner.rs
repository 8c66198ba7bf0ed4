//! DQN as something that a [`RunConfig`](polygrad_train::RunConfig) trains, and goes on with.

use std::collections::BTreeMap;
use std::path::Path;

use polygrad_nn::{Checkpoint, Module};
use polygrad_tensor::{Error, ErrorKind, Result};
use polygrad_train::{Learner, Measured};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Dqn;
use crate::agent::score;
use crate::experience::Stand;
use crate::{Agent, Episode, Policy};

/// Under this name a checkpoint has what is beside weights, moments and transitions.
const RECORD: &str = "dqn";

/// Under this name it has the transitions.
const REPLAY: &str = "replay";

#[derive(Serialize, Deserialize)]
struct Record {
    iteration: u64,
    steps: u64,
    #[serde(flatten)]
    stand: Stand,
}

fn unfit(what: impl std::fmt::Display) -> Error {
    Error::new(
        ErrorKind::StateDict,
        format!("cannot go on from this checkpoint: {what}"),
    )
    .with_op("DQN")
    .with_hint("go on with the environments, the network and the options that it was made with")
}

impl Learner for Dqn {
    fn unit(&self) -> &'static str {
        "steps"
    }

    /// `return` and `length` are means of the last 100 episodes of training, `q_value` is the mean value of the actions
    /// that were learnt from.
    fn metrics(&self) -> Vec<&str> {
        vec!["return", "length", "q_value", "epsilon"]
    }

    fn steps(&self) -> u64 {
        Self::steps(self)
    }

    fn is_done(&self) -> bool {
        Self::is_done(self)
    }

    fn advance(&mut self) -> Result<Measured> {
        let iteration = self.iterate()?;
        let recent = &self.experience.recent;
        Ok(Measured {
            loss: iteration.loss,
            metrics: vec![
                recent.mean_return().unwrap_or(f64::NAN),
                recent.mean_length().unwrap_or(f64::NAN),
                iteration.value,
                iteration.epsilon,
            ],
            learning_rate: iteration.learning_rate,
            loading_seconds: iteration.env_seconds,
        })
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
        let record = serde_json::to_value(record).map_err(unfit)?;
        let checkpoint = Checkpoint::new(self.step.model(), self.step.optimizer(), self.iteration)?;
        Ok(checkpoint
            .with_part(REPLAY, self.experience.replay.state_dict()?)
            .with_config(json!({ RECORD: record })))
    }

    fn restore(&mut self, checkpoint: &Checkpoint) -> Result<Vec<String>> {
        let record = checkpoint
            .config
            .get(RECORD)
            .ok_or_else(|| unfit("it is none of DQN"))?;
        let record = Record::deserialize(record).map_err(unfit)?;
        if !self.experience.fits(&record.stand) {
            return Err(unfit(
                "it is of other environments, or of transitions over other numbers of steps",
            ));
        }
        let replay = self.experience.replay.load_state_dict(checkpoint.part(REPLAY)?);
        replay.map_err(|e| unfit(e.message()))?;
        self.experience.restore(record.stand)?;
        let (networks, optimizer) = self.step.parts_mut();
        checkpoint.restore(networks, optimizer)?;
        (self.iteration, self.steps) = (record.iteration, record.steps);
        Ok(Vec::new())
    }

    fn model(&self) -> Option<&dyn Module> {
        Some(self.network())
    }

    fn save_model(&self, path: &Path, metadata: &BTreeMap<String, String>) -> Result<()> {
        self.network().state_dict()?.save_with_metadata(path, metadata)
    }
}

impl Agent for Dqn {
    fn algorithm(&self) -> &'static str {
        "DQN"
    }

    fn total_steps(&self) -> u64 {
        self.iterations() * self.steps_per_iteration()
    }

    fn steps_per_advance(&self) -> u64 {
        self.steps_per_iteration()
    }

    fn num_parameters(&self) -> usize {
        self.network().num_parameters()
    }

    fn mean_return(&self) -> Option<f64> {
        self.experience.recent.mean_return()
    }

    fn episodes(&self) -> &[Episode] {
        &self.experience.ended
    }

    fn trained_policy(&self) -> Result<Box<dyn Policy + '_>> {
        Ok(Box::new(self.network()))
    }
}
