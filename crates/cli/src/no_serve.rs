//! In place of the server, in a build without the feature `serve`: the command says how to get it.

use clap::Args;

use crate::failure::{Failure, Result};
use crate::outcome::Outcome;

#[derive(Debug, Args)]
pub(crate) struct Serve {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// # Errors
/// Always.
pub(crate) fn run(args: &Serve) -> Result<Outcome> {
    let line: String = args.words.iter().map(|word| format!(" {word}")).collect();
    Err(Failure::new("`polygrad serve` is not in this build").fix(format!(
        "switch the feature `serve` on: cargo run --release --features serve -- serve{line}"
    )))
}
