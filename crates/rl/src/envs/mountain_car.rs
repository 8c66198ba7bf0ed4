use polygrad_core::Rng;

use super::between;
use crate::{Env, Space, Step, TimeLimit};

/// Drive out of a valley with a motor too weak to climb at once: Gymnasium's `MountainCar`.
///
/// Observation `[2]`: position and velocity. Actions 0, 1, 2: push left, not at all, right. The reward is −1 for each step. The episode
/// terminates at the position 0.5.
///
/// Source: Moore, "Efficient memory-based learning for robot control" (1990).
#[derive(Clone, Debug, Default)]
pub struct MountainCar {
    state: [f64; 2],
}

const LEFT: f64 = -1.2;
const RIGHT: f64 = 0.6;
const MAX_SPEED: f64 = 0.07;
const GOAL: f64 = 0.5;
const FORCE: f64 = 0.001;
const GRAVITY: f64 = 0.0025;

impl MountainCar {
    /// Without a time limit.
    pub fn new() -> Self {
        Self::default()
    }

    /// `MountainCar-v0`: at most 200 steps.
    pub fn v0() -> TimeLimit<Self> {
        TimeLimit::new(Self::new(), 200)
    }

    /// Position and velocity.
    pub fn state(&self) -> [f64; 2] {
        self.state
    }

    /// Goes on from a state.
    pub fn set_state(&mut self, state: [f64; 2]) {
        self.state = state;
    }

    fn observe(&self, observation: &mut [f32]) {
        observation[0] = self.state[0] as f32;
        observation[1] = self.state[1] as f32;
    }
}

impl Env for MountainCar {
    fn observation_space(&self) -> Space {
        let speed = MAX_SPEED as f32;
        Space::boxed(&[LEFT as f32, -speed], &[RIGHT as f32, speed])
    }

    fn action_space(&self) -> Space {
        Space::discrete(3)
    }

    fn reset(&mut self, rng: &mut Rng, observation: &mut [f32]) {
        self.state = [between(rng, -0.6, -0.4), 0.0];
        self.observe(observation);
    }

    #[inline]
    fn step(&mut self, action: &[f32], _rng: &mut Rng, observation: &mut [f32]) -> Step {
        let [position, velocity] = self.state;
        let pull = (3.0 * position).cos() * -GRAVITY;
        let velocity = velocity + ((f64::from(action[0]) - 1.0) * FORCE + pull);
        let mut velocity = velocity.clamp(-MAX_SPEED, MAX_SPEED);
        let position = (position + velocity).clamp(LEFT, RIGHT);
        if position == LEFT && velocity < 0.0 {
            velocity = 0.0;
        }
        self.state = [position, velocity];
        self.observe(observation);
        Step::new(-1.0, position >= GOAL && velocity >= 0.0)
    }
}
