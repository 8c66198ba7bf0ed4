//! Exported models before judges: ONNX's checker and ONNX Runtime by Python, then every engine of `polygrad-onnx`.

use std::path::Path;
use std::process::Command;

use crate::{cache, cargo, onnxruntime};

/// Exports the models of `polygrad-onnx`'s tests to a folder and has them judged.
///
/// # Errors
/// When a judge is missing, or one finds something.
pub(crate) fn run() -> Result<(), String> {
    let folder = cache::folder()?.join("onnx-judges");
    if folder.exists() {
        std::fs::remove_dir_all(&folder).map_err(|e| format!("cannot delete {}: {e}", folder.display()))?;
    }
    let shown = folder.display().to_string();
    cargo::run(
        &[
            "run",
            "--quiet",
            "-p",
            "polygrad-onnx",
            "--example",
            "exported",
            "--",
            &shown,
        ],
        &[],
    )?;
    let python = python(&folder);
    let line = "run --quiet -p polygrad-onnx --features ort,rten --example judged --";
    let mut line: Vec<&str> = line.split(' ').collect();
    line.push(&shown);
    let engines = cargo::run(&line, &onnxruntime::environment()?);
    python.and(engines)
}

/// `onnx.checker` in full, strict shape inference, and ONNX Runtime as Python has it.
fn python(folder: &Path) -> Result<(), String> {
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let status = Command::new(&python).arg("scripts/onnx_judge.py").arg(folder).status();
    let fix = "\n  fix: let PYTHON name one with the packages onnx, onnxruntime and numpy";
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("scripts/onnx_judge.py ended with {status}{fix}")),
        Err(error) => Err(format!("{python} cannot be started: {error}{fix}")),
    }
}
