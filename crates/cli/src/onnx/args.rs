//! The arguments of the commands for model files.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser};
use polygrad_console::arguments::{npz_file, onnx_file};

use super::Given;
use crate::args::positive;

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// ONNX file, with any external data beside it
    #[arg(value_name = "MODEL.onnx")]
    pub(crate) model: PathBuf,

    /// Backend of the native engine, such as cpu
    #[arg(long, default_value = "cpu")]
    pub(crate) backend: String,

    /// Engine that runs the model: native, ort (ONNX Runtime) or rten; the last two run on the CPU
    #[arg(long, default_value = "native")]
    pub(crate) engine: String,

    /// Threads of the CPU backend or the engine [default: its own choice]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) threads: Option<usize>,

    /// Input: NAME=FILE.npy, NAME=FILE.npz (the array NAME in it) or NAME=random; repeat for each input
    #[arg(long, value_name = "NAME=FILE")]
    pub(crate) input: Vec<Given>,

    /// Size of a named dimension, for random inputs; may be repeated
    #[arg(long, value_name = "NAME=N", value_parser = extent)]
    pub(crate) dim: Vec<(String, usize)>,

    /// Write the outputs to this file
    #[arg(long, value_name = "FILE.npz", value_parser = PathBufValueParser::new().try_map(npz_file))]
    pub(crate) output: Option<PathBuf>,

    /// Run the model N more times, and report how long it took
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) time: Option<usize>,

    /// Maximum memory for the model in all, such as 2GB; set it low for an untrusted file [default: 3/4 of the
    /// machine's]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub(crate) max_memory: Option<usize>,

    /// Maximum nodes that a run may execute, counting those in loops each time [default: 2^40]
    #[arg(long, value_name = "N")]
    pub(crate) max_steps: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// .onnx or .safetensors file, or a run folder written by `train`
    pub(crate) model: PathBuf,

    /// Size of a named dimension, for the FLOPs; may be repeated [default: 1 each]
    #[arg(long, value_name = "NAME=N", value_parser = extent)]
    pub(crate) dim: Vec<(String, usize)>,

    /// Maximum memory for the tensors of an ONNX file in all, such as 2GB [default: 3/4 of the machine's]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub(crate) max_memory: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct ExportRun {
    /// Run folder written by `train`
    pub(crate) run: PathBuf,

    /// File to write
    #[arg(long, value_name = "FILE.onnx", value_parser = PathBufValueParser::new().try_map(onnx_file))]
    pub(crate) onnx: PathBuf,

    /// ONNX opset version: 17, 18, 20 or 23
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = opset)]
    pub(crate) opset: i64,

    /// Dimensions whose size is known only when the file is run [default: batch]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with = "fixed")]
    pub(crate) dynamic: Vec<String>,

    /// Fix the batch size to 1
    #[arg(long)]
    pub(crate) fixed: bool,

    /// Backend to compare the graph with [default: the one the run was trained on]
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
