//! A LibTorch for building and running the backend `torch`: an installed one, or one without CUDA in the cache folder.

mod fetch;
mod installed;

use std::path::PathBuf;

pub(crate) use fetch::PACKAGES;

use crate::cache;

/// The version that tch 0.26 requires.
const VERSION: &str = "2.13.0";

/// `cargo xtask setup torch`: prints only the variables to export to standard output.
pub(crate) fn command() -> Result<(), String> {
    let found = find()?;
    println!("export {}={}", found.variable, quoted(&found.value));
    // Keeps the shell's own value; this process's value includes cargo's folders.
    let folder = quoted(&found.libraries.display().to_string());
    println!("export LD_LIBRARY_PATH={folder}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}");
    Ok(())
}

/// The environment variables for cargo and the programs it builds. First fetches LibTorch if there is none.
///
/// # Errors
/// If the named one is missing or has another version, or there is none and it cannot be fetched.
pub(crate) fn environment() -> Result<Vec<(String, String)>, String> {
    let found = find()?;
    let mut path = found.libraries.display().to_string();
    if let Ok(rest) = std::env::var("LD_LIBRARY_PATH") {
        path = format!("{path}:{rest}");
    }
    Ok(vec![
        (found.variable.to_owned(), found.value),
        ("LD_LIBRARY_PATH".to_owned(), path),
    ])
}

/// The variable by which torch-sys finds a LibTorch, and the folder for the loader.
struct Found {
    variable: &'static str,
    value: String,
    libraries: PathBuf,
}

fn find() -> Result<Found, String> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    if variable("LIBTORCH_USE_PYTORCH").is_some_and(|value| value == "1") {
        return Ok(Found {
            variable: "LIBTORCH_USE_PYTORCH",
            value: "1".to_owned(),
            libraries: installed::python_library()?,
        });
    }
    let folder = match variable("LIBTORCH") {
        Some(named) => installed::check(PathBuf::from(named))?,
        None => cached()?,
    };
    Ok(Found {
        variable: "LIBTORCH",
        value: folder.to_str().ok_or("the path of LibTorch is no text")?.to_owned(),
        libraries: folder.join("lib"),
    })
}

/// The LibTorch in the cache folder.
fn cached() -> Result<PathBuf, String> {
    let folder = cache::folder()?.join(format!("libtorch-{VERSION}"));
    if folder.exists() {
        return installed::check(folder.clone()).map_err(|reason| format!("{reason}; delete {}", folder.display()));
    }
    fetch::fetch(&folder)?;
    Ok(folder)
}

/// Quotes a text for a shell.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_shell_reads_back_what_is_quoted() {
        for text in ["/a/b", "/with space/it's"] {
            let line = format!("printf %s {}", super::quoted(text));
            let output = std::process::Command::new("sh").args(["-c", &line]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), text);
        }
    }
}
