//! In place of language models of others, in a build without the feature `text`.

use crate::chargpt::generate::Generate;
use crate::failure::{Failure, Result};
use crate::outcome::Outcome;

/// That such runs are not in this build.
pub(crate) fn absent() -> Failure {
    Failure::new("language models of others are not in this build")
        .fix("switch the feature `text` on: cargo run --release --features text -- …")
}

pub(crate) mod generate {
    use super::{Generate, Outcome, Result, absent};

    /// # Errors
    /// Always.
    pub(crate) fn command(_: &Generate) -> Result<Outcome> {
        Err(absent())
    }
}

pub(crate) mod merge {
    use super::{Outcome, Result};
    pub(crate) use crate::absent::Words as Merge;

    /// # Errors
    /// Always.
    pub(crate) fn command(args: &Merge) -> Result<Outcome> {
        Err(args.refused("merge", "text"))
    }
}
