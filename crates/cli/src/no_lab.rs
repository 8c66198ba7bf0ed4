//! In place of the laboratory, in a build without the feature `lab`: its commands say how to get it.

use clap::{Args, Subcommand};

use crate::failure::{Failure, Result};
use crate::outcome::Outcome;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    #[command(hide = true, disable_help_flag = true)]
    Check(Line),
    #[command(hide = true, disable_help_flag = true)]
    Bench(Line),
    #[command(hide = true, disable_help_flag = true)]
    Profile(Line),
    #[command(hide = true, disable_help_flag = true)]
    Plan(Line),
    #[command(hide = true, disable_help_flag = true)]
    Returns(Line),
}

#[derive(Debug, Args)]
pub(crate) struct Line {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// # Errors
/// Always.
pub(crate) fn run(command: &Command) -> Result<Outcome> {
    let (name, Line { words }) = match command {
        Command::Check(line) => ("check", line),
        Command::Bench(line) => ("bench", line),
        Command::Profile(line) => ("profile", line),
        Command::Plan(line) => ("plan", line),
        Command::Returns(line) => ("returns", line),
    };
    let line: String = words.iter().map(|word| format!(" {word}")).collect();
    Err(
        Failure::new(format!("`polygrad {name}` is not in this build")).fix(format!(
            "switch the feature `lab` on: cargo run --release --features lab -- {name}{line}"
        )),
    )
}
