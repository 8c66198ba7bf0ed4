//! All tests of this crate in one program, so that generic code is compiled only once.

mod ddp_values;
mod learner;
mod metrics;
mod mixed_precision;
mod overlap;
mod parallel;
mod trainer;
