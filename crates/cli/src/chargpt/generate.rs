//! `polygrad generate`: text that a trained model writes.

use std::io::Write;

use clap::Args;
use polygrad::nn::models::{CausalLm, GenerateConfig};
use polygrad::{Error, manual_seed};
use std::path::PathBuf;

use super::Settings;
use crate::args::{number, positive, seed};
use crate::failure::{Failure, Result};
use crate::outcome::Outcome;
use crate::progress::{self, say};
use crate::trained::{self, Trained};

#[derive(Debug, Args)]
pub(crate) struct Generate {
    /// The folder that `train chargpt` or `finetune` left
    pub(crate) run: PathBuf,

    /// How the text begins
    #[arg(long, value_name = "TEXT", default_value = "\n")]
    pub(crate) prompt: String,

    /// How many characters to write, or tokens
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = positive)]
    pub(crate) tokens: usize,

    /// Below 1 what is likely becomes likelier; 0 writes the likeliest character each time
    #[arg(long, value_name = "T", default_value_t = 0.8, value_parser = number)]
    pub(crate) temperature: f64,

    /// Only of the N likeliest characters
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) top_k: Option<usize>,

    /// Where the random numbers start
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = seed)]
    pub(crate) seed: u64,

    /// What to compute with [default: what the run was trained on]
    #[arg(long)]
    pub(crate) backend: Option<String>,

    /// Threads of the CPU backend [default: one per core]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) threads: Option<usize>,
}

/// Writes a text that begins with the prompt, character by character.
///
/// # Errors
/// A run that is missing, damaged or of something else; a prompt with a character that the model does not know; those
/// of the device.
pub(crate) fn command(args: &Generate) -> Result<Outcome> {
    let trained = trained::load::<Settings>(&args.run, args.backend.as_deref(), args.threads)?;
    let Trained {
        config: settings,
        model,
        ..
    } = trained;
    let characters: Vec<char> = settings.characters.chars().collect();
    let token = |c: char| {
        characters
            .iter()
            .position(|&own| own == c)
            .map(|at| at as i64)
            .ok_or_else(|| {
                Failure::new(format!("the model has never seen the character {c:?}")).fix("leave it out of the prompt")
            })
    };
    let mut written: Vec<i64> = args.prompt.chars().map(token).collect::<Result<_>>()?;
    if written.is_empty() {
        return Err(Failure::new("the prompt is empty").fix("give at least one character"));
    }
    manual_seed(args.seed);
    let mut config = GenerateConfig::sample().temperature(args.temperature);
    if let Some(k) = args.top_k {
        config = config.top_k(k);
    }
    let mut out = std::io::stdout();
    let mut write = |text: &str| progress::keep(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
    write(&args.prompt);
    let mut left = args.tokens;
    while left > 0 {
        // The model sees so many characters at most: once there are more, it goes on from the last half of them.
        let seen = match written.len() < settings.context {
            true => written.len(),
            false => (settings.context / 2).max(1),
        };
        let count = left.min(settings.context - seen);
        if count == 0 {
            return Err(Error::out_of_range("a model with a context of one character writes nothing").into());
        }
        let prompt = written[written.len() - seen..].to_vec();
        for tokens in model.stream(&[prompt], count, &config)? {
            for id in tokens?.into_iter().flatten() {
                written.push(id);
                let c = usize::try_from(id).ok().and_then(|id| characters.get(id));
                write(&c.map_or_else(String::new, char::to_string));
            }
        }
        left -= count;
    }
    say("");
    Ok(Outcome::Done)
}
