use polygrad_core::Rng;

use super::{between, valley};
use crate::{Canvas, Env, Render, Space, Step, TimeLimit};

/// [`MountainCar`](crate::MountainCar) with a force of any size: Gymnasium's `MountainCarContinuous`.
///
/// Observation `[2]`: position and velocity. Action `[1]`: the force, clipped to −1 to 1. The reward is −0.1 times the
/// square of the force before it was clipped, and 100 for the step that terminates, at the position 0.45.
///
/// Like Gymnasium with NumPy 2, it computes the first step in f64 and all later ones in f32.
///
/// Source: Moore, "Efficient memory-based learning for robot control" (1990).
#[derive(Clone, Debug, Default)]
pub struct MountainCarContinuous {
    state: [f64; 2],
    /// Whether a step was taken, after which the state is in f32.
    narrow: bool,
}

const GOAL: f64 = 0.45;
const POWER: f64 = 0.0015;

impl MountainCarContinuous {
    /// Without a time limit.
    pub fn new() -> Self {
        Self::default()
    }

    /// `MountainCarContinuous-v0`: at most 999 steps.
    pub fn v0() -> TimeLimit<Self> {
        TimeLimit::at(Self::new(), 999)
    }

    /// Position and velocity.
    pub fn state(&self) -> [f64; 2] {
        self.state
    }

    /// Sets the state to continue from: the first step is computed in f64 if the state is that of a reset, otherwise in
    /// f32.
    pub fn set_state(&mut self, state: [f64; 2], after_reset: bool) {
        self.state = if after_reset { state } else { state.map(narrowed) };
        self.narrow = !after_reset;
    }
}

fn narrowed(x: f64) -> f64 {
    f64::from(x as f32)
}

/// The change of the velocity. A force within the bounds is an f32, a clipped one is a Python number.
fn gained(force: f32, pull: f64) -> f64 {
    if force > 1.0 {
        POWER - pull
    } else if force < -1.0 {
        -POWER - pull
    } else {
        f64::from(force * POWER as f32 - pull as f32)
    }
}

impl Env for MountainCarContinuous {
    fn observation_space(&self) -> Space {
        valley::observation_space()
    }

    fn action_space(&self) -> Space {
        Space::boxed(&[-1.0], &[1.0])
    }

    fn reset(&mut self, rng: &mut Rng, observation: &mut [f32]) {
        self.set_state([between(rng, -0.6, -0.4), 0.0], true);
        valley::observe(self.state, observation);
    }

    fn step(&mut self, action: &[f32], _rng: &mut Rng, observation: &mut [f32]) -> Step {
        let (force, narrow) = (action[0], self.narrow);
        let round = |x| if narrow { narrowed(x) } else { x };
        let gained = round(gained(force, valley::pull(self.state[0], round)));
        let (state, arrived) = valley::drive(self.state, gained, GOAL, round);
        self.set_state(state, false);
        valley::observe(self.state, observation);
        let square = f64::from(force) * f64::from(force);
        Step::new(if arrived { 100.0 } else { 0.0 } - square * 0.1, arrived)
    }
}

impl Render for MountainCarContinuous {
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
