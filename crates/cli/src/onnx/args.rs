//! The arguments of the commands for model files.

use std::path::PathBuf;

use clap::Args;

use super::Given;
use crate::args::positive;

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The ONNX file; external data lies beside it
    #[arg(value_name = "MODEL.onnx")]
    pub(crate) model: PathBuf,

    /// What the native engine computes with, such as cpu
    #[arg(long, default_value = "cpu")]
    pub(crate) backend: String,

    /// What runs the model: native, ort (ONNX Runtime) or rten; the last two run on the CPU
    #[arg(long, default_value = "native")]
    pub(crate) engine: String,

    /// Threads of the CPU backend or the engine [default: its own choice]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) threads: Option<usize>,

    /// An input: NAME=FILE.npy, NAME=FILE.npz (the array NAME in it) or NAME=random; once for each
    #[arg(long, value_name = "NAME=FILE")]
    pub(crate) input: Vec<Given>,

    /// The size of a named extent, for random inputs; may be given several times
    #[arg(long, value_name = "NAME=N", value_parser = extent)]
    pub(crate) dim: Vec<(String, usize)>,

    /// Write the outputs to this file
    #[arg(long, value_name = "FILE.npz")]
    pub(crate) output: Option<PathBuf>,

    /// Run the model that often again, and say how long it took
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) time: Option<usize>,

    /// What the model may take of memory in all, such as 2GB; little for a file of unknown origin [default: 3/4 of the
    /// machine's]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub(crate) max_memory: Option<usize>,

    /// The most nodes that a run may execute, those in loops counted each time [default: 2^40]
    #[arg(long, value_name = "N")]
    pub(crate) max_steps: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// An .onnx or .safetensors file, or the folder that `train` left
    pub(crate) model: PathBuf,

    /// The size of a named extent, for the FLOPs; may be given several times [default: 1 each]
    #[arg(long, value_name = "NAME=N", value_parser = extent)]
    pub(crate) dim: Vec<(String, usize)>,

    /// What the tensors of an ONNX file may take of memory in all, such as 2GB [default: 3/4 of the machine's]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub(crate) max_memory: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct ExportRun {
    /// The folder that `train` left
    pub(crate) run: PathBuf,

    /// The file to write
    #[arg(long, value_name = "FILE.onnx")]
    pub(crate) onnx: PathBuf,

    /// The version of ONNX's ops: 17, 18, 20 or 23
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = opset)]
    pub(crate) opset: i64,

    /// The extents that are known only when the file is run [default: batch]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with = "fixed")]
    pub(crate) dynamic: Vec<String>,

    /// For batches of one example alone
    #[arg(long)]
    pub(crate) fixed: bool,

    /// What to compare with [default: what the run was trained on]
    #[arg(long)]
    pub(crate) backend: Option<String>,

    /// Threads of the CPU backend [default: one per core]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) threads: Option<usize>,
}

/// `NAME=N`.
fn extent(text: &str) -> Result<(String, usize), String> {
    let parsed = text.rsplit_once('=').filter(|(name, _)| !name.is_empty());
    let parsed = parsed.and_then(|(name, extent)| Some((name.to_owned(), extent.parse().ok()?)));
    parsed.ok_or_else(|| "give NAME=N, such as batch=8".into())
}

fn opset(text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| "give 17, 18, 20 or 23".into())
}

/// `2GB`, `512MiB`, `1000000`.
pub(crate) fn bytes(text: &str) -> Result<usize, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let unit = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => Some(1),
        "kb" => Some(1000),
        "mb" => Some(1_000_000),
        "gb" => Some(1_000_000_000),
        "tb" => Some(1_000_000_000_000),
        "kib" => Some(1 << 10),
        "mib" => Some(1 << 20),
        "gib" => Some(1 << 30),
        "tib" => Some(1 << 40),
        _ => None,
    };
    let size = unit
        .zip(number.parse::<usize>().ok())
        .and_then(|(unit, number)| number.checked_mul(unit));
    size.ok_or_else(|| "give a size such as 2GB, 512MiB or 1000000".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        let sizes = ["2GB", "512MiB", "1000000", "3 kb", "1b"].map(bytes);
        assert_eq!(sizes, [2_000_000_000, 512 << 20, 1_000_000, 3000, 1].map(Ok));
        for text in ["", "GB", "2XB", "-1", "1.5GB", "99999999999999999999", "20000000TiB"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }
}
