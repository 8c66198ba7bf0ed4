use polygrad_core::Rng;

use super::between;
use crate::{Env, Space, Step, TimeLimit};

/// [`MountainCar`](crate::MountainCar) with a force of any size: Gymnasium's `MountainCarContinuous`.
///
/// Observation `[2]`: position and velocity. Action `[1]`: the force, clipped to −1 to 1. The reward is −0.1 times the square of the force
/// before it was clipped, and 100 for the step that terminates, at the position 0.45.
///
/// As Gymnasium's with NumPy 2, it computes in f64 in the first step, and in f32 from then on.
///
/// Source: Moore, "Efficient memory-based learning for robot control" (1990).
#[derive(Clone, Debug)]
pub struct MountainCarContinuous {
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    First([f64; 2]),
    Later([f32; 2]),
}

const LEFT: f64 = -1.2;
const RIGHT: f64 = 0.6;
const MAX_SPEED: f64 = 0.07;
const GOAL: f64 = 0.45;
const POWER: f64 = 0.0015;

impl MountainCarContinuous {
    /// Without a time limit.
    pub fn new() -> Self {
        Self {
            state: State::First([0.0; 2]),
        }
    }

    /// `MountainCarContinuous-v0`: at most 999 steps.
    pub fn v0() -> TimeLimit<Self> {
        TimeLimit::new(Self::new(), 999)
    }

    /// Position and velocity.
    pub fn state(&self) -> [f64; 2] {
        match self.state {
            State::First(state) => state,
            State::Later(state) => state.map(f64::from),
        }
    }

    /// Goes on from a state, in f64 for the first step if it is that of a reset, or else in f32.
    pub fn set_state(&mut self, state: [f64; 2], after_reset: bool) {
        self.state = if after_reset {
            State::First(state)
        } else {
            State::Later(state.map(|x| x as f32))
        };
    }

    fn observe(&self, observation: &mut [f32]) {
        let [position, velocity] = self.state();
        observation[0] = position as f32;
        observation[1] = velocity as f32;
    }
}

impl Default for MountainCarContinuous {
    fn default() -> Self {
        Self::new()
    }
}

/// What the velocity changes by. A force within the bounds is an f32, and what is clipped is a number of Python.
fn gained(force: f32, pull: f64) -> f64 {
    if force > 1.0 {
        POWER - pull
    } else if force < -1.0 {
        -POWER - pull
    } else {
        f64::from(force * POWER as f32 - pull as f32)
    }
}

fn first_step([position, velocity]: [f64; 2], force: f32) -> ([f32; 2], bool) {
    let velocity = velocity + gained(force, 0.0025 * (3.0 * position).cos());
    let mut velocity = velocity.clamp(-MAX_SPEED, MAX_SPEED);
    let position = (position + velocity).clamp(LEFT, RIGHT);
    if position == LEFT && velocity < 0.0 {
        velocity = 0.0;
    }
    ([position as f32, velocity as f32], position >= GOAL && velocity >= 0.0)
}

fn later_step([position, velocity]: [f32; 2], force: f32) -> ([f32; 2], bool) {
    let pull = 0.0025 * f64::from(3.0 * position).cos();
    let velocity = velocity + gained(force, pull) as f32;
    let mut velocity = velocity.clamp(-MAX_SPEED as f32, MAX_SPEED as f32);
    let position = (position + velocity).clamp(LEFT as f32, RIGHT as f32);
    if position == LEFT as f32 && velocity < 0.0 {
        velocity = 0.0;
    }
    ([position, velocity], position >= GOAL as f32 && velocity >= 0.0)
}

impl Env for MountainCarContinuous {
    fn observation_space(&self) -> Space {
        let speed = MAX_SPEED as f32;
        Space::boxed(&[LEFT as f32, -speed], &[RIGHT as f32, speed])
    }

    fn action_space(&self) -> Space {
        Space::boxed(&[-1.0], &[1.0])
    }

    fn reset(&mut self, rng: &mut Rng, observation: &mut [f32]) {
        self.state = State::First([between(rng, -0.6, -0.4), 0.0]);
        self.observe(observation);
    }

    fn step(&mut self, action: &[f32], _rng: &mut Rng, observation: &mut [f32]) -> Step {
        let force = action[0];
        let (state, arrived) = match self.state {
            State::First(state) => first_step(state, force),
            State::Later(state) => later_step(state, force),
        };
        self.state = State::Later(state);
        self.observe(observation);
        let square = f64::from(force) * f64::from(force);
        Step::new(if arrived { 100.0 } else { 0.0 } - square * 0.1, arrived)
    }
}
