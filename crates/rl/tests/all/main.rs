//! The tests of this crate in one program, so that generic code is compiled once for all of them.

mod common;

mod actor_critic_values;
mod actor_critics;
mod begun;
mod check;
mod dqn;
mod dqn_values;
mod evaluate;
mod groups;
#[cfg(unix)]
mod gym;
mod gymnasium;
mod imitation;
mod lost_ranks;
mod masks;
mod pictures;
mod policies;
mod ppo;
mod ppo_iterations;
mod ppo_values;
mod pqn;
mod pqn_values;
mod ranks;
mod replay;
mod self_play;
mod state;
mod stopped;
#[cfg(unix)]
mod team;
mod vectorized;
mod wrappers;
