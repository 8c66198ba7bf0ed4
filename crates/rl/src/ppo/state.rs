//! Going on with a training.

use polygrad_nn::{Checkpoint, StateDict};
use polygrad_tensor::{Error, ErrorKind, Result, Tensor};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Ppo;
use super::recent::Recent;
use crate::{EpisodeStatistics, ObservationNormalizer, Policy, PolicyState, RewardNormalizer};

/// Under this name a checkpoint has what is beside weights and moments.
const RECORD: &str = "ppo";

/// Under this name it has what the policy remembers.
const MEMORY: &str = "memory";

#[derive(Serialize, Deserialize)]
struct Record {
    iteration: u64,
    /// None before the first reset.
    environments: Option<Value>,
    starts: Vec<bool>,
    statistics: EpisodeStatistics,
    recent: Recent,
    observation_normalizer: Option<ObservationNormalizer>,
    reward_normalizer: Option<RewardNormalizer>,
}

fn unfit(what: impl std::fmt::Display) -> Error {
    Error::new(
        ErrorKind::StateDict,
        format!("cannot go on from this checkpoint: {what}"),
    )
    .with_op("PPO")
    .with_hint("go on with the environments, the policy and the options that it was made with")
}

impl<P: Policy> Ppo<P> {
    /// All that is needed to go on from here: weights, moments, environments, statistics, and what the policy remembers.
    ///
    /// Its `config` is an object with the field `ppo`; others may be added to it.
    ///
    /// # Errors
    /// When the environments cannot be saved, or a device fails.
    pub fn checkpoint(&self) -> Result<Checkpoint> {
        let collector = &self.collector;
        let record = Record {
            iteration: self.iteration,
            environments: self.begun.then(|| collector.envs.state()).transpose()?,
            starts: collector.starts.iter().map(|start| *start != 0.0).collect(),
            statistics: collector.statistics.clone(),
            recent: self.recent.clone(),
            observation_normalizer: collector.observation_normalizer.clone(),
            reward_normalizer: collector.reward_normalizer.clone(),
        };
        let mut memory = StateDict::new();
        for (i, part) in collector.state()?.parts().iter().enumerate() {
            memory.insert(i.to_string(), part.to_host()?);
        }
        let record = serde_json::to_value(record).map_err(unfit)?;
        Ok(
            Checkpoint::new(self.step.model(), self.step.optimizer(), self.iteration)?
                .with_part(MEMORY, memory)
                .with_config(json!({ RECORD: record })),
        )
    }

    /// Goes on from a checkpoint: what follows is what would have followed there, bit for bit.
    ///
    /// # Errors
    /// When it was made with other environments, another policy or other normalization. The training is then no longer usable.
    pub fn restore(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        let record = checkpoint
            .config
            .get(RECORD)
            .ok_or_else(|| unfit("it is none of PPO"))?;
        let record = Record::deserialize(record).map_err(unfit)?;
        let collector = &mut self.collector;
        let rows = collector.rollout.rows;
        let kinds = (
            record.observation_normalizer.is_some(),
            record.reward_normalizer.is_some(),
        );
        if kinds
            != (
                collector.observation_normalizer.is_some(),
                collector.reward_normalizer.is_some(),
            )
        {
            return Err(unfit(
                "observations or rewards were normalized there and are not here, or the reverse",
            ));
        }
        if record.starts.len() != rows {
            return Err(unfit(format!("it is of {} rows, not of {rows}", record.starts.len())));
        }
        if let Some(state) = &record.environments {
            let mut raw = vec![0.0; rows * collector.envs.observation_space().len()];
            collector.envs.restore(state, &mut raw)?;
            super::collector::flatten(collector.envs.observation_space(), &raw, &mut collector.observations)?;
            if let Some(normalizer) = &record.observation_normalizer {
                normalizer.normalize(&mut collector.observations)?;
            }
        }
        let memory = checkpoint.part(MEMORY);
        let expected = collector.state()?;
        let mut parts = Vec::new();
        for (i, part) in expected.parts().iter().enumerate() {
            let saved = memory.as_ref().ok().and_then(|memory| memory.get(&i.to_string()));
            match saved {
                Some(saved) if *saved.shape() == part.shape() => {
                    parts.push(Tensor::from_host(saved.clone(), &self.device)?)
                }
                _ => return Err(unfit("what the policy remembers is not there")),
            }
        }
        collector.set_state(&PolicyState::new(parts))?;
        collector.starts = record.starts.iter().map(|start| f32::from(*start)).collect();
        collector.statistics = record.statistics;
        collector.observation_normalizer = record.observation_normalizer;
        collector.reward_normalizer = record.reward_normalizer;
        let (policy, optimizer) = self.step.parts_mut();
        checkpoint.restore(policy, optimizer)?;
        self.recent = record.recent;
        self.iteration = record.iteration;
        self.begun = record.environments.is_some();
        Ok(())
    }
}
