//! Cargo, as a part of a longer run.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Cargo with these arguments and these further variables in its environment.
pub(crate) fn command(arguments: &[&str], environment: &[(String, String)]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let variables = environment.iter().map(|(name, value)| (name, value));
    command.args(arguments).envs(variables);
    command
}

/// The top of the checkout. Cargo says where it is when it runs this, which may have been built for another checkout.
pub(crate) fn checkout() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").map_or(env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    here.parent().map_or(here.clone(), Path::to_owned)
}

/// Runs cargo with these arguments and these further variables in its environment.
///
/// # Errors
/// When it cannot be started, or fails.
pub(crate) fn run(arguments: &[&str], environment: &[(String, String)]) -> Result<(), String> {
    println!("cargo {}", arguments.join(" "));
    match command(arguments, environment).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("cargo {} ended with {status}", arguments.join(" "))),
        Err(error) => Err(format!("cargo could not be started: {error}")),
    }
}
