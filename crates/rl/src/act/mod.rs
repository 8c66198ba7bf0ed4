//! Policies that act: in rollouts, in evaluations, in front of a viewer.

pub(crate) mod actor;
pub(crate) mod evaluate;
mod play;
mod player;
pub(crate) mod sampler;
pub(crate) mod spaces;

pub use evaluate::{EvaluateConfig, Evaluation, evaluate};
pub use play::Play;
#[cfg(all(feature = "gym", unix))]
pub(crate) use play::Scene;
pub use player::Player;
