//! Environments for reinforcement learning: Gymnasium's classic ones, a trait for your own, and many of them at once.
//!
//! An [`Env`] is one environment, a [`VectorEnv`] many that step together and write into the caller's memory.
//! [`Vectorized`] makes the second out of the first, in one thread or several, with the same numbers. [`check_env`]
//! finds faults of your own environment.
//!
//! ```
//! use polygrad_rl::{CartPole, StepBuffers, VectorEnv, Vectorized};
//! # fn main() -> polygrad_core::Result<()> {
//! let mut envs = Vectorized::new(|_| CartPole::v1(), 8)?;
//! let mut buffers = StepBuffers::new(&envs);
//! envs.reset(0, &mut buffers.observations)?;
//! for step in 0..100 {
//!     let actions = [(step % 2) as f32; 8];
//!     envs.step(&actions, &mut buffers.as_mut())?;
//! }
//! assert!(buffers.rewards.iter().all(|reward| *reward == 1.0));
//! # Ok(())
//! # }
//! ```

mod act;
mod agent;
mod annealed;
mod check;
mod dqn;
mod env;
mod envs;
mod experience;
mod fault;
#[cfg(feature = "gym")]
pub mod gym;
mod hash;
mod imitation;
mod mask;
mod off_policy;
mod policy;
mod ppo;
mod pqn;
mod ranges;
#[cfg(feature = "onnx")]
mod record;
mod render;
mod replay;
mod sac;
mod self_play;
mod space;
mod statistics;
mod td3;
mod vector;
mod vectorized;
mod wrappers;
pub mod zoo;

pub use act::{EvaluateConfig, Evaluation, Play, Player, evaluate};
pub use agent::Agent;
pub use annealed::Annealed;
pub use check::check_env;
pub use dqn::{Dqn, DqnBatch, DqnConfig, DqnLosses, DqnVariant, dqn_loss};
pub use env::{Env, Step};
pub use envs::{
    Acrobot, CartPole, ConnectFour, GridWorld, MountainCar, MountainCarContinuous, Pendulum, TMaze, TicTacToe,
};
pub use imitation::{
    BcConfig, BcLosses, BehaviorCloning, Demonstrations, DistillConfig, Distillation, Imitator, Supervisor, bc_loss,
    distillation_loss,
};
pub use off_policy::{ActorCritics, ExplorationNoise, OffPolicy};
pub use policy::{
    ActionDistribution, ActionParams, ActionSpace, ActionValue, ActorCritic, BoundedPolicy, CnnEncoderConfig,
    ConvLayer, EncoderConfig, MemoryConfig, MemoryKind, MlpEncoderConfig, NormalizedPolicy, Normalizer, Policy,
    PolicyConfig, PolicyOutput, PolicyState, QNetwork, StateDependentNoise,
};
pub use polygrad_core::Rng;
pub use polygrad_plot::{Canvas, Colour, Point};
pub use ppo::{AdvantageNorm, Iteration, Outcomes, Ppo, PpoBatch, PpoConfig, PpoLosses, PpoWeights, gae, ppo_loss};
pub use pqn::{ParallelQLearning, Pqn, PqnConfig, pqn_loss, q_lambda};
#[cfg(feature = "onnx")]
pub use record::record_policy;
pub use render::Render;
pub use replay::{PriorityConfig, ReplayBuffer, Transition};
pub use sac::{Sac, SacConfig, SacLosses, SacStep};
pub use self_play::{
    Contest, Game, Outcome, Rival, Scripted, SelfPlay, SelfPlayConfig, Standing, contest, contest_in_full,
};
pub use space::Space;
pub use statistics::{Episode, EpisodeStatistics, ObservationNormalizer, RewardNormalizer, RunningMeanStd};
pub use td3::{Td3, Td3Config, Td3Losses, Td3Step};
pub use vector::{StepBuffers, StepSlices, VectorEnv};
pub use vectorized::{Vectorized, episode_rng};
pub use wrappers::{
    ActionRepeat, FrameStack, NormalizeObservation, NormalizeReward, RecordEpisodeStatistics, TimeLimit,
};
