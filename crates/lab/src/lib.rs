//! The laboratory: compares backends with PyTorch and times them, and compares trainings with published ones, as the
//! commands `check`, `bench`, `profile`, `plan` and `returns`.
//!
//! They are part of another program's command line, which defines the [`Training`] whose steps are profiled:
//!
//! ```
//! use clap::{Args, Parser};
//! use polygrad::Device;
//! use polygrad_console::failure::{Failure, Result};
//! use polygrad_lab::{Command, Subject, Training};
//!
//! #[derive(Args, Debug)]
//! struct Nothing {}
//!
//! impl Training for Nothing {
//!     fn subject(&self) -> Result<(Box<dyn Subject>, Device)> {
//!         Err(Failure::new("nothing is trained here"))
//!     }
//! }
//!
//! #[derive(Debug, Parser)]
//! struct Program {
//!     #[command(subcommand)]
//!     command: Command<Nothing>,
//! }
//!
//! let program = Program::parse_from(["lab", "profile", "train"]);
//! assert_eq!(polygrad_lab::run(&program.command).unwrap_err().to_string(), "nothing is trained here");
//! ```
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod args;
mod bench;
mod check;
mod draw;
mod graphs;
mod group;
mod peers;
mod plan;
mod profile;
mod programs;
mod returns;
mod trace;
mod trainings;

pub use args::Command;
pub use profile::subject::{Subject, Training, Work};

use polygrad_console::failure::Result;
use polygrad_console::outcome::Outcome;

/// Runs the command.
///
/// # Errors
/// Errors of the commands.
pub fn run<T: Training>(command: &Command<T>) -> Result<Outcome> {
    match command {
        Command::Check(args) => check::command(args),
        Command::Bench(args) => bench::command(args),
        Command::Profile(args) => profile::command(args),
        Command::Plan(args) => plan::command(args),
        Command::Returns(args) => returns::command(args),
    }
}
