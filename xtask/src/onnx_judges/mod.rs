//! Checks of ONNX files and state dicts by judges: ONNX's checker, ONNX Runtime, RTen, tract and PyTorch.

mod verdicts;

use std::process::{Command, Stdio};

use crate::pytorch::Python;
use crate::{cache, cargo, onnxruntime};
use verdicts::Verdicts;

/// Exports Polygrad's models and PyTorch's, has both judged, and prints the results as tables.
///
/// # Errors
/// If a judge is missing or finds a problem.
pub(crate) fn run() -> Result<(), String> {
    let folder = cache::folder()?.join("onnx-judges");
    if folder.exists() {
        std::fs::remove_dir_all(&folder).map_err(|e| format!("cannot delete {}: {e}", folder.display()))?;
    }
    let (ours, theirs) = (folder.join("polygrad"), folder.join("pytorch"));
    let [ours, theirs] = [&ours, &theirs].map(|folder| folder.display().to_string());
    let (python, engines) = (Python::find()?, onnxruntime::environment()?);
    cargo::run(&program("", "exported", &ours), &[])?;
    let mut export = python.script("pytorch_exports.py");
    finished(export.arg(&theirs).stdout(Stdio::null())).map_err(|reason| reason + &python.fix())?;

    let judged = |folder: &str| cargo::command(&program("ort,rten", "judged", folder), &engines);
    let manifest = cargo::checkout().join("judges/tract/Cargo.toml");
    let manifest = manifest.display().to_string();
    let tract = |folder: &str| cargo::command(&["run", "--quiet", "--manifest-path", &manifest, "--", folder], &[]);
    let script = |name: &str, folder: &str| {
        let mut command = python.script(name);
        command.arg(folder);
        command
    };
    let exports = Verdicts::of([judged(&ours), tract(&ours), script("onnx_judge.py", &ours)])?;
    let imports = Verdicts::of([judged(&theirs), tract(&theirs)])?;
    let loaded = cargo::command(&program("", "loaded", &theirs), &[]);
    let weights = Verdicts::of([script("pytorch_judge.py", &ours), loaded])?;

    let judges = ["checker", "Polygrad", "ONNX Runtime", "RTen", "tract"];
    exports.print("Exported by Polygrad", &judges);
    imports.print("Exported by PyTorch", &judges[1..]);
    weights.print(
        "State dicts of Polygrad in PyTorch, and of PyTorch in Polygrad",
        &["PyTorch", "Polygrad"],
    );
    let failures = [exports, imports, weights].map(|verdicts| verdicts.failures()).concat();
    match failures.is_empty() {
        true => Ok(()),
        false => Err(failures.join("\n")),
    }
}

/// Cargo's arguments for one of `polygrad-judging`'s programs.
fn program<'a>(features: &'a str, name: &'a str, folder: &'a str) -> Vec<&'a str> {
    let mut line: Vec<&str> = "run --quiet -p polygrad-judging --bin".split(' ').collect();
    line.push(name);
    if !features.is_empty() {
        line.extend(["--features", features]);
    }
    line.extend(["--", folder]);
    line
}

fn finished(command: &mut Command) -> Result<(), String> {
    let shown = format!("{command:?}");
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{shown} ended with {status}")),
        Err(error) => Err(format!("{shown} cannot be started: {error}")),
    }
}
