//! A Python with Gymnasium, for the tests of its environments.

use std::fs;
use std::path::{Path, PathBuf};

use crate::packages::listed;
use crate::torch::quoted;

/// The variable with the Python that Polygrad starts.
const VARIABLE: &str = "POLYGRAD_PYTHON";

/// To be renamed when the contents of the folder change.
const FOLDER: &str = "gymnasium-1";

/// `cargo xtask setup gymnasium`: prints only the variables to export to standard output.
pub(crate) fn command() -> Result<(), String> {
    println!("export {VARIABLE}={}", quoted(&find()?.display().to_string()));
    Ok(())
}

/// The environment variables for the tests. First fetches the packages if they are not in the cache folder.
///
/// # Errors
/// If they cannot be fetched.
pub(crate) fn environment() -> Result<Vec<(String, String)>, String> {
    Ok(vec![(VARIABLE.to_owned(), find()?.display().to_string())])
}

/// The Python that the variable names, or the system's with the packages in the cache folder.
fn find() -> Result<PathBuf, String> {
    if let Some(python) = std::env::var_os(VARIABLE).filter(|python| !python.is_empty()) {
        return Ok(PathBuf::from(python));
    }
    let folder = listed("scripts/gymnasium.txt", FOLDER)?;
    let python = folder.join("python");
    if !python.exists() {
        // So that no other run finds it half-written.
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
