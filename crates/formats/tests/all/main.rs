//! All tests of this crate that can share a process, in one program.

#[path = "../common/mod.rs"]
mod common;

mod damaged;
mod hostile;
mod readers;
mod writers;
