//! Vector maths: real functions over f32, written once for all instruction sets.
#![allow(clippy::excessive_precision, reason = "constants stand as they were derived")]

mod erf;
mod exponential;
mod log;
mod maps;
mod normal;
mod pointwise;
pub(crate) mod reference;
mod trig;

pub(crate) use exponential::{exp, exp_nonpositive};
pub(crate) use log::log;
pub(crate) use maps::*;
pub(crate) use pointwise::Pointwise;

#[cfg(test)]
mod tests;
