use polygrad_core::Rng;

use super::{BLACK, between, placed, turned};
use crate::{Canvas, Env, Render, Space, Step, TimeLimit};

/// Balance a pole on a cart: Gymnasium's `CartPole`.
///
/// Observation `[4]`: the cart's position and velocity, the pole's angle in radians from upright and its angular
/// velocity. Actions: 0 pushes left, 1 right. The reward is 1 for each step. The episode terminates when the pole leans
/// by more than 12° or the cart is more than 2.4 from the middle.
///
/// Source: Barto, Sutton and Anderson, "Neuronlike adaptive elements that can solve difficult learning control
/// problems" (1983).
#[derive(Clone, Debug, Default)]
pub struct CartPole {
    state: [f64; 4],
    fallen: bool,
    sutton_barto_reward: bool,
}

const FORCE: f64 = 10.0;
const GRAVITY: f64 = 9.8;
const MASS_POLE: f64 = 0.1;
const TOTAL_MASS: f64 = MASS_POLE + 1.0;
/// Half the pole's length.
const LENGTH: f64 = 0.5;
const POLE_MASS_LENGTH: f64 = MASS_POLE * LENGTH;
/// Seconds per step.
const TAU: f64 = 0.02;
const MAX_ANGLE: f64 = 12.0 * 2.0 * std::f64::consts::PI / 360.0;
const MAX_X: f64 = 2.4;

impl CartPole {
    /// Without a time limit.
    pub fn new() -> Self {
        Self::default()
    }

    /// `CartPole-v1`: at most 500 steps.
    pub fn v1() -> TimeLimit<Self> {
        TimeLimit::at(Self::new(), 500)
    }

    /// Gives a reward of 0 for each step and −1 for the fall, instead of 1 for each step.
    #[must_use]
    pub fn sutton_barto_reward(mut self) -> Self {
        self.sutton_barto_reward = true;
        self
    }

    /// Position, velocity, angle and angular velocity.
    pub fn state(&self) -> [f64; 4] {
        self.state
    }

    /// Sets the state to continue from.
    pub fn set_state(&mut self, state: [f64; 4]) {
        self.state = state;
        self.fallen = false;
    }

    fn observe(&self, observation: &mut [f32]) {
        for (x, y) in observation.iter_mut().zip(self.state) {
            *x = y as f32;
        }
    }

    fn reward(&self, fell: bool) -> f64 {
        match (self.sutton_barto_reward, fell) {
            (true, fell) => -f64::from(u8::from(fell)),
            (false, true) if self.fallen => 0.0,
            (false, _) => 1.0,
        }
    }
}

impl Env for CartPole {
    fn observation_space(&self) -> Space {
        let high = [
            2.0 * MAX_X as f32,
            f32::INFINITY,
            (2.0 * MAX_ANGLE) as f32,
            f32::INFINITY,
        ];
        Space::boxed(&high.map(|x| -x), &high)
    }

    fn action_space(&self) -> Space {
        Space::discrete(2)
    }

    fn reset(&mut self, rng: &mut Rng, observation: &mut [f32]) {
        self.set_state([(); 4].map(|()| between(rng, -0.05, 0.05)));
        self.observe(observation);
    }

    #[inline]
    fn step(&mut self, action: &[f32], _rng: &mut Rng, observation: &mut [f32]) -> Step {
        let [x, speed, angle, turn] = self.state;
        let force = if action[0] == 1.0 { FORCE } else { -FORCE };
        let (sin, cos) = angle.sin_cos();
        let push = (force + POLE_MASS_LENGTH * (turn * turn) * sin) / TOTAL_MASS;
        let turning = (GRAVITY * sin - cos * push) / (LENGTH * (4.0 / 3.0 - MASS_POLE * (cos * cos) / TOTAL_MASS));
        let pushing = push - POLE_MASS_LENGTH * turning * cos / TOTAL_MASS;
        self.state = [
            x + TAU * speed,
            speed + TAU * pushing,
            angle + TAU * turn,
            turn + TAU * turning,
        ];
        self.observe(observation);
        let fell = self.state[0].abs() > MAX_X || self.state[2].abs() > MAX_ANGLE;
        let reward = self.reward(fell);
        self.fallen = fell;
        Step::new(reward, fell)
    }
}

impl Render for CartPole {
    fn size(&self) -> [f32; 2] {
        [600.0, 400.0]
    }

    fn fps(&self) -> f64 {
        1.0 / TAU
    }

    fn render(&self, canvas: &mut Canvas) {
        let [position, _, angle, _] = self.state;
        let scale = 600.0 / (2.0 * MAX_X) as f32;
        let (x, y) = (300.0 + scale * position as f32, 100.0);
        canvas.line(&[(0.0, 399.5 - y), (600.0, 399.5 - y)], 1.0, BLACK);
        let cart = [(-25.0, -15.0), (25.0, -15.0), (25.0, 15.0), (-25.0, 15.0)];
        canvas.polygon(&placed(&cart, (x, y), 400.0), BLACK);
        let top = 2.0 * LENGTH as f32 * scale - 5.0;
        let pole = turned(&[(-5.0, -5.0), (5.0, -5.0), (5.0, top), (-5.0, top)], -angle);
        canvas.polygon(&placed(&pole, (x, y + 7.5), 400.0), [202, 152, 101]);
        canvas.disc((x, 400.0 - y - 7.5), 5.0, [129, 132, 203]);
    }
}
