//! Vector maths: real functions over f32, written once for all instruction sets.

mod erf;
pub(crate) mod exp;
mod log;
mod maps;
pub(crate) mod reference;
mod trig;

pub(crate) use maps::*;

#[cfg(test)]
mod tests;
