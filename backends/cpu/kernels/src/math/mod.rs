//! Vector maths: real functions over f32, written once for all instruction sets.
#![allow(clippy::excessive_precision, reason = "constants stand as they were derived")]

mod erf;
mod exponential;
mod log;
mod maps;
mod normal;
mod pointwise;
pub mod reference;
mod trig;

pub use exponential::{exp, exp_nonpositive};
pub use log::log;
pub use maps::*;
pub use pointwise::Pointwise;

#[cfg(test)]
mod tests;
