use polygrad_core::Rng;

use super::{between, valley};
use crate::{Canvas, Env, Render, Space, Step, TimeLimit};

/// Drive out of a valley with a motor too weak to climb at once: Gymnasium's `MountainCar`.
///
/// Observation `[2]`: position and velocity. Actions 0, 1, 2: push left, not at all, right. The reward is −1 for each
/// step. The episode terminates at the position 0.5.
///
/// Source: Moore, "Efficient memory-based learning for robot control" (1990).
#[derive(Clone, Debug, Default)]
pub struct MountainCar {
    state: [f64; 2],
}

const GOAL: f64 = 0.5;
const FORCE: f64 = 0.001;

impl MountainCar {
    /// Without a time limit.
    pub fn new() -> Self {
        Self::default()
    }

    /// `MountainCar-v0`: at most 200 steps.
    pub fn v0() -> TimeLimit<Self> {
        TimeLimit::at(Self::new(), 200)
    }

    /// Position and velocity.
    pub fn state(&self) -> [f64; 2] {
        self.state
    }

    /// Sets the state to continue from.
    pub fn set_state(&mut self, state: [f64; 2]) {
        self.state = state;
    }
}

impl Env for MountainCar {
    fn observation_space(&self) -> Space {
        valley::observation_space()
    }

    fn action_space(&self) -> Space {
        Space::discrete(3)
    }

    fn reset(&mut self, rng: &mut Rng, observation: &mut [f32]) {
        self.state = [between(rng, -0.6, -0.4), 0.0];
        valley::observe(self.state, observation);
    }

    #[inline]
    fn step(&mut self, action: &[f32], _rng: &mut Rng, observation: &mut [f32]) -> Step {
        let force = (f64::from(action[0]) - 1.0) * FORCE;
        let gained = force - valley::pull(self.state[0], |x| x);
        let arrived;
        (self.state, arrived) = valley::drive(self.state, gained, GOAL, |x| x);
        valley::observe(self.state, observation);
        Step::new(-1.0, arrived)
    }
}

impl Render for MountainCar {
    fn size(&self) -> [f32; 2] {
        valley::SIZE
    }

    fn fps(&self) -> f64 {
        30.0
    }

    fn render(&self, canvas: &mut Canvas) {
        valley::draw(canvas, self.state[0], GOAL);
    }
}
