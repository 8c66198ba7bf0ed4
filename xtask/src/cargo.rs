//! Cargo, as a part of a longer run.

use std::process::Command;

/// Cargo with these arguments and these further variables in its environment.
pub(crate) fn command(arguments: &[&str], environment: &[(String, String)]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let variables = environment.iter().map(|(name, value)| (name, value));
    command.args(arguments).envs(variables);
    command
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
