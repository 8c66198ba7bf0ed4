//! Saving and resuming a training.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use polygrad_nn::{Checkpoint, StateDict};
use polygrad_tensor::{Error, ErrorKind, Result, Tensor};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Ppo;
use crate::act::spaces::flatten;
use crate::experience::begun_anew;
use crate::statistics::recent::Recent;
use crate::{EpisodeStatistics, ObservationNormalizer, Policy, PolicyState, RewardNormalizer};

/// The key of the state, except weights and moments, in a checkpoint.
const RECORD: &str = "ppo";

/// The key of the policy's recurrent state; for ranks after the first their number is appended.
const MEMORY: &str = "memory";

#[derive(Serialize, Deserialize)]
struct Record {
    iteration: u64,
    /// Of all ranks; `None` in a checkpoint of a version that supported only one process.
    steps: Option<u64>,
    #[serde(flatten)]
    stand: Stand,
    recent: Recent,
    observation_normalizer: Option<ObservationNormalizer>,
    /// The states of the ranks after the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ranks: Vec<Stand>,
}

/// The state of a rank's environments.
#[derive(Serialize, Deserialize)]
struct Stand {
    /// `None` before the first reset.
    environments: Option<Value>,
    starts: Vec<bool>,
    statistics: EpisodeStatistics,
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

/// The part of a checkpoint with the policy's recurrent state of a rank.
fn part(rank: usize) -> String {
    match rank {
        0 => MEMORY.to_owned(),
        _ => format!("{MEMORY}{rank}"),
    }
}

/// The notice if the number of ranks differs from that of the checkpoint.
fn notice(before: usize, now: usize) -> Option<String> {
    let what = match before.cmp(&now) {
        Ordering::Equal => return None,
        Ordering::Less => "those that are new begin new episodes",
        Ordering::Greater => "the running episodes of the others are dropped",
    };
    Some(format!("ranks that train together: {now} instead of {before}; {what}"))
}

impl Stand {
    /// The state of a new rank, which normalizes rewards like an existing one.
    fn new(rows: usize, reward_normalizer: Option<RewardNormalizer>) -> Self {
        Self {
            environments: None,
            starts: vec![true; rows],
            statistics: EpisodeStatistics::new(rows),
            reward_normalizer: reward_normalizer.map(|mut normalizer| {
                normalizer.reset();
                normalizer
            }),
        }
    }
}

impl<P: Policy> Ppo<P> {
    /// Everything needed to continue from here: weights, moments, environments, statistics, and the policy's recurrent
    /// state, of all ranks. Every rank has to call it, and all get the same result.
    ///
    /// Its `config` is an object with the field `ppo`; other fields may be added.
    ///
    /// # Errors
    /// If the environments cannot be saved, or a device fails.
    pub fn checkpoint(&self) -> Result<Checkpoint> {
        let mut checkpoint = Checkpoint::new(self.step.model(), self.step.optimizer(), self.iteration)?;
        let mut stands = Vec::with_capacity(self.ranks.size());
        for (rank, (stand, memory)) in self.stands()?.into_iter().enumerate() {
            checkpoint = checkpoint.with_part(&part(rank), memory);
            stands.push(stand);
        }
        let record = Record {
            iteration: self.iteration,
            steps: Some(self.steps),
            stand: stands.remove(0),
            recent: self.recent.clone(),
            observation_normalizer: self.collector.observation_normalizer.clone(),
            ranks: stands,
        };
        let record = serde_json::to_value(record).map_err(unfit)?;
        Ok(checkpoint.with_config(json!({ RECORD: record })))
    }

    /// The states of the environments of all ranks, and the policy's recurrent states there.
    fn stands(&self) -> Result<Vec<(Stand, StateDict)>> {
        let collector = &self.collector;
        let stand = Stand {
            environments: self.begun.then(|| collector.envs.state()).transpose()?,
            starts: collector.starts.iter().map(|start| *start != 0.0).collect(),
            statistics: collector.statistics.clone(),
            reward_normalizer: collector.reward_normalizer.clone(),
        };
        let mut memory = StateDict::new();
        for (i, part) in collector.state()?.parts().iter().enumerate() {
            memory.insert(i.to_string(), part.to_host()?);
        }
        let Some(group) = self.ranks.group() else {
            return Ok(vec![(stand, memory)]);
        };
        let stand = serde_json::to_string(&stand).map_err(unfit)?;
        let own = memory.to_bytes(&BTreeMap::from([(RECORD.to_owned(), stand)]))?;
        let read = |bytes: Vec<u8>| {
            let (memory, texts) = StateDict::from_bytes(&bytes)?;
            let stand = texts.get(RECORD).map_or("", String::as_str);
            Ok((serde_json::from_str(stand).map_err(unfit)?, memory))
        };
        group.all_gather_vec(&own)?.into_iter().map(read).collect()
    }

    /// Continues from a checkpoint: the training then proceeds exactly as it would have there, bit for bit.
    ///
    /// Each of several ranks takes its own state from the checkpoint, or begins new episodes if there is none, so that
    /// the number of ranks may differ from the checkpoint's. Every rank has to call it, with the same checkpoint.
    ///
    /// # Errors
    /// If the checkpoint was made with other environments, another policy or other normalization; if the ranks then
    /// disagree. The training is unusable afterwards.
    pub fn restore(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        self.restored(checkpoint).map(drop)
    }

    /// The same; returns notices for the user.
    pub(super) fn restored(&mut self, checkpoint: &Checkpoint) -> Result<Vec<String>> {
        let record = checkpoint
            .config
            .get(RECORD)
            .ok_or_else(|| unfit("it is none of PPO"))?;
        let mut record = Record::deserialize(record).map_err(unfit)?;
        let collector = &mut self.collector;
        let (rank, rows) = (self.ranks.rank(), collector.rollout.rows);
        let kinds = (
            record.observation_normalizer.is_some(),
            record.stand.reward_normalizer.is_some(),
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
        collector.observation_normalizer = record.observation_normalizer;
        let known = record.ranks.len() + 1;
        let stand = match rank {
            0 => record.stand,
            _ if rank < known => record.ranks.swap_remove(rank - 1),
            _ => Stand::new(rows, record.stand.reward_normalizer),
        };
        self.take(stand, checkpoint.part(&part(rank)).ok())?;
        self.collector.track(&self.ranks);
        let (policy, optimizer) = self.step.parts_mut();
        checkpoint.restore(policy, optimizer)?;
        self.recent = record.recent;
        self.iteration = record.iteration;
        let steps_of_one = self.iteration * self.steps_per_iteration() / self.ranks.size() as u64;
        self.steps = record.steps.unwrap_or(steps_of_one);
        self.check_ranks()?;
        let anew = begun_anew(self.begun, &*self.collector.envs);
        Ok(anew.into_iter().chain(notice(known, self.ranks.size())).collect())
    }

    /// Restores this rank's environments.
    fn take(&mut self, stand: Stand, memory: Option<&StateDict>) -> Result<()> {
        let collector = &mut self.collector;
        let rows = collector.rollout.rows;
        if stand.starts.len() != rows {
            return Err(unfit(format!("it is of {} rows, not of {rows}", stand.starts.len())));
        }
        let mut state = self.step.model().initial_state(rows)?;
        if let Some(saved) = &stand.environments {
            let mut raw = vec![0.0; rows * collector.envs.observation_space().len()];
            collector.envs.restore(saved, &mut raw)?;
            flatten(collector.envs.observation_space(), &raw, &mut collector.observations)?;
            if let Some(normalizer) = &collector.observation_normalizer {
                normalizer.normalize(&mut collector.observations)?;
            }
            let mut parts = Vec::new();
            for (i, part) in state.parts().iter().enumerate() {
                match memory.and_then(|memory| memory.get(&i.to_string())) {
                    Some(saved) if *saved.shape() == part.shape() => {
                        parts.push(Tensor::from_host(saved.clone(), &self.device)?);
                    }
                    _ => return Err(unfit("what the policy remembers is not there")),
                }
            }
            state = PolicyState::new(parts);
        }
        collector.set_state(&state)?;
        collector.starts = stand.starts.iter().map(|start| f32::from(*start)).collect();
        collector.statistics = stand.statistics;
        collector.reward_normalizer = stand.reward_normalizer;
        if collector.envs.begins_anew() {
            collector.starts.fill(1.0);
            collector.statistics.reset();
            collector.reward_normalizer.iter_mut().for_each(RewardNormalizer::reset);
        }
        // Removes the episodes of a rollout that was abandoned.
        collector.finished.clear();
        self.begun = stand.environments.is_some();
        Ok(())
    }
}
