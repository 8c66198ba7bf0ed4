//! Examples for a model that writes: prompts with completions, and chats.

use polygrad::backend::HostTensor;
use polygrad::text::{TextFormat, Tokenizer};
use serde::Deserialize;
use serde_json::Value;

use super::jsonl::{json, said};

/// What targets are that nothing is learnt from.
pub(super) const MASKED: i64 = -100;

/// What a line with a prompt has.
#[derive(Deserialize)]
struct Line {
    prompt: String,
    completion: String,
}

/// Tokens, and which of them are learnt.
#[derive(Clone)]
pub(super) struct Completion {
    pub(super) tokens: Vec<i64>,
    pub(super) learnt: Vec<bool>,
}

impl Completion {
    /// What is seen, and what is to follow each token, filled up to a width.
    pub(super) fn rows(&self, width: usize) -> polygrad::Result<(HostTensor, HostTensor)> {
        let count = self.tokens.len() - 1;
        let mut seen = self.tokens[..count].to_vec();
        let next = |at: usize| {
            if self.learnt[at + 1] {
                self.tokens[at + 1]
            } else {
                MASKED
            }
        };
        let mut next: Vec<i64> = (0..count).map(next).collect();
        seen.resize(width, 0);
        next.resize(width, MASKED);
        Ok((
            HostTensor::new([width].into(), seen)?,
            HostTensor::new([width].into(), next)?,
        ))
    }

    /// Keeps the first `context` tokens; says whether some were behind them, and whether anything is left to learn.
    pub(super) fn cut(&mut self, context: usize) -> (bool, bool) {
        let is_cut = self.tokens.len() > context;
        self.tokens.truncate(context);
        self.learnt.truncate(context);
        // The first token follows none.
        (is_cut, self.learnt.iter().skip(1).any(|&is_learnt| is_learnt))
    }
}

/// What a line says, and whether it is a chat.
///
/// # Errors
/// What is wrong with it.
pub(super) fn example(text: &str, format: &TextFormat, end: Option<i64>) -> Result<(Completion, bool), String> {
    let fields: Value = serde_json::from_str(text).map_err(json)?;
    match fields.get("messages") {
        None => {
            let line: Line = serde_json::from_str(text).map_err(json)?;
            let example = completion(&line, &format.tokenizer, end)?;
            Ok((example, false))
        }
        Some(_) if fields.get("prompt").is_some() || fields.get("completion").is_some() => {
            Err("it has messages and a prompt or completion".to_owned())
        }
        Some(messages) => {
            let messages = messages.as_array().ok_or("its messages are no list")?;
            let example = chat(messages, format)?;
            Ok((example, true))
        }
    }
}

fn completion(line: &Line, tokenizer: &Tokenizer, end: Option<i64>) -> Result<Completion, String> {
    if line.completion.is_empty() {
        return Err("the completion is empty, so that there is nothing to learn".to_owned());
    }
    let encoded = |text: &str, special: bool| tokenizer.encode(text, special).map_err(said);
    let mut tokens = encoded(&line.prompt, true)?;
    let from = tokens.len();
    tokens.extend(encoded(&line.completion, false)?);
    tokens.extend(end);
    let learnt = (0..tokens.len()).map(|at| at >= from).collect();
    Ok(Completion { tokens, learnt })
}

fn chat(messages: &[Value], format: &TextFormat) -> Result<Completion, String> {
    let Some(template) = &format.template else {
        return Err(
            "it is a chat, and the model's folder has no template of chats, such as chat_template.jinja".to_owned(),
        );
    };
    let (text, spans) = template.render_spans(messages).map_err(said)?;
    let (tokens, learnt) = format.tokenizer.encode_spans(&text, &spans).map_err(said)?;
    match learnt.iter().skip(1).any(|&is_learnt| is_learnt) {
        true => Ok(Completion { tokens, learnt }),
        false => Err("the assistant says nothing, so that there is nothing to learn".to_owned()),
    }
}
