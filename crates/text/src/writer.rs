//! Text that a model writes.

use std::fmt;
use std::marker::PhantomData;

use polygrad_nn::models::{CausalLm, GenerateConfig};
use polygrad_tensor::{Backend, Error, Result};

use crate::Tokenizer;
use crate::decode::DecodeStream;

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
        if self.stops.iter().any(String::is_empty) {
            return Err(Error::invalid("a stop string without characters").with_op("write"));
        }
        let mut texts: Vec<Text<'_>> = prompts.iter().map(|prompt| Text::new(self.tokenizer, prompt)).collect();
        let mut generation = self.model.stream(prompts, count, config)?;
        while let Some(step) = generation.next() {
            for (number, (token, text)) in step?.into_iter().zip(&mut texts).enumerate() {
                let Some(token) = token else { continue };
                let Some(stream) = &mut text.stream else { continue };
                text.tokens += 1;
                text.held.push_str(&stream.push(token)?);
                if text.cut(&self.stops) {
                    generation.end(number)?;
                }
                piece(number, &text.ready(&self.stops))?;
            }
        }
        let mut written = Vec::with_capacity(texts.len());
        for ((number, mut text), has_ended) in texts.into_iter().enumerate().zip(generation.ended()) {
            let end = match (&text.stream, has_ended) {
                (None, _) => End::Stop,
                (_, true) => End::Token,
                (_, false) => End::Length,
            };
            if let Some(stream) = text.stream.take() {
                text.held.push_str(&stream.finish()?);
            }
            if !text.held.is_empty() {
                piece(number, &text.held)?;
            }
            let tokens = text.tokens;
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

/// A text in the making.
struct Text<'a> {
    /// `None` once a stop string has come.
    stream: Option<DecodeStream<'a>>,
    held: String,
    tokens: usize,
}

impl<'a> Text<'a> {
    fn new(tokenizer: &'a Tokenizer, prompt: &[i64]) -> Self {
        Self {
            stream: Some(tokenizer.decode_stream_after(prompt)),
            held: String::new(),
            tokens: 0,
        }
    }

    /// Ends the text before the first stop string; says whether there is one.
    fn cut(&mut self, stops: &[String]) -> bool {
        let first = stops.iter().filter_map(|stop| self.held.find(stop.as_str())).min();
        if let Some(end) = first {
            self.held.truncate(end);
            self.stream = None;
        }
        first.is_some()
    }

    /// What cannot become part of a stop string any more, taken out.
    fn ready(&mut self, stops: &[String]) -> String {
        let mut end = self.held.len();
        if self.stream.is_some() {
            let begins = |&(at, _): &(usize, char)| stops.iter().any(|stop| stop.starts_with(&self.held[at..]));
            end = self.held.char_indices().find(begins).map_or(end, |(at, _)| at);
        }
        let rest = self.held.split_off(end);
        std::mem::replace(&mut self.held, rest)
    }
}

impl<B: Backend, M: ?Sized> fmt::Debug for Writer<'_, B, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Writer({:?}, stops at {:?})", self.tokenizer, self.stops)
    }
}
