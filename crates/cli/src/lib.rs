//! The `polygrad` command as a function: trains, evaluates and uses models, and lists and checks the backends.
//!
//! A program with a backend of its own registers it and is the same command, with one backend more:
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! use polygrad::backend::{BackendEntry, Registry};
//!
//! fn main() -> ExitCode {
//!     let mine = BackendEntry::absent("mine", "a backend of my own", "it is not written yet");
//!     if let Err(error) = Registry::global().register(mine) {
//!         eprintln!("error: {error}");
//!         return ExitCode::FAILURE;
//!     }
//!     polygrad_cli::main()
//! }
//! ```
//!
//! The cargo feature `cpu`, on by default, is Polygrad's own CPU backend.

mod args;
mod backend;
mod bench;
mod check;
mod compare;
mod data;
mod devices;
mod eval;
mod evaluation;
mod failure;
mod feed;
mod image;
mod interrupt;
mod model;
mod onnx;
mod plot;
mod predict;
mod profile;
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

/// Does what this process's arguments say (`train`, `eval`, `predict`, `run`, `show`, `export`, `check`, `compare`, `bench`, `profile` or `devices`) with the backends in
/// [`Registry::global`](polygrad::backend::Registry::global), and writes to standard output and standard error.
///
/// The exit status is 0 when all went well, 1 after an error, and 130 after Ctrl-C. A command line that makes no sense, `--help` and
/// `--version` end the process at once, with status 2, 0 and 0.
pub fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Train(args) => train::command(&args),
        Command::Eval(args) => eval::command(&args),
        Command::Predict(args) => predict::command(&args),
        Command::Run(args) => onnx::run::command(&args),
        Command::Show(args) => onnx::show::command(&args),
        Command::Export(args) => onnx::export::command(&args),
        Command::Check(args) => check::command(&args),
        Command::Compare(args) => compare::command(&args),
        Command::Bench(args) => bench::command(&args),
        Command::Profile(args) => profile::command(&args),
        Command::Devices(args) => devices::command(&args),
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
