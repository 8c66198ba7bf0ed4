//! In place of the laboratory, in a build without the feature `lab`.

use clap::Subcommand;

use crate::absent::Words;
use crate::failure::Result;
use crate::outcome::Outcome;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    #[command(hide = true, disable_help_flag = true)]
    Check(Words),
    #[command(hide = true, disable_help_flag = true)]
    Bench(Words),
    #[command(hide = true, disable_help_flag = true)]
    Profile(Words),
    #[command(hide = true, disable_help_flag = true)]
    Plan(Words),
    #[command(hide = true, disable_help_flag = true)]
    Returns(Words),
}

/// # Errors
/// Always.
pub(crate) fn run(command: &Command) -> Result<Outcome> {
    Err(match command {
        Command::Check(words) => words.refused("check", "lab"),
        Command::Bench(words) => words.refused("bench", "lab"),
        Command::Profile(words) => words.refused("profile", "lab"),
        Command::Plan(words) => words.refused("plan", "lab"),
        Command::Returns(words) => words.refused("returns", "lab"),
    })
}
