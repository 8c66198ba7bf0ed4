//! `polygrad generate` with a pretrained language model, finetuned or not.

use polygrad::manual_seed;
use polygrad::nn::models::CausalLm;
use polygrad::text::Writer;
use serde_json::json;

use super::language::Language;
use crate::chargpt::generate::{Generate, Out};
use crate::failure::{Failure, Result};
use crate::outcome::Outcome;

/// Writes a text that begins with the prompt, or the answer to it, token by token, up to the end token.
///
/// # Errors
/// If a model is missing or damaged, or is not for chats; if a base is gone; those of the device.
pub(crate) fn command(args: &Generate) -> Result<Outcome> {
    let Language { model, format } = Language::open(&args.run, args.backend.as_deref(), args.threads)?;
    manual_seed(args.seed);
    let ends = format.ends.iter();
    let options = ends.fold(args.options(), |options, &id| options.stop_sequence([id]));
    let most = model.num_positions();
    let mut out = Out::default();
    let prompt = if args.chat {
        format.chat(&[json!({"role": "user", "content": args.prompt})], most)?
    } else {
        format.prompt(&args.prompt, most)?
    };
    let count = match args.tokens {
        Some(count) => count,
        None => most.saturating_sub(prompt.len()).min(Generate::TOKENS),
    };
    if count == 0 {
        return Err(Failure::new(format!("the prompt has all {most} tokens of the model")).fix("give a shorter one"));
    }
    // Shown with the first piece, since the model may refuse the number of tokens.
    let mut shown = if args.chat { "" } else { &*args.prompt };
    Writer::new(&model, &format.tokenizer).stream_tokens(&[prompt], count, &options, |_, piece| {
        out.write(std::mem::take(&mut shown));
        out.write(piece);
        Ok(())
    })?;
    Ok(Outcome::Done)
}
