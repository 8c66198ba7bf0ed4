//! What `polygrad train` is told of images.

use std::path::PathBuf;

use clap::Args;

use super::config::Model;
use crate::args::{Data, Every, Examples};
use crate::run::config::Optimizer;
use crate::train::line::RunArgs;

#[derive(Debug, Args)]
pub(crate) struct TrainArgs {
    #[command(flatten)]
    pub(crate) every: Every,

    /// Folder with a subfolder of PNG or JPEG files for each class, or with such subfolders in train and test
    #[arg(value_name = "DIR")]
    pub(crate) path: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) data: Data,

    /// Height and width to resize the images of a folder to [default: 64]
    #[arg(long, value_name = "PIXELS", value_parser = side)]
    pub(crate) size: Option<usize>,

    /// Network architecture [default: cnn]
    #[arg(long, value_enum)]
    pub(crate) model: Option<Model>,

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
    const ABOUT: &'static str = "Train an image classifier on a data set or a folder";
    const USAGE: &'static str = "polygrad train fashion-mnist [OPTIONS]
       polygrad train images DIR [OPTIONS]
       polygrad train NAME --data DIR [OPTIONS]
       polygrad train --resume RUN [OPTIONS]";

    fn every(&self) -> &Every {
        &self.every
    }

    fn shards(&self) -> bool {
        self.examples.shard_optimizer
    }
}

/// The side of an image; at most a million pixels in all.
fn side(text: &str) -> Result<usize, String> {
    let side = text.parse().ok().filter(|side| (4..=1024).contains(side));
    side.ok_or_else(|| "give a whole number, 4 to 1024".into())
}
