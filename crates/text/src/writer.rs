//! Text that a model writes.

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
    backend: PhantomData<B>,
}

impl<'a, B: Backend, M: CausalLm<B> + ?Sized> Writer<'a, B, M> {
    /// Without stop strings.
    pub fn new(model: &'a M, tokenizer: &'a Tokenizer) -> Self {
        Self {
            model,
            tokenizer,
            stops: Vec::new(),
            backend: PhantomData,
        }
    }

    /// A text ends before this string, however it is cut into tokens. May be called several times.
    #[must_use]
    pub fn stop(mut self, string: impl Into<String>) -> Self {
        self.stops.push(string.into());
        self
    }

    /// Each prompt with what the model adds to it, up to `count` tokens.
    ///
    /// # Errors
    /// Those of [`CausalLm::stream`] and [`Tokenizer::encode`]; a prompt of more tokens than the model has positions;
    /// an empty stop string.
    pub fn write(&self, prompts: &[&str], count: usize, config: &GenerateConfig) -> Result<Vec<String>> {
        let mut texts: Vec<String> = prompts.iter().map(|&prompt| prompt.to_owned()).collect();
        self.stream(prompts, count, config, |text, piece| {
            texts[text].push_str(piece);
            Ok(())
        })?;
        Ok(texts)
    }

    /// Hands each piece of text over as it comes, with the number of its prompt. What may be the beginning of a stop
    /// string is held back until it is known.
    ///
    /// # Errors
    /// As [`Writer::write`], and those of `piece`, which end it.
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

    /// [`Writer::stream`] of prompts that are tokens already; says of each text how long it became and what ended it.
    /// Each token has a piece, which is empty where no text is ready.
    ///
    /// # Errors
    /// As [`Writer::stream`].
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
        let mut generation = self.model.stream(prompts, count, config)?;
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

/// How a text came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// How many tokens the model added, with those of a stop string and the one that ended it.
    pub tokens: usize,
    /// What ended it.
    pub end: End,
}

/// What ends a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It has as many tokens as were asked for.
    Length,
    /// A token or a sequence of them, by the options.
    Token,
    /// A stop string.
    Stop,
}

impl<B: Backend, M: ?Sized> fmt::Debug for Writer<'_, B, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Writer({:?}, stops at {:?})", self.tokenizer, self.stops)
    }
}
