//! An installed LibTorch.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::VERSION;

/// The headers with LibTorch's version: in newer releases, and in older ones.
const HEADERS: [&str; 2] = [
    "include/torch/headeronly/version.h",
    "include/torch/csrc/api/include/torch/version.h",
];

/// The folder, if it contains a LibTorch of the right version.
///
/// # Errors
/// If there is none, or it has another version.
pub(crate) fn check(folder: PathBuf) -> Result<PathBuf, String> {
    let shown = folder.display();
    let headers = HEADERS.map(|header| std::fs::read_to_string(folder.join(header)).unwrap_or_default());
    match headers.iter().find_map(|header| version(header)).as_deref() {
        Some(VERSION) => {}
        Some(other) => {
            return Err(format!(
                "{shown} is LibTorch {other}, and the crate tch needs {VERSION}{}",
                fix()
            ));
        }
        None => {
            let header = HEADERS[0];
            return Err(format!(
                "{shown} holds no LibTorch: no version stands in its {header}{}",
                fix()
            ));
        }
    }
    let names = ["libtorch_cpu.so", "libtorch_cpu.dylib", "torch_cpu.lib"];
    if !names.iter().any(|name| folder.join("lib").join(name).exists()) {
        return Err(format!("{shown} has no lib/{}{}", names[0], fix()));
    }
    Ok(folder)
}

/// The folder of the libraries of the PyTorch that python3 imports.
///
/// # Errors
/// If there is none, or it has another version.
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

/// The version in a header's lines such as `#define TORCH_VERSION_MAJOR 2`.
fn version(header: &str) -> Option<String> {
    let part = |name: &str| {
        let start = format!("#define TORCH_VERSION_{name} ");
        header.lines().find_map(|line| line.trim().strip_prefix(start.as_str()))
    };
    let parts = [part("MAJOR")?, part("MINOR")?, part("PATCH")?];
    Some(parts.map(str::trim).join("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn libtorch(name: &str, header: &str, [major, minor, patch]: [u32; 3]) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("polygrad-xtask-{}-{name}", std::process::id()));
        let header = folder.join(header);
        std::fs::create_dir_all(header.parent().unwrap()).unwrap();
        let lines = [("MAJOR", major), ("MINOR", minor), ("PATCH", patch)];
        let lines = lines.map(|(name, value)| format!("#define TORCH_VERSION_{name} {value}\n"));
        std::fs::write(header, lines.concat()).unwrap();
        folder
    }

    #[test]
    fn another_version_is_named_with_the_one_that_is_needed() {
        let folder = libtorch("old", HEADERS[1], [1, 13, 1]);
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
        let folder = libtorch("half", HEADERS[0], [2, 13, 0]);
        let error = check(folder.clone()).unwrap_err();
        assert!(error.contains("has no lib/libtorch_cpu.so"), "{error}");
        std::fs::create_dir_all(folder.join("lib")).unwrap();
        std::fs::write(folder.join("lib/libtorch_cpu.so"), "").unwrap();
        assert_eq!(check(folder.clone()), Ok(folder.clone()));
        std::fs::remove_dir_all(folder).unwrap();
        let error = check(PathBuf::from("/nowhere")).unwrap_err();
        assert!(error.contains("/nowhere holds no LibTorch"), "{error}");
    }
}
