//! `build`: a clean release build of a program that trains `mlp-small`, written as a user of each library would.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::cargo;

/// The programs of `benches/peers/build`.
const PROGRAMS: [&str; 3] = ["polygrad", "candle", "burn"];

/// The cost of a build.
pub(super) struct Build {
    pub(super) name: &'static str,
    pub(super) seconds: f64,
    /// The number of compiled crates, including the program's own.
    pub(super) crates: usize,
    /// The size of the stripped program.
    pub(super) bytes: u64,
}

/// Builds each from scratch, with cargo's existing downloads.
///
/// # Errors
/// If one cannot be built, or does not run.
pub(super) fn measure() -> Result<Vec<Build>, String> {
    PROGRAMS.into_iter().map(one).collect()
}

fn one(name: &'static str) -> Result<Build, String> {
    let folder = cargo::checkout().join("benches/peers/build").join(name);
    let target = cargo::checkout().join("target/peers-build").join(name);
    if target.exists() {
        fs::remove_dir_all(&target).map_err(|e| format!("cannot delete {}: {e}", target.display()))?;
    }
    cargo(&["fetch", "--locked", "--quiet"], &folder)?;
    eprintln!("building {} from nothing", folder.display());
    let shown = target.display().to_string();
    let start = Instant::now();
    let built = cargo(
        &["build", "--release", "--locked", "--offline", "--target-dir", &shown],
        &folder,
    )?;
    let seconds = start.elapsed().as_secs_f64();
    let crates = built
        .lines()
        .filter(|line| line.trim_start().starts_with("Compiling "))
        .count();
    let program = target.join(format!("release/polygrad-build-{name}"));
    let ran = Command::new(&program).output();
    let ran = ran.map_err(|e| format!("{} cannot be started: {e}", program.display()))?;
    if !ran.status.success() {
        return Err(format!("{} ended with {}", program.display(), ran.status));
    }
    let bytes = fs::metadata(&program)
        .map_err(|e| format!("cannot read {}: {e}", program.display()))?
        .len();
    fs::remove_dir_all(&target).map_err(|e| format!("cannot delete {}: {e}", target.display()))?;
    Ok(Build {
        name,
        seconds,
        crates,
        bytes,
    })
}

/// Runs cargo and returns its standard error.
fn cargo(line: &[&str], folder: &Path) -> Result<String, String> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(program).args(line).current_dir(folder).output();
    let output = output.map_err(|e| format!("cargo could not be started: {e}"))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    match output.status.success() {
        true => Ok(said),
        false => Err(format!(
            "cargo {} in {} failed:\n{said}",
            line.join(" "),
            folder.display()
        )),
    }
}
