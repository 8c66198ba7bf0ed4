//! Runs exported models in tract: one of the judges of `cargo xtask onnx-judges`, which describes the folders.
//!
//! `polygrad-judge-tract FOLDER` visits the folder of each model in it, every `.onnx` file there, and the inputs and
//! outputs of two sizes, `input_ROUND_I.pb` and `output_ROUND_I.pb`. Each file is run at both sizes, which tract is
//! told before it plans: it rejects some models with symbolic extents. For each file it prints a line with tabs
//! between: the model, the file, the judge, and the largest difference of an output relative to its largest value, or
//! `-` and a remark if tract lacks a feature.

use std::fs::{self, File};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use tract_onnx::data_resolver::MmapDataResolver;
use tract_onnx::pb::NodeProto;
use tract_onnx::prelude::*;
use tract_onnx::tensor::{load_tensor, proto_from_reader};

fn main() -> TractResult<()> {
    let folder = std::env::args().nth(1);
    let folder = folder.ok_or_else(|| TractError::msg("say in which folder the files are"))?;
    // Panics are reported in the output line instead.
    std::panic::set_hook(Box::new(|_| {}));
    for model in entries(Path::new(&folder))? {
        for file in entries(&model)? {
            if file.extension().is_none_or(|extension| extension != "onnx") {
                continue;
            }
            let verdict = match catch_unwind(AssertUnwindSafe(|| difference(&file))) {
                Ok(Ok(worst)) => format!("{worst:e}"),
                Ok(Err(error)) => format!("-\t{}", remark(&format!("{error:#}"))),
                Err(panic) => {
                    let text = panic.downcast_ref::<String>().map(String::as_str);
                    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
                    format!("-\tpanics: {}", remark(text.unwrap_or("without a text")))
                }
            };
            let [name, stem] = [&model, &file].map(|path| path.file_stem().unwrap_or_default().to_string_lossy());
            println!("{name}\t{stem}\ttract\t{verdict}");
        }
    }
    Ok(())
}

/// The largest difference in both rounds.
fn difference(file: &Path) -> TractResult<f64> {
    let onnx = tract_onnx::onnx()
        .with_ignore_value_info(true)
        .with_ignore_output_shapes(true);
    let graph = onnx.proto_model_for_path(file)?.graph.unwrap_or_default();
    if graph.node.iter().any(runs_backwards) {
        return Err(TractError::msg(
            "recurrent layers with the direction `reverse` alone, which it runs forwards",
        ));
    }
    let mut worst = 0f64;
    for round in 0..2 {
        let inputs = tensors(file, "input", round)?;
        let mut model = onnx.model_for_path(file)?;
        for (i, input) in inputs.iter().enumerate() {
            model.set_input_fact(i, InferenceFact::dt_shape(input.datum_type(), input.shape()))?;
        }
        let model = model.into_optimized()?.into_runnable()?;
        let found = model.run(inputs.into_iter().map(TValue::from).collect())?;
        let expected = tensors(file, "output", round)?;
        if found.len() != expected.len() {
            return Err(TractError::msg(format!(
                "{} outputs, not {}",
                found.len(),
                expected.len()
            )));
        }
        for (found, expected) in found.iter().zip(&expected) {
            worst = worst.max(compare(found, expected)?);
        }
    }
    Ok(worst)
}

/// tract 0.23.9 infers the number of directions from the shape of the weights, and ignores the direction of a single
/// one.
fn runs_backwards(node: &NodeProto) -> bool {
    node.attribute
        .iter()
        .any(|attribute| attribute.name == "direction" && attribute.s == b"reverse")
}

/// The largest difference, relative to the largest value.
fn compare(found: &Tensor, expected: &Tensor) -> TractResult<f64> {
    if (found.shape(), found.datum_type()) != (expected.shape(), expected.datum_type()) {
        return Err(TractError::msg(format!("gives {found:?} where {expected:?} is right")));
    }
    let values = |tensor: &Tensor| -> TractResult<Vec<f64>> {
        let tensor = tensor.cast_to::<f64>()?;
        Ok(tensor.to_plain_array_view::<f64>()?.iter().copied().collect())
    };
    let (found, expected) = (values(found)?, values(expected)?);
    let largest = expected.iter().fold(0f64, |largest, value| largest.max(value.abs()));
    let scale = if largest == 0.0 { 1.0 } else { largest };
    let pairs = found.iter().zip(&expected);
    Ok(pairs.fold(0.0, |worst: f64, (a, b)| match (a - b).abs() / scale {
        _ if a == b || (a.is_nan() && b.is_nan()) => worst,
        difference if difference.is_nan() => f64::INFINITY,
        difference => worst.max(difference),
    }))
}

/// The recorded tensors of a round, in order.
fn tensors(file: &Path, kind: &str, round: usize) -> TractResult<Vec<Tensor>> {
    let path = |i: usize| file.with_file_name(format!("{kind}_{round}_{i}.pb"));
    let paths = (0..).map(path).take_while(|path| path.exists());
    paths
        .map(|path| load_tensor(&MmapDataResolver, &proto_from_reader(File::open(path)?)?, None))
        .collect()
}

/// Shortens a text to one line, without all of a long chain of causes.
fn remark(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(300) {
        Some((end, _)) => format!("{} …", &line[..end]),
        None => line,
    }
}

fn entries(folder: &Path) -> TractResult<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path()));
    let mut paths = entries.collect::<std::io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}
