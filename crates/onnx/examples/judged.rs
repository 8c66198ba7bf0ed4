//! Runs the models that the example `exported` wrote in every engine of this build, and prints the largest differences from what the
//! models themselves gave, relative to the largest value, as a Markdown table:
//! `cargo run -p polygrad-onnx --features ort,rten --example judged -- FOLDER`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use polygrad_core::ErrorKind;
use polygrad_cpu::Cpu;
use polygrad_onnx::graph::Literal;
use polygrad_onnx::{Engine, OnnxModel, Options, Value};
use polygrad_tensor::{Device, Error, Result};

/// Relative to the largest value of an output.
const TOLERANCE: f64 = 1e-5;

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

/// Whether all agree.
fn judge() -> Result<bool> {
    let folder = std::env::args().nth(1);
    let folder = folder.ok_or_else(|| Error::invalid("say in which folder the files are"))?;
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
    let titles: Vec<&str> = engines.iter().map(|engine| engine.title()).collect();
    println!("| model | opset | {} |", titles.join(" | "));
    println!("|---|---|{}", "---|".repeat(engines.len()));
    let (mut agree, mut remarks) = (true, Vec::new());
    for model in entries(Path::new(&folder))? {
        for file in entries(&model)?
            .into_iter()
            .filter(|path| path.extension().is_some_and(|e| e == "onnx"))
        {
            let [name, opset] = [&model, &file].map(|path| path.file_stem().unwrap_or_default().to_string_lossy());
            let cells = engines.iter().map(|&engine| match difference(&file, engine) {
                Ok(worst) => {
                    agree &= worst <= TOLERANCE;
                    format!("{worst:.1e}")
                }
                Err(error) => {
                    // What an engine lacks is no disagreement.
                    agree &= matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::DType);
                    remarks.push(format!("{name} in {opset} by {engine}: {error}"));
                    "—".to_owned()
                }
            });
            let cells: Vec<String> = cells.collect();
            println!(
                "| {name} | {} | {} |",
                opset.trim_start_matches("opset"),
                cells.join(" | ")
            );
        }
    }
    remarks.iter().for_each(|remark| eprintln!("{remark}"));
    Ok(agree)
}

/// The largest difference of both rounds.
fn difference(file: &Path, engine: Engine) -> Result<f64> {
    let options = Options {
        engine,
        threads: Some(1),
        ..Options::default()
    };
    let device = Device::<Cpu>::default();
    let model = OnnxModel::load_with(file, &device, options)?;
    let names: Vec<String> = model.inputs().map(|(name, _)| name.to_owned()).collect();
    let mut worst = 0f64;
    for round in 0..2 {
        let inputs = tensors(file, "input", round)?.into_iter().map(Value::from);
        let outputs = model.run(names.iter().cloned().zip(inputs))?;
        let expected = tensors(file, "output", round)?;
        if expected.len() != outputs.len() {
            return Err(Error::invalid(format!(
                "{} outputs, not {}",
                outputs.len(),
                expected.len()
            )));
        }
        for ((name, found), expected) in outputs.iter().zip(expected) {
            let (found, expected) = (found.host()?, expected.host().clone());
            if (found.shape(), found.dtype()) != (expected.shape(), expected.dtype()) {
                return Err(Error::shape(format!(
                    "{name} is {}{}, not {}{}",
                    found.dtype(),
                    found.shape(),
                    expected.dtype(),
                    expected.shape()
                )));
            }
            let (a, b) = (found.to_f64_vec(), expected.to_f64_vec());
            let largest = b.iter().fold(0f64, |largest, v| largest.max(v.abs()));
            let scale = if largest == 0.0 { 1.0 } else { largest };
            for (a, b) in a.iter().zip(&b) {
                let difference = if a == b || (a.is_nan() && b.is_nan()) {
                    0.0
                } else {
                    (a - b).abs() / scale
                };
                // What is no number here and one there is as far away as can be.
                worst = worst.max(if difference.is_nan() { f64::INFINITY } else { difference });
            }
        }
    }
    Ok(worst)
}

/// The recorded tensors of a round, in order.
fn tensors(file: &Path, kind: &str, round: usize) -> Result<Vec<Literal>> {
    let path = |i: usize| file.with_file_name(format!("{kind}_{round}_{i}.pb"));
    let paths = (0..).map(path).take_while(|path| path.exists());
    let read = |path: PathBuf| {
        let bytes = std::fs::read(&path).map_err(|e| Error::io("read", &path, e))?;
        Ok(Literal::decode(bytes)?.1)
    };
    paths.map(read).collect()
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = |e| Error::io("read", folder, e);
    let entries = std::fs::read_dir(folder).map_err(failed)?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let mut paths = paths.collect::<std::io::Result<Vec<_>>>().map_err(failed)?;
    paths.sort();
    Ok(paths)
}
