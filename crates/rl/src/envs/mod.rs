//! Environments.

mod acrobot;
mod cart_pole;
mod connect_four;
mod grid_world;
mod mountain_car;
mod mountain_car_continuous;
mod pendulum;
mod t_maze;
mod valley;

pub use acrobot::Acrobot;
pub use cart_pole::CartPole;
pub use connect_four::ConnectFour;
pub use grid_world::GridWorld;
pub use mountain_car::MountainCar;
pub use mountain_car_continuous::MountainCarContinuous;
pub use pendulum::Pendulum;
pub use t_maze::TMaze;

use polygrad_core::Rng;

fn between(rng: &mut Rng, low: f64, high: f64) -> f64 {
    low + (high - low) * rng.uniform()
}
