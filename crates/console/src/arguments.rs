//! Parsing of command-line arguments.

use std::path::{Path, PathBuf};

use polygrad::backend::printable;

/// A whole number, 1 or more.
///
/// # Errors
/// A message for the user that says what to give.
pub fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if n > 0 => Ok(n),
        _ => Err("give a whole number, 1 or more".into()),
    }
}

/// A `.onnx` file to be written; see [`png_file`].
///
/// # Errors
/// As of [`png_file`].
pub fn onnx_file(path: PathBuf) -> Result<PathBuf, String> {
    written(path, "onnx")
}

/// A `.npz` file to be written; see [`png_file`].
///
/// # Errors
/// As of [`png_file`].
pub fn npz_file(path: PathBuf) -> Result<PathBuf, String> {
    written(path, "npz")
}

/// A `.json` file to be written; see [`png_file`].
///
/// # Errors
/// As of [`png_file`].
pub fn json_file(path: PathBuf) -> Result<PathBuf, String> {
    written(path, "json")
}

/// A `.png` file to be written. Any name may be given to a new file; an old one is only replaced if its name says that
/// it is of the same kind, and it is no `config.json`, which belongs to a run or a model.
///
/// # Errors
/// A message for the user that says what to give.
pub fn png_file(path: PathBuf) -> Result<PathBuf, String> {
    written(path, "png")
}

fn written(path: PathBuf, ending: &str) -> Result<PathBuf, String> {
    let is_of_kind = |path: &Path| path.extension().is_some_and(|end| end.eq_ignore_ascii_case(ending));
    match path.is_file() && (!is_of_kind(&path) || path.ends_with("config.json")) {
        false => Ok(path),
        true => Err(format!(
            "{} exists and would be lost: give the name of a new file, or of an old one that ends in .{ending} and is \
             no config.json",
            printable(&path.to_string_lossy())
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn only_files_of_the_same_kind_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["a.onnx", "config.json", "b.PNG", "c.json", "weights.safetensors"] {
            fs::write(at(name), "x").unwrap();
        }
        for (parse, name) in [
            (onnx_file as fn(PathBuf) -> Result<PathBuf, String>, "a.onnx"),
            (png_file, "b.PNG"),
            (json_file, "c.json"),
            (npz_file, "new"),
            (json_file, "new/config.json"),
        ] {
            assert_eq!(parse(at(name)), Ok(at(name)));
        }
        for (parse, name) in [
            (onnx_file as fn(PathBuf) -> Result<PathBuf, String>, "config.json"),
            (json_file, "config.json"),
            (png_file, "weights.safetensors"),
            (npz_file, "a.onnx"),
        ] {
            let error = parse(at(name)).unwrap_err();
            assert!(
                error.contains(name) && error.contains("give the name of a new file"),
                "{error}"
            );
        }
    }
}
