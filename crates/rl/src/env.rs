//! One environment.

use polygrad_core::Rng;

use crate::Space;

/// The result of a step of an environment with `A` agents, except the observation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step<const A: usize = 1> {
    /// The reward of each agent.
    pub rewards: [f64; A],
    /// Whether the episode ended in a terminal state, after which no more reward can follow.
    pub terminated: bool,
    /// Whether the episode was cut short, for example by a time limit; the last state still has a value.
    pub truncated: bool,
}

impl Step {
    /// The step of one agent, which ends the episode if `terminated`.
    pub fn new(reward: f64, terminated: bool) -> Self {
        Self {
            rewards: [reward],
            terminated,
            truncated: false,
        }
    }
}

impl<const A: usize> Step<A> {
    /// Whether the episode is over.
    pub fn ended(&self) -> bool {
        self.terminated || self.truncated
    }
}

/// An environment with `A` agents, by default one.
///
/// Actions and observations are slices of numbers: [`Space::len`] numbers for each agent, agents one after another. An
/// action in [`Space::Discrete`] is one number, `action[0] as usize` (`as i64` when the space starts below 0).
///
/// All randomness comes from the given generator, so that an episode depends only on its seed and actions. No state
/// that later episodes depend on survives [`reset`](Self::reset). [`check_env`](crate::check_env) checks both.
///
/// ```
/// use polygrad_rl::{Env, Rng, Space, Step};
///
/// /// Walk to the end of a corridor: action 1 goes on, action 0 back.
/// struct Corridor {
///     place: usize,
/// }
///
/// impl Env for Corridor {
///     fn observation_space(&self) -> Space {
///         Space::boxed(&[0.0], &[10.0])
///     }
///     fn action_space(&self) -> Space {
///         Space::discrete(2)
///     }
///     fn reset(&mut self, rng: &mut Rng, observation: &mut [f32]) {
///         self.place = rng.below(5);
///         observation[0] = self.place as f32;
///     }
///     fn step(&mut self, action: &[f32], _rng: &mut Rng, observation: &mut [f32]) -> Step {
///         self.place = if action[0] == 1.0 { self.place + 1 } else { self.place.saturating_sub(1) };
///         observation[0] = self.place as f32;
///         let arrived = self.place == 10;
///         Step::new(if arrived { 1.0 } else { -0.1 }, arrived)
///     }
/// }
/// # polygrad_rl::check_env(&mut Corridor { place: 0 }).unwrap();
/// ```
pub trait Env<const A: usize = 1> {
    /// The observation space of one agent; every call returns the same.
    fn observation_space(&self) -> Space;

    /// The action space of one agent; every call returns the same.
    fn action_space(&self) -> Space;

    /// Begins an episode, and writes the first observation of every agent.
    fn reset(&mut self, rng: &mut Rng, observation: &mut [f32]);

    /// Takes the actions of every agent and writes what they observe afterwards.
    ///
    /// Callers guarantee that discrete actions are in their space and allowed by the mask, and that continuous ones are
    /// finite. Whether an action beyond the bounds of a [`Space::Box`] is clipped is up to the environment, as in
    /// Gymnasium. The result of a step after the end of an episode is meaningless, but the step does not panic.
    fn step(&mut self, action: &[f32], rng: &mut Rng, observation: &mut [f32]) -> Step<A>;

    /// Whether an agent has no choice in the next step, like a player whose opponent is to move. Its action then has no
    /// effect, but must be one that the mask allows. Called after each reset and each step, except at the end of an
    /// episode. Default: never.
    fn waits(&self, agent: usize) -> bool {
        let _ = agent;
        false
    }

    /// Whether some actions are not allowed in every state; every call returns the same.
    fn has_action_mask(&self) -> bool {
        false
    }

    /// Marks the actions that each agent may take next: [`flat_len`](Space::flat_len) entries of the action space for
    /// each agent, agents one after another. All entries are true before the call, and the environment sets those of
    /// disallowed actions to false.
    ///
    /// Called after each reset and each step, except at the end of an episode, if
    /// [`has_action_mask`](Self::has_action_mask). Only the actions of [`Space::Discrete`] and [`Space::MultiDiscrete`]
    /// can be masked, and each choice must allow at least one value.
    fn action_mask(&self, mask: &mut [bool]) {
        let _ = mask;
    }
}
