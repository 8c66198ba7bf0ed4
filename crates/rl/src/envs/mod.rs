//! Environments.

mod acrobot;
mod cart_pole;
mod connect_four;
mod grid_world;
mod mountain_car;
mod mountain_car_continuous;
mod pendulum;
mod t_maze;
mod tic_tac_toe;
mod valley;

pub use acrobot::Acrobot;
pub use cart_pole::CartPole;
pub use connect_four::ConnectFour;
pub use grid_world::GridWorld;
pub use mountain_car::MountainCar;
pub use mountain_car_continuous::MountainCarContinuous;
pub use pendulum::Pendulum;
pub use t_maze::TMaze;
pub use tic_tac_toe::TicTacToe;

use polygrad_core::Rng;

use crate::{Colour, Point};

const BLACK: Colour = [0; 3];
const WHITE: Colour = [255; 3];
const GREY: Colour = [128; 3];
const YELLOW: Colour = [204, 204, 0];

/// Corners rotated by an angle around (0, 0), in a picture whose y axis points up.
fn turned(corners: &[Point], angle: f64) -> Vec<Point> {
    let (sin, cos) = (angle.sin() as f32, angle.cos() as f32);
    corners
        .iter()
        .map(|(x, y)| (x * cos - y * sin, x * sin + y * cos))
        .collect()
}

/// Corners moved to a place in a picture of this height whose y axis points up, in coordinates of a canvas.
fn placed(corners: &[Point], (x, y): Point, height: f32) -> Vec<Point> {
    corners
        .iter()
        .map(|corner| (corner.0 + x, height - corner.1 - y))
        .collect()
}

fn between(rng: &mut Rng, low: f64, high: f64) -> f64 {
    low + (high - low) * rng.uniform()
}
