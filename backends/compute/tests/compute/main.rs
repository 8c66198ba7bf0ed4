//! Tests of what the suite does not see: fused kernels and launches, cached memory, and a failing driver.

mod callers;
mod faults;
mod fusion;
mod launches;
mod memory;
mod naming;
mod narrow;
mod watch;
