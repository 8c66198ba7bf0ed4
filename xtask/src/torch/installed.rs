//! A LibTorch that is there already.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::VERSION;

/// Where LibTorch's own headers say its version.
const HEADER: &str = "include/torch/csrc/api/include/torch/version.h";

/// The folder, if a LibTorch of the right version lies there.
///
/// # Errors
/// When there is none, or it has another version.
pub(crate) fn check(folder: PathBuf) -> Result<PathBuf, String> {
    let path = folder.join(HEADER);
    let header = std::fs::read_to_string(&path).map_err(|e| {
        format!(
            "{} holds no LibTorch: {}: {e}{}",
            folder.display(),
            path.display(),
            fix()
        )
    })?;
    match version(&header) {
        Some(VERSION) => {}
        Some(other) => {
            return Err(format!(
                "{} is LibTorch {other}, and the crate tch needs {VERSION}{}",
                folder.display(),
                fix()
            ));
        }
        None => return Err(format!("{} says no version{}", path.display(), fix())),
    }
    let library = folder.join("lib/libtorch_cpu.so");
    if !library.exists() && !folder.join("lib/libtorch_cpu.dylib").exists() {
        return Err(format!("{} is missing{}", library.display(), fix()));
    }
    Ok(folder)
}

/// The folder of the libraries of the PyTorch that python3 imports.
///
/// # Errors
/// When there is none, or it has another version.
pub(crate) fn python_library() -> Result<PathBuf, String> {
    let script = "import torch, os; print(torch.__version__.split('+')[0]); print(os.path.dirname(torch.__file__))";
    let output = Command::new("python3").args(["-c", script]).output();
    let output = output.map_err(|e| format!("LIBTORCH_USE_PYTORCH: python3 cannot be started: {e}{}", fix()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    match text.lines().collect::<Vec<_>>().as_slice() {
        [VERSION, folder] => Ok(Path::new(folder).join("lib")),
        [other, _] => Err(format!(
            "LIBTORCH_USE_PYTORCH: python3 has PyTorch {other}, and the crate tch needs {VERSION}{}",
            fix()
        )),
        _ => Err(format!("LIBTORCH_USE_PYTORCH: python3 has no torch{}", fix())),
    }
}

fn fix() -> String {
    format!(
        "\n  fix: let LIBTORCH name the folder of a LibTorch {VERSION}, or unset LIBTORCH and LIBTORCH_USE_PYTORCH and run \
         `cargo xtask setup torch`"
    )
}

/// The version in a header's line `#define TORCH_VERSION "2.13.0"`.
fn version(header: &str) -> Option<&str> {
    let line = header
        .lines()
        .find_map(|line| line.trim().strip_prefix("#define TORCH_VERSION "))?;
    let version = line.trim().trim_matches('"');
    Some(version.split('+').next().unwrap_or(version))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn libtorch(name: &str, version: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("polygrad-xtask-{}-{name}", std::process::id()));
        let header = folder.join(HEADER);
        std::fs::create_dir_all(header.parent().unwrap()).unwrap();
        std::fs::write(
            header,
            format!("#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION \"{version}\"\n"),
        )
        .unwrap();
        folder
    }

    #[test]
    fn another_version_is_named_with_the_one_that_is_needed() {
        let folder = libtorch("old", "1.13.1");
        let error = check(folder.clone()).unwrap_err();
        assert!(
            error.contains("is LibTorch 1.13.1") && error.contains("needs 2.13.0"),
            "{error}"
        );
        assert!(
            error.contains("fix:") && error.contains("cargo xtask setup torch"),
            "{error}"
        );
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_library_that_is_missing_is_named() {
        let folder = libtorch("half", "2.13.0+cpu");
        let error = check(folder.clone()).unwrap_err();
        assert!(error.contains("lib/libtorch_cpu.so is missing"), "{error}");
        std::fs::create_dir_all(folder.join("lib")).unwrap();
        std::fs::write(folder.join("lib/libtorch_cpu.so"), "").unwrap();
        assert_eq!(check(folder.clone()), Ok(folder.clone()));
        std::fs::remove_dir_all(folder).unwrap();
        let error = check(PathBuf::from("/nowhere")).unwrap_err();
        assert!(error.contains("/nowhere holds no LibTorch"), "{error}");
    }
}
