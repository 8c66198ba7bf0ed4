//! The `polygrad` command: trains, evaluates and uses models, and lists and checks the backends.

mod args;
mod backend;
mod check;
mod data;
mod devices;
mod eval;
mod evaluation;
mod failure;
mod feed;
mod image;
mod interrupt;
mod model;
mod predict;
mod progress;
mod run;
mod train;
mod trained;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};

/// How a command ended, when nothing went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// It did what it was asked to.
    Done,
    /// Ctrl-C ended it early.
    Interrupted,
}

/// The exit status is 0 when all went well, 1 after an error, 2 for a command line that makes no sense (clap's own), and 130 after
/// Ctrl-C.
fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Train(args) => train::command(&args),
        Command::Eval(args) => eval::command(&args),
        Command::Predict(args) => predict::command(&args),
        Command::Check(args) => check::command(&args),
        Command::Devices => devices::command(),
    };
    match outcome {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Interrupted) => ExitCode::from(interrupt::EXIT_STATUS),
        Err(failure) => {
            progress::note(&format!("error: {failure}"));
            ExitCode::FAILURE
        }
    }
}
