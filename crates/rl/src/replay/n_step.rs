//! Transitions over several steps.

use std::collections::VecDeque;

use polygrad_core::Result;
use serde::{Deserialize, Serialize};

use super::{ReplayBuffer, Transition};

/// Combines steps into transitions over `n` steps, or fewer before the end of an episode: the reward is
/// `r_t + γ r_{t+1} + … + γ^{n−1} r_{t+n−1}`, followed by the observation after it. With `n = 1`, transitions are the
/// steps themselves.
pub(crate) struct NStep {
    steps: usize,
    gamma: f64,
    /// The unfinished transitions of each row, the oldest first.
    pub(crate) rows: Vec<VecDeque<Begun>>,
}

/// An unfinished transition.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Begun {
    observation: Vec<f32>,
    action: Vec<f32>,
    /// The sum of rewards so far.
    reward: f64,
    /// The factor of the next reward.
    discount: f64,
}

/// A step of one row, and its result.
pub(crate) struct Happened<'a> {
    pub(crate) observation: &'a [f32],
    pub(crate) action: &'a [f32],
    pub(crate) reward: f32,
    /// The next observation; if the episode ended, its last observation.
    pub(crate) next_observation: &'a [f32],
    pub(crate) terminated: bool,
    pub(crate) truncated: bool,
}

impl NStep {
    pub(crate) fn new(steps: usize, gamma: f64, rows: usize) -> Self {
        Self {
            steps,
            gamma,
            rows: vec![VecDeque::new(); rows],
        }
    }

    /// Adds a step, and pushes the transitions that it finishes to `replay`. If a time limit cuts an episode short, the
    /// value of its last observation still counts.
    pub(crate) fn add(&mut self, row: usize, step: &Happened<'_>, replay: &mut ReplayBuffer) -> Result<()> {
        let begun = &mut self.rows[row];
        begun.push_back(Begun {
            observation: step.observation.to_vec(),
            action: step.action.to_vec(),
            reward: 0.0,
            discount: 1.0,
        });
        for transition in begun.iter_mut() {
            transition.reward += transition.discount * f64::from(step.reward);
            transition.discount *= self.gamma;
        }
        let ended = step.terminated || step.truncated;
        while begun.len() >= self.steps || ended {
            let Some(over) = begun.pop_front() else { break };
            replay.push(&Transition {
                observation: &over.observation,
                action: &over.action,
                reward: over.reward as f32,
                discount: if step.terminated { 0.0 } else { over.discount as f32 },
                next_observation: step.next_observation,
            })?;
        }
        Ok(())
    }

    pub(crate) fn state(&self) -> Vec<VecDeque<Begun>> {
        self.rows.clone()
    }

    /// Whether a state fits these rows, steps and widths.
    pub(crate) fn fits(&self, rows: &[VecDeque<Begun>], (observation, action): (usize, usize)) -> bool {
        let fits = |begun: &Begun| begun.observation.len() == observation && begun.action.len() == action;
        rows.len() == self.rows.len() && rows.iter().all(|row| row.len() < self.steps && row.iter().all(fits))
    }
}
