//! A Python with Gymnasium, for the tests of environments that step there.

use std::fs;
use std::path::{Path, PathBuf};

use crate::packages::listed;
use crate::torch::quoted;

/// Which Python Polygrad starts.
const VARIABLE: &str = "POLYGRAD_PYTHON";

/// Change with what is in the folder.
const FOLDER: &str = "gymnasium-1";

/// `cargo xtask setup gymnasium`: prints what to export, and nothing else, to standard output.
pub(crate) fn command() -> Result<(), String> {
    println!("export {VARIABLE}={}", quoted(&find()?.display().to_string()));
    Ok(())
}

/// What the environment of the tests needs; fetches the packages first where they are not in the cache folder.
///
/// # Errors
/// When they cannot be fetched.
pub(crate) fn environment() -> Result<Vec<(String, String)>, String> {
    Ok(vec![(VARIABLE.to_owned(), find()?.display().to_string())])
}

/// The Python that the variable names, or the system's with the packages of the cache folder.
fn find() -> Result<PathBuf, String> {
    if let Some(python) = std::env::var_os(VARIABLE).filter(|python| !python.is_empty()) {
        return Ok(PathBuf::from(python));
    }
    let folder = listed("scripts/gymnasium.txt", FOLDER)?;
    let python = folder.join("python");
    if !python.exists() {
        // Not found half-written by the next one.
        let part = folder.join("python.part");
        write(&part, &folder)
            .and_then(|()| fs::rename(&part, &python))
            .map_err(|e| format!("cannot write {}: {e}", python.display()))?;
    }
    Ok(python)
}

fn write(file: &Path, folder: &Path) -> std::io::Result<()> {
    let folder = quoted(&folder.display().to_string());
    fs::write(file, format!("#!/bin/sh\nPYTHONPATH={folder} exec python3 \"$@\"\n"))?;
    #[cfg(unix)]
    fs::set_permissions(file, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    Ok(())
}
