//! The `polygrad` command: trains, evaluates and uses models, and lists the backends.
#![allow(dead_code, reason = "the commands that use these parts come with the training loop")]

mod args;
mod data;
mod failure;
mod image;
mod interrupt;
mod progress;
mod run;

fn main() {}
