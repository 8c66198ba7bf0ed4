//! Converts a model's texts to tokens.

use std::path::Path;

use polygrad_tensor::{Error, ErrorKind, Result};
use serde_json::Value;

use crate::{ChatTemplate, Tokenizer};

/// How a language model's texts become tokens: its tokenizer, its chat template, and the tokens that begin and end a
/// text.
#[derive(Debug)]
pub struct TextFormat {
    /// Converts between texts and tokens.
    pub tokenizer: Tokenizer,
    /// The chat template, if the model is for chats.
    pub template: Option<ChatTemplate>,
    /// The token that begins an empty text, if there is one.
    pub first: Option<i64>,
    /// The tokens that end a text.
    pub ends: Vec<i64>,
}

impl TextFormat {
    /// Reads a folder in the Hub's format: `tokenizer.json`, the template's files ([`ChatTemplate::from_folder`]), and
    /// `eos_token_id` and `bos_token_id` in `generation_config.json`, otherwise in `config.json`.
    ///
    /// # Errors
    /// If a file is missing or damaged.
    pub fn from_folder(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        let (own, config) = (
            read(&folder.join("generation_config.json"))?,
            read(&folder.join("config.json"))?,
        );
        let found = |name: &str| -> Vec<i64> {
            match own.get(name).or_else(|| config.get(name)) {
                Some(Value::Array(ids)) => ids.iter().filter_map(Value::as_i64).collect(),
                Some(id) => id.as_i64().into_iter().collect(),
                None => Vec::new(),
            }
        };
        let ends = found("eos_token_id");
        Ok(Self {
            tokenizer: Tokenizer::from_file(folder.join("tokenizer.json"))?,
            template: ChatTemplate::from_folder(folder)?,
            first: found("bos_token_id").first().or(ends.first()).copied(),
            ends,
        })
    }

    /// The tokens of a text to continue, at least one and at most `most`.
    ///
    /// # Errors
    /// If the text is longer; if it is empty and no token is known to begin a text.
    pub fn prompt(&self, text: &str, most: usize) -> Result<Vec<i64>> {
        self.begun(self.tokenizer.encode_within(text, true, most)?)
    }

    /// The tokens of a chat, up to the beginning of the assistant's next message.
    ///
    /// # Errors
    /// If the model is not for chats; those of its template ([`ChatTemplate::render`]); if the chat is longer.
    pub fn chat(&self, messages: &[Value], most: usize) -> Result<Vec<i64>> {
        let Some(template) = &self.template else {
            return Err(Error::invalid("the model has no template for chats")
                .with_op("chat")
                .with_hint("let it go on with a text, or add chat_template.jinja to its folder"));
        };
        let text = template.render(messages, true)?;
        self.begun(self.tokenizer.encode_within(&text, false, most)?)
    }

    fn begun(&self, ids: Vec<i64>) -> Result<Vec<i64>> {
        match (ids.is_empty(), self.first) {
            (false, _) => Ok(ids),
            (true, Some(first)) => Ok(vec![first]),
            (true, None) => Err(
                Error::invalid("the prompt is empty, and no token is known to begin a text")
                    .with_op("generate")
                    .with_hint("give at least one character"),
            ),
        }
    }
}

/// The file's JSON, or null if there is no such file.
pub(crate) fn read(path: &Path) -> Result<Value> {
    if !path.is_file() {
        return Ok(Value::Null);
    }
    let text = std::fs::read_to_string(path).map_err(|e| Error::io("read", path, e))?;
    serde_json::from_str(&text).map_err(|e| {
        Error::new(ErrorKind::Format, format!("{}: {e}", path.display()))
            .with_hint("get the file again from where the folder came from")
    })
}
