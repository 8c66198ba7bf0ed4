//! What the suite does not see: what is fused and launched, what memory is kept, and what happens when a driver fails.

mod callers;
mod faults;
mod fusion;
mod launches;
mod memory;
mod naming;
mod narrow;
mod watch;
