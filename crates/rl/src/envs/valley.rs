//! The common part of the two mountain cars. A state is position and velocity.

use super::{BLACK, GREY, YELLOW, placed, turned};
use crate::{Canvas, Point, Space};

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

/// The velocity lost to the slope. Here and below, `round` rounds to the precision of the computation.
#[inline]
pub(super) fn pull(position: f64, round: impl Fn(f64) -> f64) -> f64 {
    GRAVITY * round(3.0 * position).cos()
}

/// The state after a step in which the velocity changes by `gained`, and whether the car is at the goal.
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

/// Width and height of a picture.
pub(super) const SIZE: [f32; 2] = [600.0, 400.0];

fn place(position: f64) -> Point {
    let scale = 600.0 / (RIGHT - LEFT);
    let height = (3.0 * position).sin() * 0.45 + 0.55;
    (((position - LEFT) * scale) as f32, (height * scale) as f32)
}

/// Draws the car at a position, and the flag at the goal.
pub(super) fn draw(canvas: &mut Canvas, position: f64, goal: f64) {
    let ground: Vec<Point> = (0..100)
        .map(|i| place(LEFT + (RIGHT - LEFT) * f64::from(i) / 99.0))
        .collect();
    canvas.line(&placed(&ground, (0.5, 0.5), 400.0), 1.0, BLACK);
    let (x, y) = place(position);
    let slope = (3.0 * position).cos();
    let car = turned(&[(-20.0, 0.0), (20.0, 0.0), (20.0, 20.0), (-20.0, 20.0)], slope);
    canvas.polygon(&placed(&car, (x, y + 10.0), 400.0), BLACK);
    for wheel in placed(&turned(&[(10.0, 0.0), (-10.0, 0.0)], slope), (x, y + 10.0), 400.0) {
        canvas.disc(wheel, 8.0, GREY);
    }
    let flag = place(goal);
    canvas.line(
        &placed(&[(0.0, 0.0), (0.0, 50.0)], (flag.0.floor() + 0.5, flag.1), 400.0),
        1.0,
        BLACK,
    );
    let cloth = [(0.0, 50.0), (0.0, 40.0), (25.0, 45.0)];
    canvas.polygon(&placed(&cloth, flag, 400.0), YELLOW);
}
