//! What is counted over steps: returns, means and variances. Wrappers and trainers keep it, serde writes and reads it.

mod episodes;
mod normalizer;
mod running;

pub use episodes::{Episode, EpisodeStatistics};
pub use normalizer::{ObservationNormalizer, RewardNormalizer};
pub use running::RunningMeanStd;
