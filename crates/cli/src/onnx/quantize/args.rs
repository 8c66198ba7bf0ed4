//! The options of `polygrad quantize`.

use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, ValueEnum};
use polygrad_console::arguments::onnx_file;
use polygrad_onnx::{Calibration, Int8};

use crate::args::{count, number, positive};

/// The default limit on the loss of accuracy, in percentage points.
const MAX_DROP: f64 = 1.0;

/// How ranges are derived from data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Method {
    /// From the smallest to the largest value
    Minmax,
    /// Without the rarest values at both ends; --percentile sets how many are kept
    Percentile,
    /// The range with the least mean squared rounding error
    Mse,
}

/// When ranges are determined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// Now, from data: convolutions and matrix products in 8 bits
    Static,
    /// In each run, without data: only matrix products in 8 bits
    Dynamic,
}

#[derive(Debug, Args)]
pub(crate) struct QuantizeFile {
    /// Run folder written by `train`, or an ONNX file in f32 of opset 13 or newer
    #[arg(value_name = "RUN|FILE.onnx")]
    pub(crate) model: PathBuf,

    /// File to write
    #[arg(long, value_name = "FILE.onnx", value_parser = PathBufValueParser::new().try_map(onnx_file))]
    pub(crate) out: PathBuf,

    /// When to determine the ranges of values
    #[arg(long, value_enum, default_value = "static", value_name = "MODE")]
    pub(crate) int8: Mode,

    /// Rows for calibration and evaluation: an .npz file with an array for each input and one of `labels` or `targets`,
    /// a CSV file, or a folder of images [default: the data of the run]
    #[arg(long, value_name = "DATA")]
    pub(crate) calibrate: Option<PathBuf>,

    /// How to determine ranges from the rows [default: minmax]
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) calibration: Option<Method>,

    /// Percentage of all values that a range includes [default: 99.99]
    #[arg(long, value_name = "P")]
    pub(crate) percentile: Option<f64>,

    /// Number of rows to calibrate with; the other rows of a file are for evaluation
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = count)]
    pub(crate) rows: usize,

    /// Use one scale per output channel of a weight, instead of one per weight
    #[arg(long)]
    pub(crate) per_channel: bool,

    /// Keep this layer in f32, by the name of its node; * matches any text; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) skip: Vec<String>,

    /// Keep layers in f32 whose signal-to-noise ratio is below this, in decibels
    #[arg(long, value_name = "DB", value_parser = number)]
    pub(crate) min_snr: Option<f64>,

    /// Number of episodes to evaluate a policy with [default: 100]
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) episodes: Option<usize>,

    /// Maximum drop in accuracy, in percentage points (for a predicted number, in 100 times R²; for a policy, in
    /// percent of its return); if it is larger, no file is written [default: 1]
    #[arg(long, value_name = "POINTS", value_parser = number)]
    pub(crate) max_drop: Option<f64>,

    /// Backend to compute with [default: the one the run was trained on, cpu for a file]
    #[arg(long)]
    pub(crate) backend: Option<String>,

    /// Threads of the CPU backend [default: one per core]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) threads: Option<usize>,
}

impl QuantizeFile {
    /// When ranges are determined.
    pub(crate) fn int8(&self) -> Int8 {
        match self.int8 {
            Mode::Static => Int8::Static,
            Mode::Dynamic => Int8::Dynamic,
        }
    }

    /// How ranges are derived; by default from the smallest to the largest number.
    pub(super) fn calibration(&self) -> Calibration {
        match self.calibration {
            None | Some(Method::Minmax) => Calibration::MinMax,
            Some(Method::Percentile) => Calibration::Percentile(self.percentile.unwrap_or(99.99)),
            Some(Method::Mse) => Calibration::Mse,
        }
    }

    /// The largest allowed loss, in points.
    pub(crate) fn allowed(&self) -> f64 {
        self.max_drop.unwrap_or(MAX_DROP)
    }
}
