//! Text generation with a model.

use std::fmt;
use std::marker::PhantomData;

use polygrad_nn::models::{CausalLm, GenerateConfig};
use polygrad_tensor::{Backend, Result};

use crate::{TextStream, Tokenizer};

/// A model and its tokenizer, which continue texts.
pub struct Writer<'a, B: Backend, M: ?Sized> {
    model: &'a M,
    tokenizer: &'a Tokenizer,
    stops: Vec<String>,
    /// Tokens of the model that the tokenizer has not.
    lacking: Vec<i64>,
    backend: PhantomData<B>,
}

impl<'a, B: Backend, M: CausalLm<B> + ?Sized> Writer<'a, B, M> {
    /// Without stop strings. Tokens of the model that the tokenizer has not are never written.
    pub fn new(model: &'a M, tokenizer: &'a Tokenizer) -> Self {
        Self {
            model,
            tokenizer,
            stops: Vec::new(),
            lacking: tokenizer.lacking(model.vocab_size()),
            backend: PhantomData,
        }
    }

    /// Ends texts before this string, regardless of how it is split into tokens. May be called several times.
    #[must_use]
    pub fn stop(mut self, string: impl Into<String>) -> Self {
        self.stops.push(string.into());
        self
    }

    /// Each prompt with the text that the model adds, up to `count` tokens.
    ///
    /// # Errors
    /// Those of [`CausalLm::stream`] and [`Tokenizer::encode`]; if a prompt has more tokens than the model has
    /// positions, or a stop string is empty.
    pub fn write(&self, prompts: &[&str], count: usize, config: &GenerateConfig) -> Result<Vec<String>> {
        let mut texts: Vec<String> = prompts.iter().map(|&prompt| prompt.to_owned()).collect();
        self.stream(prompts, count, config, |text, piece| {
            texts[text].push_str(piece);
            Ok(())
        })?;
        Ok(texts)
    }

    /// Passes each piece of text to `piece` as it arrives, with the index of its prompt. A possible beginning of a stop
    /// string is held back until it is decided.
    ///
    /// # Errors
    /// Those of [`Writer::write`], and those of `piece`, which end the generation.
    pub fn stream(
        &self,
        prompts: &[&str],
        count: usize,
        config: &GenerateConfig,
        mut piece: impl FnMut(usize, &str) -> Result<()>,
    ) -> Result<()> {
        let most = self.model.num_positions();
        let prompts = prompts
            .iter()
            .map(|prompt| self.tokenizer.encode_within(prompt, true, most));
        let prompts = prompts.collect::<Result<Vec<_>>>()?;
        let filled = |text: usize, part: &str| if part.is_empty() { Ok(()) } else { piece(text, part) };
        self.stream_tokens(&prompts, count, config, filled).map(drop)
    }

    /// Like [`Writer::stream`], for prompts that are tokens already; returns the length of each text and the reason of
    /// its end. Each token has a piece, which is empty if no text is ready.
    ///
    /// # Errors
    /// Those of [`Writer::stream`].
    pub fn stream_tokens(
        &self,
        prompts: &[Vec<i64>],
        count: usize,
        config: &GenerateConfig,
        mut piece: impl FnMut(usize, &str) -> Result<()>,
    ) -> Result<Vec<Written>> {
        let texts = prompts
            .iter()
            .map(|prompt| TextStream::new(self.tokenizer, prompt, &self.stops));
        let mut texts = texts.collect::<Result<Vec<_>>>()?;
        let config = config.clone().suppress_tokens(&self.lacking);
        let mut generation = self.model.stream(prompts, count, &config)?;
        while let Some(step) = generation.next() {
            for (number, (token, text)) in step?.into_iter().zip(&mut texts).enumerate() {
                let Some(token) = token.filter(|_| !text.has_stopped()) else {
                    continue;
                };
                let ready = text.push(token)?;
                if text.has_stopped() {
                    generation.end(number)?;
                }
                piece(number, &ready)?;
            }
        }
        let mut written = Vec::with_capacity(texts.len());
        for ((number, text), has_ended) in texts.into_iter().enumerate().zip(generation.ended()) {
            let end = match (text.has_stopped(), has_ended) {
                (true, _) => End::Stop,
                (false, true) => End::Token,
                (false, false) => End::Length,
            };
            let tokens = text.tokens();
            let rest = text.finish()?;
            if !rest.is_empty() {
                piece(number, &rest)?;
            }
            written.push(Written { tokens, end });
        }
        Ok(written)
    }
}

/// The length of a text and the reason of its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The number of tokens that the model added, including those of a stop string and the token that ended it.
    pub tokens: usize,
    /// The reason of its end.
    pub end: End,
}

/// Reasons for the end of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It has the requested number of tokens.
    Length,
    /// A token or a sequence of tokens in the options.
    Token,
    /// A stop string.
    Stop,
}

impl<B: Backend, M: ?Sized> fmt::Debug for Writer<'_, B, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Writer({:?}, stops at {:?})", self.tokenizer, self.stops)
    }
}
