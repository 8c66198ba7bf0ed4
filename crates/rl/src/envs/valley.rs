//! What the cars on the mountain have in common. A state is position and velocity.

use crate::Space;

const LEFT: f64 = -1.2;
const RIGHT: f64 = 0.6;
const MAX_SPEED: f64 = 0.07;
const GRAVITY: f64 = 0.0025;

pub(super) fn observation_space() -> Space {
    let speed = MAX_SPEED as f32;
    Space::boxed(&[LEFT as f32, -speed], &[RIGHT as f32, speed])
}

#[inline]
pub(super) fn observe(state: [f64; 2], observation: &mut [f32]) {
    observation[0] = state[0] as f32;
    observation[1] = state[1] as f32;
}

/// What the velocity loses to the slope. `round` is to the precision that is computed in, here as below.
#[inline]
pub(super) fn pull(position: f64, round: impl Fn(f64) -> f64) -> f64 {
    GRAVITY * round(3.0 * position).cos()
}

/// The state after a step in which the velocity changes by `gained`, and whether it is at the goal.
#[inline]
pub(super) fn drive(
    [position, velocity]: [f64; 2],
    gained: f64,
    goal: f64,
    round: impl Fn(f64) -> f64,
) -> ([f64; 2], bool) {
    let mut velocity = round((velocity + gained).clamp(-MAX_SPEED, MAX_SPEED));
    let position = round((position + velocity).clamp(LEFT, RIGHT));
    if position == round(LEFT) && velocity < 0.0 {
        velocity = 0.0;
    }
    ([position, velocity], position >= round(goal) && velocity >= 0.0)
}
