//! Transitions over several steps.

use std::collections::VecDeque;

use polygrad_core::Result;
use serde::{Deserialize, Serialize};

use super::{ReplayBuffer, Transition};

/// Puts steps together to transitions over `n` of them, or over fewer before the end of an episode:
/// `r_t + γ r_{t+1} + … + γ^{n−1} r_{t+n−1}`, and what is observed then. With `n = 1` they are the steps themselves.
pub(crate) struct NStep {
    steps: usize,
    gamma: f64,
    /// The transitions of each row that are not over, the oldest first.
    pub(crate) rows: Vec<VecDeque<Begun>>,
}

/// A transition that is not over.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Begun {
    observation: Vec<f32>,
    action: Vec<f32>,
    /// The sum so far.
    reward: f64,
    /// What a reward counts that comes next.
    discount: f64,
}

/// A step of one row, and how it ended.
pub(crate) struct Happened<'a> {
    pub(crate) observation: &'a [f32],
    pub(crate) action: &'a [f32],
    pub(crate) reward: f32,
    /// What was seen then: of an episode that ended, its last observation.
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

    /// Takes a step, and gives `replay` the transitions that are over with it. Where a time limit cuts an episode
    /// short, the value of its last observation still counts.
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

    /// Whether a state is one of these rows, steps and widths.
    pub(crate) fn fits(&self, rows: &[VecDeque<Begun>], (observation, action): (usize, usize)) -> bool {
        let fits = |begun: &Begun| begun.observation.len() == observation && begun.action.len() == action;
        rows.len() == self.rows.len() && rows.iter().all(|row| row.len() < self.steps && row.iter().all(fits))
    }
}
