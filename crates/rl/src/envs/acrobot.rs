use std::f64::consts::PI;

use polygrad_core::Rng;

use super::{BLACK, YELLOW, between, placed, turned};
use crate::{Canvas, Env, Render, Space, Step, TimeLimit};

/// Swing up two links by a motor between them: Gymnasium's `Acrobot`.
///
/// Observation `[6]`: cosine and sine of the upper link's angle from hanging down, of the lower link's angle to the
/// upper one, and the two angular velocities. Actions 0, 1, 2: a torque of −1, 0, 1. The reward is −1, and 0 for the
/// step that terminates, with the tip one length above the upper joint.
///
/// Source: Sutton and Barto, "Reinforcement learning: an introduction" (2018), 11.3 of the first edition.
#[derive(Clone, Debug, Default)]
pub struct Acrobot {
    state: [f64; 4],
}

/// Seconds per step.
const DT: f64 = 0.2;
const MAX_SPEED: [f64; 2] = [4.0 * PI, 9.0 * PI];
const GRAVITY: f64 = 9.8;
/// Distance of a link's centre of mass from its joint. Lengths, masses and moments of inertia are 1.
const CENTRE: f64 = 0.5;

impl Acrobot {
    /// Without a time limit.
    pub fn new() -> Self {
        Self::default()
    }

    /// `Acrobot-v1`: at most 500 steps.
    pub fn v1() -> TimeLimit<Self> {
        TimeLimit::at(Self::new(), 500)
    }

    /// Both angles in radians, and both angular velocities.
    pub fn state(&self) -> [f64; 4] {
        self.state
    }

    /// Sets the state to continue from.
    pub fn set_state(&mut self, state: [f64; 4]) {
        self.state = state;
    }

    fn observe(&self, observation: &mut [f32]) {
        let [first, second, ..] = self.state;
        let seen = [
            first.cos(),
            first.sin(),
            second.cos(),
            second.sin(),
            self.state[2],
            self.state[3],
        ];
        for (x, y) in observation.iter_mut().zip(seen) {
            *x = y as f32;
        }
    }
}

/// The time derivative of the state.
fn derivative([first, second, first_turn, second_turn]: [f64; 4], torque: f64) -> [f64; 4] {
    let square = CENTRE * CENTRE;
    let d1 = square + (1.0 + square + 2.0 * CENTRE * second.cos()) + 1.0 + 1.0;
    let d2 = (square + CENTRE * second.cos()) + 1.0;
    let phi2 = CENTRE * GRAVITY * (first + second - PI / 2.0).cos();
    let sin = second.sin();
    let phi1 = -CENTRE * (second_turn * second_turn) * sin - 2.0 * CENTRE * second_turn * first_turn * sin
        + (CENTRE + 1.0) * GRAVITY * (first - PI / 2.0).cos()
        + phi2;
    let second_turning =
        (torque + d2 / d1 * phi1 - CENTRE * (first_turn * first_turn) * sin - phi2) / (square + 1.0 - d2 * d2 / d1);
    let first_turning = -(d2 * second_turning + phi1) / d1;
    [first_turn, second_turn, first_turning, second_turning]
}

/// One step of the classical Runge-Kutta method.
fn rk4(y: [f64; 4], torque: f64) -> [f64; 4] {
    let moved = |by: f64, k: [f64; 4]| std::array::from_fn(|i| y[i] + by * k[i]);
    let k1 = derivative(y, torque);
    let k2 = derivative(moved(DT / 2.0, k1), torque);
    let k3 = derivative(moved(DT / 2.0, k2), torque);
    let k4 = derivative(moved(DT, k3), torque);
    std::array::from_fn(|i| y[i] + DT / 6.0 * (k1[i] + 2.0 * k2[i] + 2.0 * k3[i] + k4[i]))
}

fn wrap(mut angle: f64) -> f64 {
    // For large angles, steps of one turn would take long or change nothing.
    if angle.abs() >= 1e4 {
        return (angle + PI).rem_euclid(2.0 * PI) - PI;
    }
    while angle > PI {
        angle -= 2.0 * PI;
    }
    while angle < -PI {
        angle += 2.0 * PI;
    }
    angle
}

impl Env for Acrobot {
    fn observation_space(&self) -> Space {
        let high = [1.0, 1.0, 1.0, 1.0, MAX_SPEED[0] as f32, MAX_SPEED[1] as f32];
        Space::boxed(&high.map(|x| -x), &high)
    }

    fn action_space(&self) -> Space {
        Space::discrete(3)
    }

    fn reset(&mut self, rng: &mut Rng, observation: &mut [f32]) {
        // Gymnasium rounds the first state to f32, and no other.
        self.state = [(); 4].map(|()| f64::from(between(rng, -0.1, 0.1) as f32));
        self.observe(observation);
    }

    fn step(&mut self, action: &[f32], _rng: &mut Rng, observation: &mut [f32]) -> Step {
        let [first, second, first_turn, second_turn] = rk4(self.state, f64::from(action[0]) - 1.0);
        let [most, second_most] = MAX_SPEED;
        self.state = [
            wrap(first),
            wrap(second),
            first_turn.clamp(-most, most),
            second_turn.clamp(-second_most, second_most),
        ];
        self.observe(observation);
        let [first, second, ..] = self.state;
        let up = -first.cos() - (second + first).cos() > 1.0;
        Step::new(if up { 0.0 } else { -1.0 }, up)
    }
}

impl Render for Acrobot {
    fn size(&self) -> [f32; 2] {
        [500.0; 2]
    }

    fn fps(&self) -> f64 {
        15.0
    }

    fn render(&self, canvas: &mut Canvas) {
        let [first, second, ..] = self.state;
        // Pixels per link length.
        let scale: f32 = 500.0 / 4.4;
        let height = (250.0 - scale).floor() + 0.5;
        canvas.line(&[(0.0, height), (500.0, height)], 1.0, BLACK);
        let half = 0.1 * scale;
        let mut joint = (250.0, 250.0);
        for angle in [first, first + second] {
            let corners = [(0.0, -half), (scale, -half), (scale, half), (0.0, half)];
            let link = turned(&corners, angle - PI / 2.0);
            canvas.polygon(&placed(&link, joint, 500.0), [0, 204, 204]);
            canvas.disc((joint.0, 500.0 - joint.1), half, YELLOW);
            joint.0 += scale * angle.sin() as f32;
            joint.1 -= scale * angle.cos() as f32;
        }
    }
}
