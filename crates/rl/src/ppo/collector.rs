//! Lets a policy act in environments.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use polygrad_core::{Error, Result, Rng};
use polygrad_tensor::{Device, Tensor};

use super::config::{PpoConfig, wrong};
use super::exploration::Exploration;
use super::ranks::Ranks;
use super::rollout::Rollout;
use crate::act::actor::{Actor, Asked};
use crate::act::sampler::choose;
use crate::act::spaces::{check_spaces, flatten, for_environment, observation_shape};
use crate::vector::check_len;
use crate::{
    ActionSpace, Episode, EpisodeStatistics, ObservationNormalizer, Policy, PolicyState, RewardNormalizer, Space,
    StepBuffers, VectorEnv,
};

/// Environments and their current state.
pub(super) struct Collector {
    pub(super) envs: Box<dyn VectorEnv>,
    pub(super) actions: ActionSpace,
    /// Shape of an observation as the policy sees it.
    pub(super) shape: Vec<usize>,
    pub(super) rollout: Rollout,
    pub(super) actor: Actor,
    exploration: Option<Exploration>,
    segment: usize,
    bootstrap: bool,
    /// Rows that step together. With several groups, one steps while the policy computes actions for another.
    groups: Vec<Group>,
    /// The next observations for the policy; `starts` marks those that begin an episode.
    pub(super) observations: Vec<f32>,
    pub(super) starts: Vec<f32>,
    /// Actions as environments take them.
    chosen: Vec<f32>,
    pub(super) statistics: EpisodeStatistics,
    pub(super) observation_normalizer: Option<ObservationNormalizer>,
    pub(super) reward_normalizer: Option<RewardNormalizer>,
    pub(super) finished: Vec<Episode>,
    env_seconds: f64,
}

pub(super) struct Group {
    rows: Range<usize>,
    buffers: StepBuffers,
    /// The policy's state of these rows.
    pub(super) state: PolicyState,
}

/// Results other than the rollout.
pub(super) struct Collected {
    pub(super) episodes: Vec<Episode>,
    pub(super) env_seconds: f64,
}

impl Collector {
    pub(super) fn new<P: Policy>(
        envs: Box<dyn VectorEnv>,
        policy: &P,
        config: &PpoConfig,
        device: &Device,
    ) -> Result<Self> {
        let rows = envs.rows();
        check_spaces(envs.observation_space(), envs.action_space())?;
        let (space, actions) = (envs.observation_space(), ActionSpace::from(envs.action_space()));
        let shape = observation_shape(space);
        let width = space.flat_len();
        let is_box = matches!(space, Space::Box { .. });
        let observation_normalizer = match config.normalize_observations {
            None => None,
            Some(_) if !is_box => return Err(wrong(format!("observations of {space:?} have no mean"))),
            Some(bound) => Some(ObservationNormalizer::new(width).clip(bound as f32)?),
        };
        let reward_normalizer = match config.normalize_rewards {
            None => None,
            Some(bound) => Some(RewardNormalizer::new(rows, config.gamma)?.clip(bound as f32)?),
        };
        // The statistics of observations are updated with all rows of a step.
        let together = observation_normalizer.is_some() || envs.groups() == 1;
        let ranges: Vec<Range<usize>> = match together {
            true => std::iter::once(0..rows).collect(),
            false => (0..envs.groups()).map(|group| envs.group_rows(group)).collect(),
        };
        let raw = space.len();
        let group = |rows: Range<usize>| -> Result<Group> {
            Ok(Group {
                buffers: StepBuffers::with_rows(rows.len(), raw),
                state: policy.initial_state(rows.len())?,
                rows,
            })
        };
        let masks = envs.action_masks();
        if let Some(masks) = masks {
            check_len("action_masks", masks.len(), rows * actions.outputs())?;
        }
        let masked = masks.is_some();
        Ok(Self {
            rollout: Rollout::new(config.num_steps, rows, width, &actions, masked)?,
            actor: Actor::new(
                device.clone(),
                actions.clone(),
                Asked {
                    values: true,
                    noise: config.use_sde,
                },
            ),
            exploration: config.use_sde.then(|| Exploration::new(config.sde_sample_freq, rows)),
            segment: config.segment_len.unwrap_or(config.num_steps),
            bootstrap: config.bootstrap_truncated,
            groups: ranges.into_iter().map(group).collect::<Result<_>>()?,
            observations: vec![0.0; rows * width],
            starts: vec![1.0; rows],
            chosen: vec![0.0; rows * envs.action_space().len()],
            statistics: EpisodeStatistics::new(rows),
            observation_normalizer,
            reward_normalizer,
            finished: Vec::new(),
            env_seconds: 0.0,
            envs,
            actions,
            shape,
        })
    }

    /// Begins an episode in every environment.
    pub(super) fn reset(&mut self, seed: u64) -> Result<()> {
        let mut raw = vec![0.0; self.rollout.rows * self.envs.observation_space().len()];
        self.envs.reset(seed, &mut raw)?;
        self.see(0..self.rollout.rows, &raw)
    }

    /// Takes observations of some rows as the policy's next ones.
    fn see(&mut self, rows: Range<usize>, raw: &[f32]) -> Result<()> {
        let width = self.rollout.widths.observation;
        let seen = &mut self.observations[rows.start * width..rows.end * width];
        flatten(self.envs.observation_space(), raw, seen)?;
        if let Some(normalizer) = &mut self.observation_normalizer {
            normalizer.update(seen)?;
            normalizer.normalize(seen)?;
        }
        Ok(())
    }

    /// The policy's state of all rows.
    pub(super) fn state(&self) -> Result<PolicyState> {
        let [first, rest @ ..] = &self.groups[..] else {
            return Ok(PolicyState::new(Vec::new()));
        };
        if rest.is_empty() {
            return Ok(first.state.clone());
        }
        let join = |part: usize| {
            let parts: Vec<&Tensor> = self.groups.iter().map(|group| &group.state.parts()[part]).collect();
            Tensor::cat(&parts, 1)
        };
        let parts = (0..first.state.parts().len()).map(join);
        Ok(PolicyState::new(parts.collect::<Result<_>>()?))
    }

    /// Sets the policy's state of all rows.
    pub(super) fn set_state(&mut self, state: &PolicyState) -> Result<()> {
        for group in &mut self.groups {
            let own = |part: &Tensor| part.narrow(1, group.rows.start, group.rows.len());
            group.state = PolicyState::new(state.parts().iter().map(own).collect::<Result<_>>()?);
        }
        Ok(())
    }

    /// Records what this rank observes, if there are other ranks to share it with.
    pub(super) fn track(&mut self, ranks: &Ranks) {
        if ranks.group().is_none() {
            return;
        }
        if let Some(normalizer) = &mut self.observation_normalizer {
            normalizer.statistics_mut().track();
        }
        if let Some(normalizer) = &mut self.reward_normalizer {
            normalizer.statistics_mut().track();
        }
    }

    /// Merges what the other ranks have observed.
    fn share(&mut self, ranks: &Ranks) -> Result<()> {
        let Some(group) = ranks.group() else { return Ok(()) };
        if let Some(normalizer) = &mut self.reward_normalizer {
            normalizer.statistics_mut().share(&**group)?;
        }
        if let Some(normalizer) = &mut self.observation_normalizer {
            normalizer.statistics_mut().share(&**group)?;
            // The next observations are normalized as a checkpoint would restore them. With statistics there is only
            // one group.
            let raw = &self.groups[0].buffers.observations;
            flatten(self.envs.observation_space(), raw, &mut self.observations)?;
            normalizer.normalize(&mut self.observations)?;
        }
        Ok(())
    }

    /// Fills the rollout; `None` if `stop` was set before it was full.
    pub(super) fn collect<P: Policy>(
        &mut self,
        policy: &P,
        rng: &mut Rng,
        ranks: &Ranks,
        stop: Option<&AtomicBool>,
    ) -> Result<Option<Collected>> {
        let (steps, rows) = (self.rollout.steps, self.rollout.rows);
        let overlapped = self.groups.len() > 1;
        let remembers = self.groups.iter().any(|group| !group.state.parts().is_empty());
        self.rollout.states.clear();
        self.actor.forget();
        self.rollout.final_values.fill(0.0);
        self.env_seconds = 0.0;
        for step in 0..steps {
            if stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                return Ok(None);
            }
            if remembers && step.is_multiple_of(self.segment) {
                let state = self.state()?;
                self.rollout.states.push(state);
            }
            for group in 0..self.groups.len() {
                if overlapped && step > 0 {
                    self.receive(policy, group, step - 1)?;
                }
                self.act(policy, group, step, rng)?;
                if overlapped {
                    let rows = self.groups[group].rows.clone();
                    let len = self.chosen.len() / self.rollout.rows;
                    self.envs
                        .begin_step(group, &self.chosen[rows.start * len..rows.end * len])?;
                }
            }
            if !overlapped {
                self.receive(policy, 0, step)?;
            }
        }
        if overlapped {
            for group in 0..self.groups.len() {
                self.receive(policy, group, steps - 1)?;
            }
        }
        if let Some(normalizer) = &mut self.reward_normalizer {
            for ((rewards, terminated), truncated) in self
                .rollout
                .rewards
                .chunks_mut(rows)
                .zip(self.rollout.terminated.chunks(rows))
                .zip(self.rollout.truncated.chunks(rows))
            {
                normalizer.apply(rewards, terminated, truncated)?;
            }
        }
        self.share(ranks)?;
        let last = self.values(policy)?;
        self.rollout.last_values = last;
        Ok(Some(Collected {
            episodes: std::mem::take(&mut self.finished),
            env_seconds: self.env_seconds,
        }))
    }

    /// The values of the policy's next observations.
    pub(super) fn values<P: Policy>(&mut self, policy: &P) -> Result<Vec<f32>> {
        let width = self.rollout.widths.observation;
        let mut values = Vec::with_capacity(self.rollout.rows);
        for group in &self.groups {
            let rows = group.rows.clone();
            let seen = &self.observations[rows.start * width..rows.end * width];
            let answer = self
                .actor
                .run(policy, (seen, &self.shape), &self.starts[rows], &group.state)?;
            values.extend(answer.values);
        }
        Ok(values)
    }

    /// Chooses the actions of a step.
    fn act<P: Policy>(&mut self, policy: &P, group: usize, step: usize, rng: &mut Rng) -> Result<()> {
        let (rollout, group) = (&mut self.rollout, &mut self.groups[group]);
        let rows = group.rows.clone();
        let at = step * rollout.rows + rows.start..step * rollout.rows + rows.end;
        let scaled = |range: &Range<usize>, width: usize| range.start * width..range.end * width;
        let widths = rollout.widths;
        let seen = &self.observations[scaled(&rows, widths.observation)];
        rollout.observations[scaled(&at, widths.observation)].copy_from_slice(seen);
        rollout.starts[at.clone()].copy_from_slice(&self.starts[rows.clone()]);
        if let Some(masks) = self.envs.action_masks() {
            rollout.masks[scaled(&at, widths.mask)].copy_from_slice(&masks[scaled(&rows, widths.mask)]);
        }
        let answer = self
            .actor
            .run(policy, (seen, &self.shape), &self.starts[rows.clone()], &group.state)?;
        rollout.values[at.clone()].copy_from_slice(&answer.values);
        let count = rows.len();
        for (i, row) in rows.enumerate() {
            let at = at.start + i;
            let mask = (widths.mask > 0).then(|| &rollout.masks[at * widths.mask..(at + 1) * widths.mask]);
            let mut params = answer.row(i, count, mask);
            if let Some(exploration) = &mut self.exploration {
                let [features, log_std] = &answer.noise;
                let len = features.len() / count;
                let features = &features[i * len..(i + 1) * len];
                params.noise = exploration.noise((row, step), features, log_std, rng);
            }
            let action = &mut rollout.actions[at * widths.action..(at + 1) * widths.action];
            let log_prob = choose(&self.actions, &params, Some(rng), action);
            if !log_prob.is_finite() || !rollout.values[at].is_finite() {
                return Err(no_numbers());
            }
            rollout.log_probs[at] = log_prob;
            let chosen = &mut self.chosen[row * widths.action..(row + 1) * widths.action];
            for_environment(self.envs.action_space(), action, chosen);
        }
        group.state = answer.state;
        Ok(())
    }

    /// Takes the results of a step.
    fn receive<P: Policy>(&mut self, policy: &P, number: usize, step: usize) -> Result<()> {
        let overlapped = self.groups.len() > 1;
        let group = &mut self.groups[number];
        let rows = group.rows.clone();
        let started = Instant::now();
        match overlapped {
            true => self.envs.finish_step(number, &mut group.buffers.as_mut())?,
            false => self.envs.step(&self.chosen, &mut group.buffers.as_mut())?,
        }
        self.env_seconds += started.elapsed().as_secs_f64();
        let (rollout, buffers) = (&mut self.rollout, &group.buffers);
        let at = step * rollout.rows + rows.start..step * rollout.rows + rows.end;
        rollout.rewards[at.clone()].copy_from_slice(&buffers.rewards);
        rollout.terminated[at.clone()].copy_from_slice(&buffers.terminated);
        rollout.truncated[at.clone()].copy_from_slice(&buffers.truncated);
        if let Some(begun) = self.envs.begun() {
            rollout.begun[at.clone()].copy_from_slice(&begun[rows.clone()]);
        }
        let (terminated, truncated) = (&buffers.terminated, &buffers.truncated);
        self.statistics.add(
            rows.clone(),
            &buffers.rewards,
            terminated,
            truncated,
            &mut self.finished,
        )?;
        self.statistics.begin(self.envs.begun());
        for (i, (terminated, truncated)) in terminated.iter().zip(truncated).enumerate() {
            let ended = *terminated || *truncated;
            rollout.ended[at.start + i] = ended;
            self.starts[rows.start + i] = f32::from(ended);
        }
        let cut = |i: usize| truncated[i] && !terminated[i];
        if self.bootstrap && (0..rows.len()).any(cut) {
            let mut seen = vec![0.0; rows.len() * rollout.widths.observation];
            flatten(self.envs.observation_space(), &buffers.final_observations, &mut seen)?;
            if let Some(normalizer) = &self.observation_normalizer {
                normalizer.normalize(&mut seen)?;
            }
            let starts = vec![0.0; rows.len()];
            let answer = self.actor.run(policy, (&seen, &self.shape), &starts, &group.state)?;
            for i in (0..rows.len()).filter(|i| cut(*i)) {
                rollout.final_values[at.start + i] = answer.values[i];
            }
        }
        let raw = std::mem::take(&mut group.buffers.observations);
        let outcome = self.see(rows, &raw);
        self.groups[number].buffers.observations = raw;
        outcome
    }
}

#[cold]
fn no_numbers() -> Error {
    wrong("the policy computes NaN or infinity".to_owned())
        .with_hint("take a lower learning rate; if it happens at once, look at the observations")
}
