//! The environments of one thread.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use polygrad_core::{Error, Result, Rng};

use super::saved::{Episode, MOST_STEPS};
use crate::fault::{not_finite, panicked};
use crate::hash::Hash;
use crate::{Env, Space, Step, StepSlices};

/// The generator of an episode in [`Vectorized`](crate::Vectorized): with it, a single environment repeats the episode.
///
/// `index` is below 2³¹ and `episode`, counted from 0 after a reset, below 2³².
pub fn episode_rng(seed: u64, index: usize, episode: u64) -> Rng {
    // The top bit keeps the counters apart from those of `Rng::new(seed)`, which begin at 0.
    Rng::new(Rng::at(seed, 1 << 63 | (index as u64) << 32 | episode).next_u64())
}

pub(super) struct Spaces {
    pub(super) observation: Space,
    pub(super) action: Space,
    /// The length of an agent's mask; 0 if all actions are allowed.
    pub(super) mask_len: usize,
}

struct Slot<E> {
    env: E,
    rng: Rng,
    episode: u64,
    step: u64,
    /// Actions of the running episode, up to the first [`MOST_STEPS`].
    actions: Vec<f32>,
}

impl<E> Slot<E> {
    fn begin<const A: usize>(&mut self, seed: u64, index: usize, observation: &mut [f32]) -> Result<(), String>
    where
        E: Env<A>,
    {
        self.step = 0;
        self.actions.clear();
        self.rng = episode_rng(seed, index, self.episode);
        self.env.reset(&mut self.rng, observation);
        is_finite(observation)
    }

    #[inline]
    fn step<const A: usize>(&mut self, action: &[f32], observation: &mut [f32]) -> Result<Step<A>, String>
    where
        E: Env<A>,
    {
        self.step += 1;
        if self.step <= MOST_STEPS {
            match action {
                // The usual case, which avoids a call to copy memory.
                [one] => self.actions.push(*one),
                _ => self.actions.extend_from_slice(action),
            }
        }
        let step = self.env.step(action, &mut self.rng, observation);
        is_finite(observation)?;
        Ok(step)
    }

    /// Replays the episode up to its saved step.
    fn play_again<const A: usize>(
        &mut self,
        spaces: &Spaces,
        saved: &Episode,
        observation: &mut [f32],
        mask: &mut [bool],
    ) -> Result<(), String>
    where
        E: Env<A>,
    {
        let width = A * spaces.action.len();
        if !mask.is_empty() {
            self.ask_mask(spaces, mask)?;
        }
        for number in 0..saved.steps as usize {
            let action = &saved.actions[number * width..(number + 1) * width];
            if !mask.is_empty() {
                let mut own = mask.chunks(spaces.mask_len).zip(action.chunks(spaces.action.len()));
                if !own.all(|(mask, action)| spaces.action.allows(mask, action)) {
                    return Err("no longer allows an action of its saved episode".to_owned());
                }
            }
            if self.step(action, observation)?.ended() {
                return Err("ended its saved episode before the last of its actions".to_owned());
            }
            if !mask.is_empty() {
                self.ask_mask(spaces, mask)?;
            }
        }
        if self.hash(observation) != saved.seen {
            return Err("shows something else than it did when it was saved".to_owned());
        }
        Ok(())
    }

    /// A hash of the observation and the generator.
    fn hash(&self, observation: &[f32]) -> u64 {
        Hash::new()
            .numbers(observation)
            .add(self.rng.clone().next_u64())
            .value()
    }

    fn ask_mask<const A: usize>(&self, spaces: &Spaces, mask: &mut [bool]) -> Result<(), String>
    where
        E: Env<A>,
    {
        mask.fill(true);
        self.env.action_mask(mask);
        spaces.action.check_masks(mask)
    }
}

#[inline]
fn is_finite(observation: &[f32]) -> Result<(), String> {
    if observation.iter().all(|x| x.is_finite()) {
        Ok(())
    } else {
        Err(not_finite(observation))
    }
}

#[inline]
pub(super) fn is_in(space: &Space, action: &[f32]) -> bool {
    match space {
        // Beyond the bounds the environment itself may clip.
        Space::Box { .. } => action.iter().all(|x| x.is_finite()),
        _ => space.contains(action),
    }
}

#[cold]
pub(super) fn not_allowed<const A: usize>(space: &Space, action: &[f32], row: usize) -> Error {
    let what = match space {
        Space::Box { .. } => "which is not finite".to_owned(),
        _ if space.contains(action) => "which its mask does not allow".to_owned(),
        _ => format!("which is not in {space:?}"),
    };
    let agent = if A > 1 {
        format!("agent {} of ", row % A)
    } else {
        String::new()
    };
    let index = row / A;
    Error::invalid(format!(
        "{agent}environment {index} was given the action {action:?}, {what}"
    ))
    .with_hint("look at what chooses the actions; no environment has taken the step")
}

pub(super) struct Shard<E, const A: usize> {
    slots: Vec<Slot<E>>,
    /// The index of the first environment among all.
    first: usize,
    seed: u64,
    spaces: Arc<Spaces>,
    /// Observations, `[rows, observation_space().len()]`.
    seen: Vec<f32>,
}

impl<E: Env<A>, const A: usize> Shard<E, A> {
    pub(super) fn new(envs: Vec<E>, first: usize, spaces: &Arc<Spaces>) -> Self {
        let slot = |env| Slot {
            env,
            rng: Rng::new(0),
            episode: 0,
            step: 0,
            // Longer episodes make it grow.
            actions: Vec::with_capacity(A * spaces.action.len() * 128),
        };
        Self {
            seen: vec![0.0; envs.len() * A * spaces.observation.len()],
            slots: envs.into_iter().map(slot).collect(),
            first,
            seed: 0,
            spaces: spaces.clone(),
        }
    }

    /// Its rows among those of all shards.
    pub(super) fn rows(&self) -> Range<usize> {
        self.first * A..(self.first + self.slots.len()) * A
    }

    pub(super) fn observation_len(&self) -> usize {
        self.spaces.observation.len()
    }

    pub(super) fn masks_len(&self) -> usize {
        self.rows().len() * self.spaces.mask_len
    }

    pub(super) fn reset(&mut self, seed: u64, observations: &mut [f32], masks: &mut [bool]) -> Result<()> {
        self.seed = seed;
        self.guarded(|shard, at| {
            let (width, mask_len) = (A * shard.observation_len(), A * shard.spaces.mask_len);
            for (i, slot) in shard.slots.iter_mut().enumerate() {
                *at = i;
                slot.episode = 0;
                slot.begin(seed, shard.first + i, &mut observations[i * width..(i + 1) * width])?;
                if mask_len > 0 {
                    slot.ask_mask(&shard.spaces, &mut masks[i * mask_len..(i + 1) * mask_len])?;
                }
            }
            shard.seen.copy_from_slice(observations);
            Ok(())
        })
    }

    pub(super) fn step(&mut self, actions: &[f32], out: &mut StepSlices<'_>, masks: &mut [bool]) -> Result<()> {
        self.guarded(|shard, at| shard.step_all(actions, out, masks, at))
    }

    fn step_all(
        &mut self,
        actions: &[f32],
        out: &mut StepSlices<'_>,
        masks: &mut [bool],
        at: &mut usize,
    ) -> Result<(), String> {
        let (width, action_len) = (A * self.observation_len(), self.spaces.action.len());
        let mask_len = A * self.spaces.mask_len;
        for (i, slot) in self.slots.iter_mut().enumerate() {
            *at = i;
            let action = &actions[i * A * action_len..(i + 1) * A * action_len];
            let numbers = i * width..(i + 1) * width;
            let observation = &mut out.observations[numbers.clone()];
            let step = slot.step(action, observation)?;
            for (agent, reward) in step.rewards.iter().enumerate() {
                let row = i * A + agent;
                // A reward too large for f32 is infinite, too.
                let narrow = *reward as f32;
                if !narrow.is_finite() {
                    return Err(format!("gave the reward {reward:?} to agent {agent}"));
                }
                out.rewards[row] = narrow;
                out.terminated[row] = step.terminated;
                out.truncated[row] = step.truncated;
            }
            if step.ended() {
                out.final_observations[numbers].copy_from_slice(observation);
                slot.episode += 1;
                slot.begin(self.seed, self.first + i, observation)?;
            }
            if mask_len > 0 {
                slot.ask_mask(&self.spaces, &mut masks[i * mask_len..(i + 1) * mask_len])?;
            }
        }
        self.seen.copy_from_slice(out.observations);
        Ok(())
    }

    /// Saves the running episodes.
    pub(super) fn save(&self) -> Result<Vec<Episode>> {
        let width = A * self.observation_len();
        let save = |(i, slot): (usize, &Slot<E>)| {
            if slot.step > MOST_STEPS {
                let (index, steps) = (self.first + i, slot.step);
                return Err(Error::invalid(format!(
                    "environment {index} has done {steps} steps in its episode, of which only {MOST_STEPS} are kept"
                ))
                .with_hint("a `TimeLimit` makes episodes shorter"));
            }
            Ok(Episode {
                number: slot.episode,
                steps: slot.step,
                actions: slot.actions.clone(),
                seen: slot.hash(&self.seen[i * width..(i + 1) * width]),
            })
        };
        self.slots.iter().enumerate().map(save).collect()
    }

    /// Continues from the result of [`save`](Self::save) with the same number of environments.
    pub(super) fn restore(
        &mut self,
        seed: u64,
        episodes: &[Episode],
        observations: &mut [f32],
        masks: &mut [bool],
    ) -> Result<()> {
        self.seed = seed;
        self.guarded(|shard, at| {
            let (width, mask_len) = (A * shard.observation_len(), A * shard.spaces.mask_len);
            for (i, (slot, saved)) in shard.slots.iter_mut().zip(episodes).enumerate() {
                *at = i;
                slot.episode = saved.number;
                let observation = &mut observations[i * width..(i + 1) * width];
                slot.begin(seed, shard.first + i, observation)?;
                let mask = &mut masks[i * mask_len..(i + 1) * mask_len];
                slot.play_again(&shard.spaces, saved, observation, mask)?;
            }
            shard.seen.copy_from_slice(observations);
            Ok(())
        })
    }

    /// Runs a function that steps environments; the error names the environment that failed, and its step.
    fn guarded(&mut self, work: impl FnOnce(&mut Self, &mut usize) -> Result<(), String>) -> Result<()> {
        let mut at = 0;
        // One guard for all environments, since after a panic they can only be reset.
        let outcome = catch_unwind(AssertUnwindSafe(|| work(self, &mut at)));
        let Err(what) = outcome.unwrap_or_else(|payload| Err(panicked(&*payload))) else {
            return Ok(());
        };
        let (index, seed, slot) = (self.first + at, self.seed, &self.slots[at]);
        let (episode, step) = (slot.episode, slot.step);
        let place = if step == 0 {
            "its reset".to_owned()
        } else {
            format!("step {step}")
        };
        Err(Error::invalid(format!(
            "environment {index} {what} (seed {seed}, episode {episode}, {place})"
        ))
        .with_hint(format!(
            "`episode_rng({seed}, {index}, {episode})` begins this episode again, and `check_env` tests an environment"
        )))
    }
}
