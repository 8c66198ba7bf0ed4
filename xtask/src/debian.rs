//! Debian packages as a source of programs: fetched by apt-get and unpacked, without installing anything.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Creates `folder` atomically with the contents of the packages.
///
/// # Errors
/// On a machine without Debian's packages or a network; the error says how to do without them.
pub(crate) fn unpack(packages: &[&str], folder: &Path, instead: &str) -> Result<(), String> {
    let part = folder.with_extension("part");
    let _ = fs::remove_dir_all(&part);
    fs::create_dir_all(&part).map_err(|error| format!("cannot create {}: {error}", part.display()))?;
    let mut fetch = Command::new("apt-get");
    fetch.arg("download").args(packages).current_dir(&part);
    output(&mut fetch).map_err(|reason| format!("{reason}\n  fix: {instead}"))?;
    let entries = fs::read_dir(&part).map_err(|error| format!("cannot read {}: {error}", part.display()))?;
    let root = part.join("root");
    for package in entries.flatten().map(|entry| entry.path()) {
        output(Command::new("dpkg").arg("-x").arg(&package).arg(&root))?;
    }
    fs::rename(&root, folder).map_err(|error| format!("cannot move {} into place: {error}", root.display()))?;
    let _ = fs::remove_dir_all(&part);
    Ok(())
}

/// Runs a command and returns its output.
///
/// # Errors
/// If it cannot be started, or fails.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{name} could not be started: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let reason = String::from_utf8_lossy(&output.stderr);
    Err(format!("{name} ended with {}: {}", output.status, reason.trim()))
}
