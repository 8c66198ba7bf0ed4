//! In place of `convert`, in a build without the feature `formats`: it says how to get it.

use clap::Args;

use crate::failure::{Failure, Result};
use crate::outcome::Outcome;

#[derive(Debug, Args)]
pub(crate) struct Convert {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// # Errors
/// Always.
pub(crate) fn command(args: &Convert) -> Result<Outcome> {
    let line: String = args.words.iter().map(|word| format!(" {word}")).collect();
    Err(Failure::new("`polygrad convert` is not in this build").fix(format!(
        "switch the feature `formats` on: cargo run --release --features formats -- convert{line}"
    )))
}
