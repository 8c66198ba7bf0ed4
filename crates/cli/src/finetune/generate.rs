//! `polygrad generate` with a language model that was trained further.

use std::io::Write;

use polygrad::manual_seed;
use polygrad::nn::models::GenerateConfig;
use polygrad::text::Writer;

use super::{Lm, Settings};
use crate::chargpt::generate::Generate;
use crate::failure::Result;
use crate::outcome::Outcome;
use crate::progress::{self, say};
use crate::trained::{self, Trained};

/// Writes a text that begins with the prompt, token by token, up to the one that ends it.
///
/// # Errors
/// A run that is missing or damaged; a base that has gone; those of the device.
pub(crate) fn command(args: &Generate) -> Result<Outcome> {
    let Trained { config, model, .. } = trained::load::<Settings>(&args.run, args.backend.as_deref(), args.threads)?;
    let tokenizer = config.tokenizer()?;
    manual_seed(args.seed);
    let mut options = GenerateConfig::sample().temperature(args.temperature);
    if let Some(k) = args.top_k {
        options = options.top_k(k);
    }
    if let Some(end) = Settings::base(&config)?.end {
        options = options.eos_token_id(end);
    }
    let mut out = std::io::stdout();
    let mut write = |text: &str| progress::keep(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
    write(&args.prompt);
    let model: &Lm = &model;
    Writer::new(model, &tokenizer).stream(&[&args.prompt], args.tokens, &options, |_, piece| {
        write(piece);
        Ok(())
    })?;
    say("");
    Ok(Outcome::Done)
}
