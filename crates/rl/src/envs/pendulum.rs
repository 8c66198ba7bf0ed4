use std::f64::consts::PI;

use polygrad_core::Rng;

use super::{BLACK, between, placed, turned};
use crate::{Canvas, Env, Render, Space, Step, TimeLimit};

/// Swing a pendulum up and keep it there: Gymnasium's `Pendulum`.
///
/// Observation `[3]`: cosine and sine of the angle from upright, and the angular velocity. Action `[1]`: the torque,
/// clipped to −2 to 2. The reward is −(angle² + 0.1 velocity² + 0.001 torque²). The episode never terminates.
///
/// Like Gymnasium with NumPy 2, it computes terms of only the torque in f32.
#[derive(Clone, Debug, Default)]
pub struct Pendulum {
    state: [f64; 2],
}

const MAX_SPEED: f64 = 8.0;
const MAX_TORQUE: f32 = 2.0;
/// Seconds per step.
const DT: f64 = 0.05;

impl Pendulum {
    /// Without a time limit.
    pub fn new() -> Self {
        Self::default()
    }

    /// `Pendulum-v1`: 200 steps.
    pub fn v1() -> TimeLimit<Self> {
        TimeLimit::at(Self::new(), 200)
    }

    /// The angle in radians, which may be any number of turns, and the angular velocity.
    pub fn state(&self) -> [f64; 2] {
        self.state
    }

    /// Sets the state to continue from.
    pub fn set_state(&mut self, state: [f64; 2]) {
        self.state = state;
    }

    fn observe(&self, observation: &mut [f32]) {
        let [angle, turn] = self.state;
        observation[0] = angle.cos() as f32;
        observation[1] = angle.sin() as f32;
        observation[2] = turn as f32;
    }
}

impl Env for Pendulum {
    fn observation_space(&self) -> Space {
        let high = [1.0, 1.0, MAX_SPEED as f32];
        Space::boxed(&high.map(|x| -x), &high)
    }

    fn action_space(&self) -> Space {
        Space::boxed(&[-MAX_TORQUE], &[MAX_TORQUE])
    }

    fn reset(&mut self, rng: &mut Rng, observation: &mut [f32]) {
        self.state = [between(rng, -PI, PI), between(rng, -1.0, 1.0)];
        self.observe(observation);
    }

    fn step(&mut self, action: &[f32], _rng: &mut Rng, observation: &mut [f32]) -> Step {
        let [angle, turn] = self.state;
        let torque = action[0].clamp(-MAX_TORQUE, MAX_TORQUE);
        let lean = (angle + PI).rem_euclid(2.0 * PI) - PI;
        let cost = lean * lean + 0.1 * (turn * turn) + f64::from(0.001 * (torque * torque));
        let turn = turn + (15.0 * angle.sin() + f64::from(3.0 * torque)) * DT;
        let turn = turn.clamp(-MAX_SPEED, MAX_SPEED);
        self.state = [angle + turn * DT, turn];
        self.observe(observation);
        Step::new(-cost, false)
    }
}

impl Render for Pendulum {
    fn size(&self) -> [f32; 2] {
        [500.0; 2]
    }

    fn fps(&self) -> f64 {
        30.0
    }

    fn render(&self, canvas: &mut Canvas) {
        // Pixels per rod length.
        let scale = 500.0 / 4.4;
        let (half, red) = (0.1 * scale, [204, 77, 77]);
        let middle = (250.0, 250.0);
        let corners = [(0.0, -half), (scale, -half), (scale, half), (0.0, half)];
        let upright = self.state[0] + PI / 2.0;
        canvas.polygon(&placed(&turned(&corners, upright), middle, 500.0), red);
        for end in placed(&turned(&[(0.0, 0.0), (scale, 0.0)], upright), middle, 500.0) {
            canvas.disc(end, half, red);
        }
        canvas.disc(middle, 0.05 * scale, BLACK);
    }
}
