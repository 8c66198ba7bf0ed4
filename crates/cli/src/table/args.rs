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

    /// A CSV file, whose first row names the columns
    #[arg(value_name = "FILE")]
    pub(crate) path: Option<PathBuf>,

    /// Where the file is, in place of FILE
    #[arg(long, value_name = "FILE")]
    pub(crate) data: Option<PathBuf>,

    /// The column to be predicted
    #[arg(long, value_name = "COLUMN")]
    pub(crate) target: Option<String>,

    /// The target is one of some whole numbers or words [default: words are classes, numbers are not]
    #[arg(long, conflicts_with = "regress")]
    pub(crate) classify: bool,

    /// The target is a number
    #[arg(long)]
    pub(crate) regress: bool,

    /// A column to leave out; may be given several times
    #[arg(long, value_name = "COLUMN")]
    pub(crate) ignore: Vec<String>,

    /// What stands for no value, such as NA,?; the run keeps it for later tables
    #[arg(long, value_name = "MARKS", value_delimiter = ',', allow_hyphen_values = true)]
    pub(crate) missing: Vec<String>,

    /// A column of words, whatever its cells look like; may be given several times
    #[arg(long, value_name = "COLUMN")]
    pub(crate) categorical: Vec<String>,

    /// Decimals follow a comma, as in 1,5
    #[arg(long)]
    pub(crate) decimal_comma: bool,

    /// The share of the rows, drawn by the seed, that the model is judged by [default: 0.2]
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub(crate) validation_split: Option<f64>,

    /// How the weights are updated [default: adamw]
    #[arg(long, value_enum)]
    pub(crate) optimizer: Option<Optimizer>,

    /// Train for 8 bits: layers round their numbers as `polygrad quantize` will, and learn the ranges for it
    #[arg(long)]
    pub(crate) qat: bool,

    #[command(flatten)]
    pub(crate) examples: Examples,
}

impl RunArgs for TrainArgs {
    const ABOUT: &'static str = "Learn to predict one column of a table from the others";
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
