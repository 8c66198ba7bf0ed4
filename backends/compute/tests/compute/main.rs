//! What the suite does not see: what is fused, what is launched, and what memory is kept.

#[path = "../common/mod.rs"]
mod common;
mod fusion;

mod memory;
mod naming;
