//! Statistics over steps: returns, means and variances. Wrappers and trainers keep them, and serde saves them.

pub(crate) mod bootstrap;
mod episodes;
mod normalizer;
pub(crate) mod recent;
mod running;

pub use episodes::{Episode, EpisodeStatistics};
pub use normalizer::{ObservationNormalizer, RewardNormalizer};
pub use running::RunningMeanStd;
