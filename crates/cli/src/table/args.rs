//! The arguments of `polygrad train table`.

use std::path::PathBuf;

use clap::Args;

use super::SPLITS;
use crate::args::{Every, Examples};
use crate::run::config::Optimizer;
use crate::train::line::RunArgs;

#[derive(Debug, Args)]
pub(crate) struct TrainArgs {
    #[command(flatten)]
    pub(crate) every: Every,

    /// CSV file, whose first row names the columns
    #[arg(value_name = "FILE")]
    pub(crate) path: Option<PathBuf>,

    /// Path of the CSV file, instead of FILE
    #[arg(long, value_name = "FILE")]
    pub(crate) data: Option<PathBuf>,

    /// Column to predict
    #[arg(long, value_name = "COLUMN")]
    pub(crate) target: Option<String>,

    /// Treat the target as a class, given by a whole number or a word [default: words are classes, numbers are not]
    #[arg(long, conflicts_with = "regress")]
    pub(crate) classify: bool,

    /// Treat the target as a number
    #[arg(long)]
    pub(crate) regress: bool,

    /// Column to leave out; may be repeated
    #[arg(long, value_name = "COLUMN")]
    pub(crate) ignore: Vec<String>,

    /// Marks of missing values, such as NA,?; the run keeps them for later tables
    #[arg(long, value_name = "MARKS", value_delimiter = ',', allow_hyphen_values = true)]
    pub(crate) missing: Vec<String>,

    /// Column to treat as words, whatever its cells look like; may be repeated
    #[arg(long, value_name = "COLUMN")]
    pub(crate) categorical: Vec<String>,

    /// Read numbers with a decimal comma, such as 1,5
    #[arg(long)]
    pub(crate) decimal_comma: bool,

    /// Share of the rows to hold out for validation, drawn by the seed [default: 0.2]
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub(crate) validation_split: Option<f64>,

    /// Optimizer [default: adamw]
    #[arg(long, value_enum)]
    pub(crate) optimizer: Option<Optimizer>,

    /// Train for quantization to 8 bits: layers round values as `polygrad quantize` will, and learn their ranges
    #[arg(long)]
    pub(crate) qat: bool,

    #[command(flatten)]
    pub(crate) examples: Examples,
}

impl RunArgs for TrainArgs {
    const ABOUT: &'static str = "Train a model that predicts one column of a table from the others";
    const USAGE: &'static str = "polygrad train table FILE --target COLUMN [OPTIONS]
       polygrad train --resume RUN [OPTIONS]";

    fn every(&self) -> &Every {
        &self.every
    }

    fn shards(&self) -> bool {
        self.examples.shard_optimizer
    }
}

/// A share of the rows of a table.
fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| SPLITS.contains(share));
    share.ok_or_else(|| format!("give a share, {} to {}", SPLITS.start(), SPLITS.end()))
}
