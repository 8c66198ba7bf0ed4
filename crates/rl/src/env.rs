//! One environment.

use polygrad_core::Rng;

use crate::Space;

/// What a step of an environment with `A` agents gives, beside the observation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step<const A: usize = 1> {
    /// The reward of each agent.
    pub rewards: [f64; A],
    /// Whether the episode ended in a terminal state, from which nothing more is to be had.
    pub terminated: bool,
    /// Whether the episode was cut short, as by a time limit; the state has a value still.
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

/// An environment with `A` agents, one unless said otherwise.
///
/// Actions and observations are numbers in slices: of each agent as many as [`Space::len`] says, agents one after
/// another. An action in [`Space::Discrete`] is one number, `action[0] as usize` (`as i64` when the space starts below
/// 0).
///
/// All chance comes from the generator that is handed in, so that an episode depends on its seed and actions alone.
/// Nothing is kept over [`reset`](Self::reset) that later episodes depend on. [`check_env`](crate::check_env) looks at
/// both.
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
    /// What one agent observes; the same whenever it is asked.
    fn observation_space(&self) -> Space;

    /// What one agent does; the same whenever it is asked.
    fn action_space(&self) -> Space;

    /// Begins an episode, and writes the first observation of every agent.
    fn reset(&mut self, rng: &mut Rng, observation: &mut [f32]);

    /// Does the actions of every agent, and writes what they then observe.
    ///
    /// Discrete actions are in their space and allowed by the mask, continuous ones finite: callers see to that.
    /// Whether an action beyond the bounds of a [`Space::Box`] is clipped is the environment's own affair, as in
    /// Gymnasium. What a step after the end of an episode gives means nothing, but it does not panic.
    fn step(&mut self, action: &[f32], rng: &mut Rng, observation: &mut [f32]) -> Step<A>;

    /// Whether an agent has nothing to choose in the next step, as a player while it is the other's turn. Its action
    /// does nothing then, but is one that the mask allows. Asked after each reset and each step, though not at the end
    /// of an episode. Default: never.
    fn waits(&self, agent: usize) -> bool {
        let _ = agent;
        false
    }

    /// Whether there are actions that are not allowed in every state; the same whenever it is asked.
    fn has_action_mask(&self) -> bool {
        false
    }

    /// Says which actions each agent may do next: of each agent [`flat_len`](Space::flat_len) entries of the action
    /// space, agents one after another. All are true when it is called, and the environment makes those false that are
    /// not allowed.
    ///
    /// It is called after each reset and each step, if [`has_action_mask`](Self::has_action_mask), though not at the
    /// end of an episode. Only the actions of [`Space::Discrete`] and [`Space::MultiDiscrete`] can be masked, and in
    /// each choice one value at least is allowed.
    fn action_mask(&self, mask: &mut [bool]) {
        let _ = mask;
    }
}
