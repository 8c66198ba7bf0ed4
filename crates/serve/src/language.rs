//! Models that write texts, piece by piece, and models that read them.

use polygrad_core::Result;
use serde_json::Value;

/// A model that goes on writing texts, for `/v1/completions` and `/v1/chat/completions`.
pub trait Language: Send + Sync {
    /// The most tokens of a prompt and what is written behind it.
    fn positions(&self) -> usize;

    /// The tokens of a prompt, at least one and at most as many as there are positions.
    ///
    /// # Errors
    /// A prompt that the model cannot take.
    fn tokens(&self, prompt: &Prompt) -> Result<Vec<i64>>;

    /// Begins to write texts, of which there is none at first. A server does so once for all that are written at a
    /// time.
    ///
    /// # Errors
    /// Those of the device.
    fn begin(&self) -> Result<Box<dyn Writing + '_>>;
}

/// Texts that are written at the same time, of which each begins and ends when it is asked to.
pub trait Writing {
    /// Whether there is memory for one more text that has, with its prompt, so many tokens in the end. There is for one
    /// of [`Language::positions`] if none is being written.
    fn has_room(&self, tokens: usize) -> bool;

    /// Begins a text of up to `count` tokens, at least one, behind a prompt; gives its number, which no other has.
    ///
    /// # Errors
    /// Options out of range; a prompt that the model cannot take.
    fn join(&mut self, prompt: &[i64], count: usize, style: &Style) -> Result<usize>;

    /// Ends a text here; does nothing for one that has ended.
    fn leave(&mut self, text: usize);

    /// Goes on with all texts by up to a token each; gives the numbers of those that have got one, and what is new. A
    /// text has ended with its last piece or an error.
    ///
    /// # Errors
    /// Those of the device, after which no text goes on.
    fn step(&mut self) -> Result<Vec<(usize, Result<Piece>)>>;
}

/// What a token adds to a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Empty where the token completes no text.
    pub text: String,
    /// How the text has ended, if it has.
    pub finish: Option<Finish>,
}

/// A model that gives a vector for each text, for `/v1/embeddings`: its one input that cannot be left out is `text`
/// `[batch]`, and its first output has the vectors, `[batch, width]`.
pub trait Encoder: Send + Sync {
    /// How many tokens of a text it reads, special ones included.
    ///
    /// # Errors
    /// A text that it cannot take.
    fn count(&self, text: &str) -> Result<usize>;
}

/// What a model is to go on with.
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
    /// What logits are divided by; 0 takes the likeliest token each time.
    pub temperature: f64,
    /// Draws from the likeliest tokens whose probabilities add up to this, above 0 and at most 1.
    pub top_p: f64,
    /// Draws from this many of the likeliest tokens; none for all of them.
    pub top_k: Option<usize>,
    /// Draws from tokens whose probability is at least this share of the highest one, from 0 to 1.
    pub min_p: f64,
    /// Above 1, tokens that are there already become rarer.
    pub repetition_penalty: f64,
    /// Where the random numbers start; none for a start of their own.
    pub seed: Option<u64>,
    /// The text ends before any of these.
    pub stop: Vec<String>,
}

impl Default for Style {
    /// By the model's probabilities.
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
    /// How many tokens were written.
    pub tokens: usize,
    /// Whether the model or a stop string ended it, rather than the number of tokens.
    pub is_stop: bool,
}
