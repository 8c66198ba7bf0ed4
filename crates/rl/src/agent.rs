//! What all algorithms have that learn to act in environments.

use polygrad_core::{Result, Rng};
use polygrad_train::Learner;

use crate::statistics::recent::Recent;
use crate::{Episode, Policy, Standing};

/// The mean return says how good a policy is once it is that of so many episodes.
const JUDGED_BY: usize = 20;

/// A [`Learner`] that learns to act in environments, by whatever algorithm.
pub trait Agent: Learner {
    /// The name of the algorithm, as people write it.
    fn algorithm(&self) -> &'static str;

    /// Steps of all environments that it is to have in the end.
    fn total_steps(&self) -> u64;

    /// Steps of all environments in one [`Learner::advance`].
    fn steps_per_advance(&self) -> u64;

    /// How many numbers are learnt.
    fn num_parameters(&self) -> usize;

    /// The mean return of the last 100 episodes, or of those that there were; none before the first end of an episode.
    fn mean_return(&self) -> Option<f64>;

    /// The episodes that ended in the last [`Learner::advance`].
    fn episodes(&self) -> &[Episode];

    /// The policy as it is used elsewhere, which takes observations as environments give them.
    ///
    /// # Errors
    /// When memory runs out.
    fn trained_policy(&self) -> Result<Box<dyn Policy + '_>>;

    /// How strong it and its opponents are, where it has some. Default: it has none.
    fn standings(&self) -> Vec<Standing> {
        Vec::new()
    }
}

/// By which the best policy is kept.
pub(crate) fn score(recent: &Recent) -> Option<f64> {
    recent.mean_return().filter(|_| recent.len() >= JUDGED_BY)
}

/// The generator of an iteration: of all that is drawn in it.
pub(crate) fn iteration_rng(seed: u64, iteration: u64) -> Rng {
    // The two top bits keep the counters apart from those of environments and of `Rng::new(seed)`.
    Rng::new(Rng::at(seed, 3 << 62 | iteration).next_u64())
}
