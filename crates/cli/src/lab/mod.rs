//! What holds backends to PyTorch and times them, and trainings to published ones: `check`, `bench`, `profile`, `plan` and `returns`, with
//! the feature `lab`.

mod args;
mod bench;
mod check;
mod draw;
mod graphs;
mod plan;
mod profile;
mod programs;
mod returns;
mod trace;
mod trainings;

pub(crate) use args::Command;

use crate::failure::Result;
use crate::outcome::Outcome;

/// # Errors
/// Those of the commands.
pub(crate) fn run(command: &Command) -> Result<Outcome> {
    match command {
        Command::Check(args) => check::command(args),
        Command::Bench(args) => bench::command(args),
        Command::Profile(args) => profile::command(args),
        Command::Plan(args) => plan::command(args),
        Command::Returns(args) => returns::command(args),
    }
}
