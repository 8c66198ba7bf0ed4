//! Runs ONNX files in every engine of this build, each file at two sizes, and prints the largest differences from the
//! recorded answers: `cargo run -p polygrad-judging --features ort,rten --bin judged --
//! FOLDER`, with a folder written by the program `exported` or by scripts/pytorch_exports.py.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use polygrad_core::ErrorKind;
use polygrad_cpu::Cpu;
use polygrad_judging::{TOLERANCE, folder, tell, tensors};
use polygrad_onnx::{Engine, OnnxModel, Options, Value};
use polygrad_tensor::{Device, Error, Result};

fn main() -> ExitCode {
    match judge() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether all agree.
fn judge() -> Result<bool> {
    let engines: Vec<Engine> = Engine::ALL
        .into_iter()
        .filter(|engine| match engine.available() {
            Ok(()) => true,
            Err(error) => {
                eprintln!("left out: {error}");
                false
            }
        })
        .collect();
    let mut agree = true;
    for model in entries(&folder()?)? {
        for file in entries(&model)? {
            if file.extension().is_none_or(|extension| extension != "onnx") {
                continue;
            }
            let [name, stem] = [&model, &file].map(|path| path.file_stem().unwrap_or_default().to_string_lossy());
            for &engine in &engines {
                let verdict = match difference(&file, engine) {
                    Ok(worst) => {
                        agree &= worst <= TOLERANCE;
                        format!("{worst:e}")
                    }
                    // A feature that an engine lacks is not a disagreement.
                    Err(error) if engine != Engine::Native && lacks(error.kind()) => format!("-\t{}", line(&error)),
                    Err(error) => {
                        agree = false;
                        format!("x\t{}", line(&error))
                    }
                };
                tell(&name, &stem, engine.title(), &verdict);
            }
        }
    }
    Ok(agree)
}

fn lacks(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Unsupported | ErrorKind::DType)
}

fn line(error: &Error) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The largest difference in both rounds.
fn difference(file: &Path, engine: Engine) -> Result<f64> {
    let options = Options {
        engine,
        threads: Some(1),
        ..Options::default()
    };
    let device = Device::<Cpu>::default().into_any();
    let model = OnnxModel::load_with(file, &device, options)?;
    let names: Vec<String> = model.inputs().map(|(name, _)| name.to_owned()).collect();
    let mut worst = 0f64;
    for round in 0..2 {
        let inputs = tensors(file, "input", round)?.into_iter().map(Value::from);
        let outputs = model.run(names.iter().cloned().zip(inputs))?;
        let found = outputs.iter().map(|(_, value)| value.host());
        let found = found.collect::<Result<Vec<_>>>()?;
        worst = worst.max(polygrad_judging::difference(&found, &tensors(file, "output", round)?)?);
    }
    Ok(worst)
}

/// The entries of a folder, by name.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = |e| Error::io("read", folder, e);
    let entries = std::fs::read_dir(folder).map_err(failed)?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let mut paths = paths.collect::<std::io::Result<Vec<_>>>().map_err(failed)?;
    paths.sort();
    Ok(paths)
}
