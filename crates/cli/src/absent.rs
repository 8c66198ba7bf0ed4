//! In place of commands that are not in this build: they say how to get them.

use clap::Args;

use crate::failure::Failure;

/// The words after a command, whatever they are.
#[derive(Debug, Args)]
pub(crate) struct Words {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

impl Words {
    /// What a command says that is in a build with a feature alone.
    pub(crate) fn refused(&self, command: &str, feature: &str) -> Failure {
        let line: String = self.words.iter().map(|word| format!(" {word}")).collect();
        Failure::new(format!("`polygrad {command}` is not in this build")).fix(format!(
            "switch the feature `{feature}` on: cargo run --release --features {feature} -- {command}{line}"
        ))
    }
}
