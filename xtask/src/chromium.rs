//! A headless browser for the test of the server's page.

use std::path::PathBuf;

const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

/// The environment by which the test finds it.
///
/// # Errors
/// If there is none on the `PATH`.
pub(crate) fn environment() -> Result<Vec<(String, String)>, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let mut files = NAMES
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    let found = files.find(|file| file.is_file());
    let found = found.ok_or("there is no Chromium on the PATH\n  fix: apt-get install chromium")?;
    Ok(vec![("POLYGRAD_CHROMIUM".to_owned(), found.display().to_string())])
}
