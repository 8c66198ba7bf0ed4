//! The options of `polygrad quantize`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use polygrad_onnx::{Calibration, Int8};

use crate::args::{count, number, positive};

/// The default limit on the loss of accuracy, in percentage points.
const MAX_DROP: f64 = 1.0;

/// How ranges are derived from data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Method {
    /// From the smallest to the largest number
    Minmax,
    /// Without the rarest numbers at both ends; --percentile says how many are kept
    Percentile,
    /// The range whose rounding has the least mean squared error
    Mse,
}

/// When ranges are determined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// From data, now: convolutions and products are on bytes
    Static,
    /// In each run: products alone, without data
    Dynamic,
}

#[derive(Debug, Args)]
pub(crate) struct QuantizeFile {
    /// The folder that `train` left, or an ONNX file in f32 of op set 13 or newer
    #[arg(value_name = "RUN|FILE.onnx")]
    pub(crate) model: PathBuf,

    /// The file to write
    #[arg(long, value_name = "FILE.onnx")]
    pub(crate) out: PathBuf,

    /// When the ranges of values are found
    #[arg(long, value_enum, default_value = "static", value_name = "MODE")]
    pub(crate) int8: Mode,

    /// Rows to find ranges with and to measure by: an .npz file with an array for each input and one of `labels` or
    /// `targets`, a CSV file, or a folder of images [default: the data of the run]
    #[arg(long, value_name = "DATA")]
    pub(crate) calibrate: Option<PathBuf>,

    /// How ranges follow from the rows [default: minmax]
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) calibration: Option<Method>,

    /// The percentage of all numbers that a range holds [default: 99.99]
    #[arg(long, value_name = "P")]
    pub(crate) percentile: Option<f64>,

    /// How many rows ranges are found with; of a file, the others are to measure by
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = count)]
    pub(crate) rows: usize,

    /// A scale for each output channel of a weight, in place of one
    #[arg(long)]
    pub(crate) per_channel: bool,

    /// Leave this layer in f32, by the name of its node, in which * is any text; may be given several times
    #[arg(long, value_name = "NAME")]
    pub(crate) skip: Vec<String>,

    /// Leave layers in f32 whose signal-to-noise ratio is below this, in decibels
    #[arg(long, value_name = "DB", value_parser = number)]
    pub(crate) min_snr: Option<f64>,

    /// The episodes that a policy is judged by [default: 100]
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) episodes: Option<usize>,

    /// The most points that accuracy may fall (of a number to be predicted 100 times R², of a policy's return in
    /// percent): beyond that no file is left [default: 1]
    #[arg(long, value_name = "POINTS", value_parser = number)]
    pub(crate) max_drop: Option<f64>,

    /// What to compute with [default: what the run was trained on, cpu for a file]
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
