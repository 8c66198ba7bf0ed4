//! Values of actions, from the rewards that followed.

use polygrad_tensor::Result;

use super::config::wrong;

/// A rollout of `T` steps in `N` rows, as slices of `T * N` numbers, step by step.
#[derive(Clone, Copy, Debug)]
pub struct Outcomes<'a> {
    /// The reward of each step.
    pub rewards: &'a [f32],
    /// The value of the observation before each step.
    pub values: &'a [f32],
    /// Whether the episode ended with the step, for any reason.
    pub ended: &'a [bool],
    /// The substitute for the rewards after the end of an episode: 0, or the value of its last observation if it was
    /// cut short.
    pub final_values: &'a [f32],
    /// The values of the observations after the last step, `N` of them.
    pub last_values: &'a [f32],
}

impl Outcomes<'_> {
    pub(crate) fn check(&self) -> Result<()> {
        let (len, rows) = (self.rewards.len(), self.last_values.len());
        let lens = [self.values.len(), self.ended.len(), self.final_values.len()];
        match rows > 0 && len.is_multiple_of(rows) && lens.iter().all(|other| *other == len) {
            true => Ok(()),
            false => Err(wrong(format!(
                "{len} rewards, {} values, {} ends and {} final values are not those of {rows} rows",
                lens[0], lens[1], lens[2]
            ))),
        }
    }

    /// Visits each row from its last step to its first. `f` receives the index of a step, the value after it, and its
    /// own result for the following step of the same episode, if there is one. At the end of an episode the value after
    /// the step is already 0 or the final value.
    pub(crate) fn backwards<S: Copy>(&self, mut f: impl FnMut(usize, f64, Option<S>) -> S) {
        let rows = self.last_values.len();
        for row in 0..rows {
            let mut after = None;
            let mut next = f64::from(self.last_values[row]);
            for at in (row..self.rewards.len()).step_by(rows).rev() {
                if self.ended[at] {
                    (after, next) = (None, f64::from(self.final_values[at]));
                }
                after = Some(f(at, next, after));
                next = f64::from(self.values[at]);
            }
        }
    }
}

/// The generalized advantage estimates, and the returns, which are the estimates plus the values.
///
/// `δ_t = r_t + γ V_{t+1} − V_t` and `A_t = δ_t + γ λ A_{t+1}`, within episodes.
///
/// Source: Schulman et al., "High-dimensional continuous control using generalized advantage estimation" (2015).
///
/// # Errors
/// If the lengths of the slices do not fit.
pub fn gae(outcomes: Outcomes<'_>, gamma: f64, lambda: f64) -> Result<(Vec<f32>, Vec<f32>)> {
    outcomes.check()?;
    let mut advantages = vec![0.0; outcomes.rewards.len()];
    let mut returns = advantages.clone();
    outcomes.backwards(|at, next, after: Option<f64>| {
        let value = f64::from(outcomes.values[at]);
        let delta = f64::from(outcomes.rewards[at]) + gamma * next - value;
        let advantage = delta + gamma * lambda * after.unwrap_or(0.0);
        advantages[at] = advantage as f32;
        returns[at] = (advantage + value) as f32;
        advantage
    });
    Ok((advantages, returns))
}
