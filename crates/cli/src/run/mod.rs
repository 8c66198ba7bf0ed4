//! The files of a training run.

pub(crate) mod any_path;
pub(crate) mod config;
pub(crate) mod curves;

use std::path::Path;

use polygrad::train::RunFolder;
pub(crate) use polygrad_console::atomic;

use crate::failure::{Failure, Result, Shown};
use crate::kind::Kind;

/// The run in `path`.
///
/// # Errors
/// No such folder, or no run in it.
pub(crate) fn open(path: &Path) -> Result<RunFolder> {
    let folder = RunFolder::new(path);
    if folder.config().exists() {
        return Ok(folder);
    }
    if folder.checkpoint().is_file() {
        return Err(
            Failure::new(format!("{} has lost its config.json", path.shown())).fix(format!(
                "the checkpoint has one, too, and writes it anew: {}",
                resume_command(&folder)
            )),
        );
    }
    let what = match path.is_dir() {
        true => "holds no run: it has no config.json",
        false => "is no folder",
    };
    Err(Failure::new(format!("{} {what}", path.shown()))
        .fix("give a folder that `polygrad train` left, such as runs/fashion-mnist-cnn-1"))
}

/// The kind of the run in `path`.
///
/// # Errors
/// As [`open`], settings that cannot be read, and a kind that is not in this build.
pub(crate) fn kind(path: &Path) -> Result<Kind> {
    config::kind(&open(path)?.config())?.must_be_built()
}

/// Whether a path is not a run but someone else's model: a file, or a folder in the Hub's form.
pub(crate) fn is_of_others(path: &Path) -> bool {
    let config = || std::fs::read(path.join("config.json")).ok();
    let names_type = |text: Vec<u8>| {
        serde_json::from_slice::<serde_json::Value>(&text).is_ok_and(|config| config.get("model_type").is_some())
    };
    path.is_file() || config().is_some_and(names_type)
}

/// The settings of the run in `path`, if it was left by another program than this command.
///
/// # Errors
/// As [`open`], and settings that cannot be read.
#[cfg(feature = "onnx")]
pub(crate) fn foreign(path: &Path) -> Result<Option<String>> {
    config::foreign(&open(path)?.config())
}

/// The command to continue a run.
pub(crate) fn resume_command(folder: &RunFolder) -> String {
    format!("polygrad train --resume {}", folder.path().shown())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_run_is_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let text = open(dir.path()).unwrap_err().to_string();
        assert!(text.contains("has no config.json"), "{text}");
        let text = open(&dir.path().join("none")).unwrap_err().to_string();
        assert!(text.contains("is no folder"), "{text}");
        std::fs::write(dir.path().join("checkpoint.safetensors"), "").unwrap();
        let text = open(dir.path()).unwrap_err().to_string();
        assert!(
            text.contains("has lost its config.json") && text.contains("--resume"),
            "{text}"
        );
        std::fs::write(dir.path().join("config.json"), "{}").unwrap();
        assert!(open(dir.path()).is_ok());
    }
}
