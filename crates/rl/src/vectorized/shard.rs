//! The environments of one thread.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use polygrad_core::{Error, Result, Rng};

use crate::fault::{not_finite, panic_message};
use crate::{Env, Space, StepSlices};

/// The generator of an episode in [`Vectorized`](crate::Vectorized): with it, one environment alone does again what it did there.
///
/// `index` is below 2³¹ and `episode`, counted from 0 after a reset, below 2³².
pub fn episode_rng(seed: u64, index: usize, episode: u64) -> Rng {
    // The top bit keeps the counters apart from those of `Rng::new(seed)`, which begin at 0.
    Rng::new(Rng::at(seed, 1 << 63 | (index as u64) << 32 | episode).next_u64())
}

pub(super) struct Spaces {
    pub(super) observation: Space,
    pub(super) action: Space,
    /// How many entries the mask of an agent has; 0 where all actions are allowed.
    pub(super) mask_len: usize,
}

struct Slot<E> {
    env: E,
    rng: Rng,
    episode: u64,
    step: u64,
}

impl<E> Slot<E> {
    fn begin<const A: usize>(&mut self, seed: u64, index: usize, observation: &mut [f32]) -> Result<(), String>
    where
        E: Env<A>,
    {
        self.step = 0;
        self.rng = episode_rng(seed, index, self.episode);
        self.env.reset(&mut self.rng, observation);
        is_finite(observation)
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
        // Beyond the bounds an environment clips.
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
    /// The index of the first among all environments.
    first: usize,
    seed: u64,
    spaces: Arc<Spaces>,
}

impl<E: Env<A>, const A: usize> Shard<E, A> {
    pub(super) fn new(envs: Vec<E>, first: usize, spaces: &Arc<Spaces>) -> Self {
        let slot = |env| Slot {
            env,
            rng: Rng::new(0),
            episode: 0,
            step: 0,
        };
        Self {
            slots: envs.into_iter().map(slot).collect(),
            first,
            seed: 0,
            spaces: spaces.clone(),
        }
    }

    /// Its rows among all.
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
            slot.step += 1;
            let action = &actions[i * A * action_len..(i + 1) * A * action_len];
            let numbers = i * width..(i + 1) * width;
            let observation = &mut out.observations[numbers.clone()];
            let step = slot.env.step(action, &mut slot.rng, observation);
            is_finite(observation)?;
            for (agent, reward) in step.rewards.iter().enumerate() {
                let row = i * A + agent;
                // Too large for f32 is infinite too.
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
        Ok(())
    }

    /// Runs what steps environments, and says which of them failed where.
    fn guarded(&mut self, work: impl FnOnce(&mut Self, &mut usize) -> Result<(), String>) -> Result<()> {
        let mut at = 0;
        // One guard for all: after a panic they are only reset.
        let outcome = catch_unwind(AssertUnwindSafe(|| work(self, &mut at)));
        let Err(what) = outcome.unwrap_or_else(|payload| Err(panic_message(&*payload))) else {
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
