//! Models that write texts, piece by piece, and models that read them.

use polygrad_core::Result;
use serde_json::Value;

/// A model that continues texts, for `/v1/completions` and `/v1/chat/completions`.
pub trait Language: Send + Sync {
    /// The most tokens of a prompt and its continuation.
    fn positions(&self) -> usize;

    /// The tokens of a prompt, at least one and at most as many as there are positions.
    ///
    /// # Errors
    /// A prompt that the model cannot take.
    fn tokens(&self, prompt: &Prompt) -> Result<Vec<i64>>;

    /// Begins writing, without any text at first. A server calls this once for all texts that are written at the same
    /// time.
    ///
    /// # Errors
    /// Errors of the device.
    fn begin(&self) -> Result<Box<dyn Writing + '_>>;
}

/// Texts that are written at the same time, each of which begins and ends on request.
pub trait Writing {
    /// Whether there is memory for one more text whose tokens, including the prompt, will be this many in the end. If
    /// no text is being written, there must be for one of [`Language::positions`].
    fn has_room(&self, tokens: usize) -> bool;

    /// Begins a text of up to `count` tokens, at least one, after a prompt. Returns its unique number.
    ///
    /// # Errors
    /// Options out of range; a prompt that the model cannot take.
    fn join(&mut self, prompt: &[i64], count: usize, style: &Style) -> Result<usize>;

    /// Ends a text now. Does nothing for one that has ended.
    fn leave(&mut self, text: usize);

    /// Continues all texts by up to one token each. Returns the numbers of those that got a token, with the new text. A
    /// text ends with its last piece or an error.
    ///
    /// # Errors
    /// Errors of the device, after which no text can continue.
    fn step(&mut self) -> Result<Vec<(usize, Result<Piece>)>>;
}

/// The addition of a token to a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Empty if the token does not complete any text.
    pub text: String,
    /// How the text ended, if it has.
    pub finish: Option<Finish>,
}

/// A model that computes a vector for each text, for `/v1/embeddings`: its only required input is `text` `[batch]`, and
/// its first output has the vectors, `[batch, width]`.
pub trait Encoder: Send + Sync {
    /// The number of tokens it reads of a text, including special ones.
    ///
    /// # Errors
    /// A text that it cannot take.
    fn count(&self, text: &str) -> Result<usize>;
}

/// The text that a model continues.
#[derive(Clone, Debug, PartialEq)]
pub enum Prompt {
    /// A text.
    Text(String),
    /// Tokens.
    Tokens(Vec<i64>),
    /// The messages of a chat, each an object with `role` and `content`.
    Chat(Vec<Value>),
}

/// How a text is written.
#[derive(Clone, Debug, PartialEq)]
pub struct Style {
    /// Logits are divided by this; 0 always takes the likeliest token.
    pub temperature: f64,
    /// Draws from the likeliest tokens whose probabilities add up to this, above 0 and at most 1.
    pub top_p: f64,
    /// Draws from this many of the likeliest tokens; `None` for all of them.
    pub top_k: Option<usize>,
    /// Draws from tokens whose probability is at least this share of the highest one, from 0 to 1.
    pub min_p: f64,
    /// Above 1, tokens that already occur become less likely.
    pub repetition_penalty: f64,
    /// The seed of the random numbers; `None` for a new one.
    pub seed: Option<u64>,
    /// The text ends before the first occurrence of any of these.
    pub stop: Vec<String>,
}

impl Default for Style {
    /// Draws from the model's probabilities.
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_p: 1.0,
            top_k: None,
            min_p: 0.0,
            repetition_penalty: 1.0,
            seed: None,
            stop: Vec::new(),
        }
    }
}

/// How a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finish {
    /// The number of tokens written.
    pub tokens: usize,
    /// Whether the model or a stop string ended it, rather than the limit of tokens.
    pub is_stop: bool,
}
