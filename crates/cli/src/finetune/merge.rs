//! `polygrad merge`: a model with its adapter in its weights.

use std::path::PathBuf;

use clap::Args;
use polygrad::nn::{Module, lora};

use super::Settings;
use super::base::is_in;
use crate::failure::{Failure, Result, Shown};
use crate::outcome::Outcome;
use crate::progress::say;
use crate::trained::{self, Trained};

#[derive(Debug, Args)]
pub(crate) struct Merge {
    /// The folder that `finetune` left
    run: PathBuf,

    /// The file to write: the weights of the base with what was learnt, under the base's names
    #[arg(long, value_name = "FILE.safetensors")]
    out: PathBuf,
}

/// Writes the whole model of a run, as others load it.
///
/// # Errors
/// A run that is missing, damaged or of something else; a base that has gone or has changed; a place among the files of
/// the base; weights that cannot be merged; those of the device and the disk.
pub(crate) fn command(args: &Merge) -> Result<Outcome> {
    if is_in(&args.out, &args.run) {
        return Err(
            Failure::new(format!("{} would lie among the files of the run", args.out.shown()))
                .fix("choose another folder"),
        );
    }
    let Trained { config, model, .. } = trained::load::<Settings>(&args.run, None, None)?;
    if Settings::base(&config)?.holds(&args.out) {
        return Err(
            Failure::new(format!("{} would lie among the files of the base", args.out.shown()))
                .fix("choose another folder: a base is never written"),
        );
    }
    let model = model.into_inner();
    lora::merge_and_unload(&model)?;
    model.save(&args.out)?;
    say(&format!(
        "{} holds the whole model; its config.json and tokenizer.json are those of the base",
        args.out.shown()
    ));
    Ok(Outcome::Done)
}
