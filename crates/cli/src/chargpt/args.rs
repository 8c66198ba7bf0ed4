//! The arguments of `polygrad train chargpt`.

use std::path::PathBuf;

use clap::Args;

use crate::args::{Every, Examples};
use crate::train::line::RunArgs;

#[derive(Debug, Args)]
pub(crate) struct TrainArgs {
    #[command(flatten)]
    pub(crate) every: Every,

    /// Text to learn from, plain or gzip-compressed [default: a million characters of Shakespeare]
    #[arg(long, value_name = "FILE")]
    pub(crate) text: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) examples: Examples,
}

impl RunArgs for TrainArgs {
    const ABOUT: &'static str = "Train a character-level language model on a text";
    const USAGE: &'static str = "polygrad train chargpt [OPTIONS]
       polygrad train --resume RUN [OPTIONS]";

    fn every(&self) -> &Every {
        &self.every
    }

    fn shards(&self) -> bool {
        self.examples.shard_optimizer
    }
}
