//! `polygrad generate`: text that a trained model writes.

use std::io::{Stdout, Write};

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
    /// The folder that `train chargpt` or `finetune` left, one of a Llama, Mistral, Qwen2 or GPT-2 as the Hub has it,
    /// or a GGUF file
    #[arg(value_name = "MODEL")]
    pub(crate) run: PathBuf,

    /// How the text begins
    #[arg(long, value_name = "TEXT", default_value = "\n")]
    pub(crate) prompt: String,

    /// The prompt is what somebody says to the model, which answers: by the template of chats that comes with it
    #[arg(long)]
    pub(crate) chat: bool,

    /// How many characters to write, or tokens [default: 500, or as many as the model has room for]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) tokens: Option<usize>,

    /// Below 1 what is likely becomes likelier; 0 writes the likeliest character each time
    #[arg(long, value_name = "T", default_value_t = 0.8, value_parser = number)]
    pub(crate) temperature: f64,

    /// Only of the N likeliest characters
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) top_k: Option<usize>,

    /// Only of the likeliest that together have this probability
    #[arg(long, value_name = "P", default_value_t = 1.0, value_parser = share)]
    pub(crate) top_p: f64,

    /// Only of those that are at least P times as likely as the likeliest
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = fraction)]
    pub(crate) min_p: f64,

    /// Above 1, what is there already becomes rarer
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = factor)]
    pub(crate) repetition_penalty: f64,

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

fn within(text: &str, fits: fn(f64) -> bool, what: &str) -> std::result::Result<f64, String> {
    let number = text
        .parse()
        .ok()
        .filter(|&number: &f64| number.is_finite() && fits(number));
    number.ok_or_else(|| format!("give a number {what}"))
}

fn share(text: &str) -> std::result::Result<f64, String> {
    within(text, |p| p > 0.0 && p <= 1.0, "above 0, at most 1")
}

fn fraction(text: &str) -> std::result::Result<f64, String> {
    within(text, |p| (0.0..=1.0).contains(&p), "from 0 to 1")
}

fn factor(text: &str) -> std::result::Result<f64, String> {
    within(text, |x| x > 0.0, "above 0")
}

impl Generate {
    /// The default of `--tokens`, where the model has room for that many.
    pub(crate) const TOKENS: usize = 500;

    /// How what comes next is chosen.
    pub(crate) fn options(&self) -> GenerateConfig {
        let options = GenerateConfig::sample()
            .temperature(self.temperature)
            .top_p(self.top_p)
            .min_p(self.min_p)
            .repetition_penalty(self.repetition_penalty);
        self.top_k.into_iter().fold(options, GenerateConfig::top_k)
    }
}

/// Standard output, where pieces of a text are seen as they come.
#[derive(Debug)]
pub(crate) struct Out(Stdout);

impl Default for Out {
    fn default() -> Self {
        Self(std::io::stdout())
    }
}

impl Out {
    pub(crate) fn write(&mut self, text: &str) {
        progress::keep(self.0.write_all(text.as_bytes()).and_then(|()| self.0.flush()));
    }

    /// Ends the last line.
    pub(crate) fn end(self) {
        say("");
    }
}

/// Writes a text that begins with the prompt, character by character.
///
/// # Errors
/// A run that is missing, damaged or of something else; a prompt with a character that the model does not know; those
/// of the device.
pub(crate) fn command(args: &Generate) -> Result<Outcome> {
    if args.chat {
        return Err(Failure::new("--chat is for models that come with a template of chats").fix("leave it out"));
    }
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
    let config = args.options();
    let mut out = Out::default();
    out.write(&args.prompt);
    let mut left = args.tokens.unwrap_or(Generate::TOKENS);
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
                out.write(&c.map_or_else(String::new, char::to_string));
            }
        }
        left -= count;
    }
    out.end();
    Ok(Outcome::Done)
}
