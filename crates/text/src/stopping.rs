//! Decodes tokens that arrive one by one, up to a stop string.

use polygrad_tensor::{Error, Result};

use crate::Tokenizer;
use crate::decode::DecodeStream;

/// The text of tokens as they arrive, which ends before the first of some stop strings, regardless of how these are
/// split into tokens. A possible beginning of a stop string is held back until it is decided.
///
/// ```
/// use polygrad_text::{TextStream, Tokenizer};
/// # fn main() -> polygrad_tensor::Result<()> {
/// let tokenizer = Tokenizer::characters("end.");
/// let mut text = TextStream::new(&tokenizer, &[], &["nd".to_owned()])?;
/// let ids = tokenizer.encode("en.end", false)?;
/// let pieces = ids.iter().map(|&id| text.push(id)).collect::<polygrad_tensor::Result<Vec<_>>>()?;
/// assert_eq!(pieces, ["e", "", "n.", "e", "", ""]);
/// assert!(text.has_stopped());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct TextStream<'a> {
    /// `None` after a stop string.
    stream: Option<DecodeStream<'a>>,
    stops: Vec<String>,
    held: String,
    tokens: usize,
}

impl<'a> TextStream<'a> {
    /// The text after the tokens of `prompt`, up to the first of the strings in `stops`.
    ///
    /// # Errors
    /// If a stop string is empty.
    pub fn new(tokenizer: &'a Tokenizer, prompt: &[i64], stops: &[String]) -> Result<Self> {
        if stops.iter().any(String::is_empty) {
            return Err(Error::invalid("a stop string without characters").with_op("write"));
        }
        Ok(Self {
            stream: Some(tokenizer.decode_stream_after(prompt)),
            stops: stops.to_vec(),
            held: String::new(),
            tokens: 0,
        })
    }

    /// The text that is certain after this token, often empty; after a stop string it is always empty.
    ///
    /// # Errors
    /// If the token is outside the vocabulary.
    pub fn push(&mut self, token: i64) -> Result<String> {
        let Some(stream) = &mut self.stream else {
            return Ok(String::new());
        };
        self.tokens += 1;
        self.held.push_str(&stream.push(token)?);
        let found = self.stops.iter().filter_map(|stop| self.held.find(stop.as_str()));
        if let Some(end) = found.min() {
            self.held.truncate(end);
            self.stream = None;
            return Ok(std::mem::take(&mut self.held));
        }
        let begins = |&(at, _): &(usize, char)| self.stops.iter().any(|stop| stop.starts_with(&self.held[at..]));
        let end = self
            .held
            .char_indices()
            .find(begins)
            .map_or(self.held.len(), |(at, _)| at);
        let rest = self.held.split_off(end);
        Ok(std::mem::replace(&mut self.held, rest))
    }

    /// Whether a stop string was found.
    pub fn has_stopped(&self) -> bool {
        self.stream.is_none()
    }

    /// The number of tokens so far, including those of a stop string.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// The text held back, at the end of the tokens.
    ///
    /// # Errors
    /// Only those of [`Tokenizer::decode`], which has accepted the tokens before.
    pub fn finish(mut self) -> Result<String> {
        if let Some(stream) = self.stream.take() {
            self.held.push_str(&stream.finish()?);
        }
        Ok(self.held)
    }
}
