//! The recorded steps of all environments.

use polygrad_core::{Rng, room};
use polygrad_tensor::{Device, Result, Tensor};

use super::advantage::Outcomes;
use super::config::wrong;
use crate::{ActionSpace, PolicyState};

/// Memory for `T` steps of `N` rows, step by step: everything that the training needs.
pub(super) struct Rollout {
    pub(super) steps: usize,
    pub(super) rows: usize,
    /// Lengths of an observation, an action, and a mask; the last is 0 without masks.
    pub(super) widths: Widths,
    pub(super) observations: Vec<f32>,
    pub(super) actions: Vec<f32>,
    pub(super) masks: Vec<bool>,
    pub(super) log_probs: Vec<f32>,
    pub(super) values: Vec<f32>,
    pub(super) rewards: Vec<f32>,
    pub(super) starts: Vec<f32>,
    pub(super) terminated: Vec<bool>,
    pub(super) truncated: Vec<bool>,
    /// Terminated or truncated.
    pub(super) ended: Vec<bool>,
    /// Whether the step only [begins](crate::VectorEnv::begun) an episode.
    pub(super) begun: Vec<bool>,
    /// 0 except where an episode was cut short.
    pub(super) final_values: Vec<f32>,
    pub(super) last_values: Vec<f32>,
    /// The policy's state before the first step of each segment.
    pub(super) states: Vec<PolicyState>,
}

#[derive(Clone, Copy)]
pub(super) struct Widths {
    pub(super) observation: usize,
    pub(super) action: usize,
    pub(super) mask: usize,
}

impl Rollout {
    /// # Errors
    /// If there is too little memory.
    pub(super) fn new(
        steps: usize,
        rows: usize,
        observation: usize,
        action: &ActionSpace,
        masked: bool,
    ) -> Result<Self> {
        let len = steps * rows;
        let widths = Widths {
            observation,
            action: action.len(),
            mask: if masked { action.outputs() } else { 0 },
        };
        Ok(Self {
            steps,
            rows,
            widths,
            observations: filled(len.saturating_mul(widths.observation), 0.0)?,
            actions: filled(len.saturating_mul(widths.action), 0.0)?,
            masks: filled(len.saturating_mul(widths.mask), true)?,
            log_probs: filled(len, 0.0)?,
            values: filled(len, 0.0)?,
            rewards: filled(len, 0.0)?,
            starts: filled(len, 0.0)?,
            terminated: filled(len, false)?,
            truncated: filled(len, false)?,
            ended: filled(len, false)?,
            begun: filled(len, false)?,
            final_values: filled(len, 0.0)?,
            last_values: filled(rows, 0.0)?,
            states: Vec::new(),
        })
    }

    pub(super) fn outcomes(&self) -> Outcomes<'_> {
        Outcomes {
            rewards: &self.rewards,
            values: &self.values,
            ended: &self.ended,
            final_values: &self.final_values,
            last_values: &self.last_values,
        }
    }

    /// Replaces steps that only began an episode by randomly chosen others, so that the number of steps stays the same.
    ///
    /// # Errors
    /// If there are no others.
    pub(super) fn replace_begun(&mut self, advantages: &mut [f32], returns: &mut [f32], rng: &mut Rng) -> Result<()> {
        if !self.begun.contains(&true) {
            return Ok(());
        }
        let others: Vec<usize> = (0..self.begun.len()).filter(|at| !self.begun[*at]).collect();
        if others.is_empty() {
            return Err(
                wrong("in all steps of the rollout episodes only began".to_owned()).with_hint("take more num_steps")
            );
        }
        let Widths {
            observation,
            action,
            mask,
        } = self.widths;
        for to in (0..self.begun.len()).filter(|at| self.begun[*at]) {
            let from = others[rng.below(others.len())];
            let wide = |width: usize| (from * width..(from + 1) * width, to * width);
            let (own, at) = wide(observation);
            self.observations.copy_within(own, at);
            let (own, at) = wide(action);
            self.actions.copy_within(own, at);
            let (own, at) = wide(mask);
            self.masks.copy_within(own, at);
            for column in [&mut self.log_probs[..], &mut self.values, advantages, returns] {
                column[to] = column[from];
            }
        }
        Ok(())
    }

    /// Copies everything to a device, row after row: `[T * N, …]`.
    pub(super) fn upload(
        &self,
        shape: &[usize],
        advantages: Vec<f32>,
        returns: Vec<f32>,
        device: &Device,
    ) -> Result<Uploaded> {
        let len = self.steps * self.rows;
        let column = |values: &[f32]| Tensor::from_vec(values.to_vec(), [len], device);
        let masks = match self.widths.mask {
            0 => None,
            width => Some(Tensor::from_vec(self.masks.clone(), [len, width], device)?),
        };
        let mut states = Vec::new();
        for part in 0..self.states.first().map_or(0, |state| state.parts().len()) {
            let parts: Vec<&Tensor> = self.states.iter().map(|state| &state.parts()[part]).collect();
            states.push(Tensor::cat(&parts, 1)?);
        }
        Ok(Uploaded {
            observations: Tensor::from_vec(self.observations.clone(), [&[len], shape].concat(), device)?,
            actions: Tensor::from_vec(self.actions.clone(), [len, self.widths.action], device)?,
            masks,
            log_probs: column(&self.log_probs)?,
            values: column(&self.values)?,
            starts: column(&self.starts)?,
            advantages: Tensor::from_vec(advantages, [len], device)?,
            returns: Tensor::from_vec(returns, [len], device)?,
            states,
        })
    }
}

/// A rollout on a device.
pub(super) struct Uploaded {
    pub(super) observations: Tensor,
    pub(super) actions: Tensor,
    pub(super) masks: Option<Tensor>,
    pub(super) log_probs: Tensor,
    pub(super) values: Tensor,
    pub(super) starts: Tensor,
    pub(super) advantages: Tensor,
    pub(super) returns: Tensor,
    /// `[layers, segments, hidden_size]` each.
    pub(super) states: Vec<Tensor>,
}

/// As `vec![value; len]`, but too little memory is an error.
fn filled<T: Clone>(len: usize, value: T) -> Result<Vec<T>> {
    let mut values = room(len)?;
    values.resize(len, value);
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_that_only_begin_an_episode_become_others() {
        let numbers = |width: usize| (0..4 * width).map(|i| (i / width) as f32).collect::<Vec<f32>>();
        let mut rollout = Rollout::new(2, 2, 3, &ActionSpace::Discrete(2), true).unwrap();
        rollout.observations = numbers(3);
        rollout.actions = numbers(1);
        (rollout.log_probs, rollout.values) = (numbers(1), numbers(1));
        rollout.masks = [false, true, true, true, true, false, true, true].to_vec();
        rollout.begun = [false, true, false, true].to_vec();
        let (mut advantages, mut returns) = (numbers(1), numbers(1));
        let mut rng = Rng::new(0);
        rollout.replace_begun(&mut advantages, &mut returns, &mut rng).unwrap();
        let from: Vec<usize> = advantages.iter().map(|x| *x as usize).collect();
        assert!(
            from[0] == 0 && from[2] == 2 && from.iter().all(|from| from % 2 == 0),
            "{from:?}"
        );
        for (to, &from) in from.iter().enumerate() {
            let expected = from as f32;
            let columns = [&rollout.actions, &rollout.log_probs, &rollout.values, &returns];
            assert!(columns.iter().all(|column| column[to] == expected));
            assert_eq!(rollout.observations[3 * to..3 * to + 3], [expected; 3]);
            assert_eq!(rollout.masks[2 * to..2 * to + 2], [from != 0, from != 2]);
        }
    }
}
