//! Cargo as part of a longer run.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Cargo with these arguments and additional environment variables.
pub(crate) fn command(arguments: &[&str], environment: &[(String, String)]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let variables = environment.iter().map(|(name, value)| (name, value));
    command.args(arguments).envs(variables);
    command
}

/// The top folder of the checkout. Cargo sets its path when it runs this program, which may have been built for another
/// checkout.
pub(crate) fn checkout() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").map_or(env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    here.parent().map_or(here.clone(), Path::to_owned)
}

/// Runs cargo with these arguments and additional environment variables.
///
/// # Errors
/// If it cannot be started, or fails.
pub(crate) fn run(arguments: &[&str], environment: &[(String, String)]) -> Result<(), String> {
    println!("cargo {}", arguments.join(" "));
    match command(arguments, environment).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("cargo {} ended with {status}", arguments.join(" "))),
        Err(error) => Err(format!("cargo could not be started: {error}")),
    }
}

/// Builds, and returns the path of the program with this name.
///
/// # Errors
/// If it cannot be built.
pub(crate) fn program(line: &str, name: &str, environment: &[(String, String)]) -> Result<PathBuf, String> {
    println!("cargo {line}");
    let mut arguments: Vec<&str> = line.split(' ').collect();
    arguments.push("--message-format=json-render-diagnostics");
    let output = command(&arguments, environment).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cargo could not be started: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo {line} ended with {}", output.status));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let program = text
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == name)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from));
    program.ok_or_else(|| "cargo did not say where the program is".to_owned())
}

/// The packages that the member in a folder is built from, including itself: each as `NAME vVERSION`, in alphabetical
/// order. `further` has arguments for `cargo tree`.
///
/// # Errors
/// If cargo cannot be started, or fails.
pub(crate) fn packages(folder: &str, further: &[&str]) -> Result<Vec<String>, String> {
    let manifest = checkout().join(folder).join("Cargo.toml");
    let manifest = manifest.display().to_string();
    let line = [&["tree", "--manifest-path", &manifest, "--prefix", "none"], further].concat();
    let output = command(&line, &[]).output();
    let output = output.map_err(|error| format!("cargo could not be started: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("cargo {} ended with {}\n{said}", line.join(" "), output.status));
    }
    let tree = String::from_utf8_lossy(&output.stdout);
    let names = tree.lines().filter_map(|line| line.split(" (").next());
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    names.sort_unstable();
    names.dedup();
    Ok(names)
}
