//! What is counted over steps: returns, means and variances. Wrappers and trainers keep it, serde writes and reads it.

pub(crate) mod bootstrap;
mod episodes;
mod normalizer;
pub(crate) mod recent;
mod running;

pub use episodes::{Episode, EpisodeStatistics};
pub use normalizer::{ObservationNormalizer, RewardNormalizer};
pub use running::RunningMeanStd;
