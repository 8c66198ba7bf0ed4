//! The common part of this crate's programs: recorded tensors, differences of results from them, and the output lines.

use std::path::{Path, PathBuf};

use polygrad_core::HostTensor;
use polygrad_onnx::graph::Literal;
use polygrad_tensor::{Error, Result};

/// Relative to the largest value of an output.
pub const TOLERANCE: f64 = 1e-5;

/// The folder that the command line names.
pub fn folder() -> Result<PathBuf> {
    let folder = std::env::args().nth(1).map(PathBuf::from);
    folder.ok_or_else(|| Error::invalid("say in which folder the files are"))
}

/// Prints a line: the model, the file, the judge, and the largest difference, or `x` and the reason for a failure, or
/// `-` and the feature that the judge lacks.
pub fn tell(model: &str, file: &str, judge: &str, verdict: &str) {
    println!("{model}\t{file}\t{judge}\t{verdict}");
}

/// The recorded tensors of a round, in order, from the folder of `file`.
pub fn tensors(file: &Path, kind: &str, round: usize) -> Result<Vec<Literal>> {
    let path = |i: usize| file.with_file_name(format!("{kind}_{round}_{i}.pb"));
    let paths = (0..).map(path).take_while(|path| path.exists());
    let read = |path: PathBuf| {
        let bytes = std::fs::read(&path).map_err(|e| Error::io("read", &path, e))?;
        Ok(Literal::decode(bytes)?.1)
    };
    paths.map(read).collect()
}

/// The largest difference of any output, relative to its largest value.
pub fn difference(found: &[HostTensor], expected: &[Literal]) -> Result<f64> {
    if found.len() != expected.len() {
        let (found, expected) = (found.len(), expected.len());
        return Err(Error::invalid(format!("{found} outputs, not {expected}")));
    }
    let mut worst = 0f64;
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let expected = expected.host();
        if (found.shape(), found.dtype()) != (expected.shape(), expected.dtype()) {
            return Err(Error::shape(format!(
                "output {i} is {}{}, not {}{}",
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
            // NaN on only one side counts as an infinite difference.
            worst = worst.max(if difference.is_nan() { f64::INFINITY } else { difference });
        }
    }
    Ok(worst)
}
