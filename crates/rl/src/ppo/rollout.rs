//! What happened in some steps of all environments.

use polygrad_tensor::{Device, Result, Tensor};

use super::advantage::Outcomes;
use crate::{ActionSpace, PolicyState};

/// Memory for `T` steps of `N` rows, step by step: everything that a policy is trained on.
pub(super) struct Rollout {
    pub(super) steps: usize,
    pub(super) rows: usize,
    /// Numbers of an observation, of an action, and of a mask; the last is 0 without masks.
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
    /// Either of both.
    pub(super) ended: Vec<bool>,
    /// 0 but where an episode was cut short.
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
    pub(super) fn new(steps: usize, rows: usize, observation: usize, action: &ActionSpace, masked: bool) -> Self {
        let len = steps * rows;
        let widths = Widths {
            observation,
            action: action.len(),
            mask: if masked { action.outputs() } else { 0 },
        };
        Self {
            steps,
            rows,
            widths,
            observations: vec![0.0; len * widths.observation],
            actions: vec![0.0; len * widths.action],
            masks: vec![true; len * widths.mask],
            log_probs: vec![0.0; len],
            values: vec![0.0; len],
            rewards: vec![0.0; len],
            starts: vec![0.0; len],
            terminated: vec![false; len],
            truncated: vec![false; len],
            ended: vec![false; len],
            final_values: vec![0.0; len],
            last_values: vec![0.0; rows],
            states: Vec::new(),
        }
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

    /// All of it on a device, row after row: `[T * N, …]`.
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
