//! The tests of this crate in one program: what is generic is compiled once for all of them.

mod ddp_values;
mod learner;
mod metrics;
mod mixed_precision;
mod overlap;
mod parallel;
mod trainer;
