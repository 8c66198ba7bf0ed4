//! The interface of all algorithms that learn to act in environments.

use polygrad_core::{Result, Rng};
use polygrad_train::Learner;

use crate::statistics::recent::Recent;
use crate::{Episode, Policy, Standing};

/// The least number of episodes whose mean return is used to judge a policy.
const JUDGED_BY: usize = 20;

/// A [`Learner`] that learns to act in environments, by any algorithm.
pub trait Agent: Learner {
    /// The usual name of the algorithm.
    fn algorithm(&self) -> &'static str;

    /// Steps of all environments in the whole training.
    fn total_steps(&self) -> u64;

    /// Steps of all environments in one [`Learner::advance`].
    fn steps_per_advance(&self) -> u64;

    /// The number of learned parameters.
    fn num_parameters(&self) -> usize;

    /// The mean return of the last 100 episodes, or of all if there were fewer; `None` before the first episode has
    /// ended.
    fn mean_return(&self) -> Option<f64>;

    /// The episodes that ended in the last [`Learner::advance`].
    fn episodes(&self) -> &[Episode];

    /// The policy for use after training, which takes observations as environments give them.
    ///
    /// # Errors
    /// When memory runs out.
    fn trained_policy(&self) -> Result<Box<dyn Policy + '_>>;

    /// The strengths of the agent and its opponents, if it has any. Default: none.
    fn standings(&self) -> Vec<Standing> {
        Vec::new()
    }
}

/// The score by which the best policy is selected.
pub(crate) fn score(recent: &Recent) -> Option<f64> {
    recent.mean_return().filter(|_| recent.len() >= JUDGED_BY)
}

/// The generator of all random numbers of an iteration.
pub(crate) fn iteration_rng(seed: u64, iteration: u64) -> Rng {
    // The two top bits keep the counters apart from those of environments and of `Rng::new(seed)`.
    Rng::new(Rng::at(seed, 3 << 62 | iteration).next_u64())
}
