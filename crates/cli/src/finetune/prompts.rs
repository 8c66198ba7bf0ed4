//! Examples for a language model: prompts with completions, and chats.

use std::collections::BTreeMap;

use polygrad::backend::HostTensor;
use polygrad::text::{TextFormat, Tokenizer};
use serde::Deserialize;
use serde_json::Value;

use super::jsonl::{json, said};

/// The target of tokens that are not learned.
pub(super) const MASKED: i64 = -100;

/// The fields of a line with a prompt.
#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct Line {
    prompt: String,
    completion: String,
}

/// Tokens, and which of them are learned.
#[derive(Clone)]
pub(super) struct Completion {
    pub(super) tokens: Vec<i64>,
    pub(super) learnt: Vec<bool>,
}

impl Completion {
    /// The number of input tokens.
    pub(super) fn width(&self) -> usize {
        self.tokens.len() - 1
    }

    /// The inputs, and the target of each, padded to a width.
    pub(super) fn rows(&self, width: usize) -> polygrad::Result<(HostTensor, HostTensor)> {
        let (mut seen, mut next) = self.columns();
        seen.resize(width, 0);
        next.resize(width, MASKED);
        Ok((
            HostTensor::new([width].into(), seen)?,
            HostTensor::new([width].into(), next)?,
        ))
    }

    /// The inputs, and the target of each.
    fn columns(&self) -> (Vec<i64>, Vec<i64>) {
        let count = self.width();
        let next = |at: usize| match self.learnt[at + 1] {
            true => self.tokens[at + 1],
            false => MASKED,
        };
        (self.tokens[..count].to_vec(), (0..count).map(next).collect())
    }

    /// Keeps the first `context` tokens. Returns whether any were dropped, and whether anything is left to learn.
    pub(super) fn cut(&mut self, context: usize) -> (bool, bool) {
        let is_cut = self.tokens.len() > context;
        self.tokens.truncate(context);
        self.learnt.truncate(context);
        // The first token follows no other, so that it is never a target.
        (is_cut, self.learnt.iter().skip(1).any(|&is_learnt| is_learnt))
    }
}

/// Examples that share a row, one after the other.
#[derive(Clone, Default)]
pub(super) struct Packed(Vec<Completion>);

impl Packed {
    /// Packs examples into rows of up to `width` tokens: the longest first, each into the row where it leaves the least
    /// room. The result is deterministic.
    pub(super) fn rows_of(examples: Vec<Completion>, width: usize) -> Vec<Self> {
        let mut examples = examples;
        // Stable, so that examples of equal length keep their order.
        examples.sort_by_key(|example| std::cmp::Reverse(example.width()));
        let mut rows: Vec<Self> = Vec::new();
        // The rows by their remaining room.
        let mut by_room: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for example in examples {
            let needed = example.width();
            let room = by_room.range(needed..).next().map(|(&room, _)| room);
            let (room, row) = match room.and_then(|room| Some((room, by_room.get_mut(&room)?.pop()?))) {
                Some(found) => found,
                None => {
                    rows.push(Self::default());
                    (width.max(needed), rows.len() - 1)
                }
            };
            if by_room.get(&room).is_some_and(Vec::is_empty) {
                by_room.remove(&room);
            }
            rows[row].0.push(example);
            by_room.entry(room - needed).or_default().push(row);
        }
        rows
    }

    pub(super) fn width(&self) -> usize {
        self.0.iter().map(Completion::width).sum()
    }

    pub(super) fn largest(&self) -> Option<i64> {
        self.0.iter().flat_map(|example| &example.tokens).max().copied()
    }

    /// The inputs with the position at which each token's example begins, `[2, width]`, and the target of each token,
    /// padded to a width.
    pub(super) fn rows(&self, width: usize) -> polygrad::Result<(HostTensor, HostTensor)> {
        let (mut seen, mut starts, mut next) = (Vec::new(), Vec::new(), Vec::new());
        for example in &self.0 {
            let (own, follows) = example.columns();
            starts.resize(seen.len() + own.len(), seen.len() as i64);
            seen.extend(own);
            next.extend(follows);
        }
        starts.resize(width, seen.len() as i64);
        seen.resize(width, 0);
        next.resize(width, MASKED);
        Ok((
            HostTensor::new([2, width].into(), [seen, starts].concat())?,
            HostTensor::new([width].into(), next)?,
        ))
    }
}

/// The example of a line, and whether it is a chat.
///
/// # Errors
/// A description of the line's fault.
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
            "it is a chat, and the model has no template of chats: a folder has it as chat_template.jinja".to_owned(),
        );
    };
    let (text, spans) = template.render_spans(messages).map_err(said)?;
    let (tokens, learnt) = format.tokenizer.encode_spans(&text, &spans).map_err(said)?;
    match learnt.iter().skip(1).any(|&is_learnt| is_learnt) {
        true => Ok(Completion { tokens, learnt }),
        false => Err("the assistant says nothing, so that there is nothing to learn".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Completion, Packed};

    fn example(first: i64, width: usize) -> Completion {
        let tokens: Vec<i64> = (first..=first + width as i64).collect();
        let learnt = (0..tokens.len()).map(|at| at >= 2).collect();
        Completion { tokens, learnt }
    }

    #[test]
    fn examples_share_rows() {
        let widths = [3, 7, 2, 5, 5, 1, 10, 4];
        let examples: Vec<Completion> = (0..).zip(widths).map(|(i, width)| example(100 * i, width)).collect();
        let rows = Packed::rows_of(examples.clone(), 10);
        let found: Vec<Vec<usize>> = rows
            .iter()
            .map(|row| row.0.iter().map(Completion::width).collect())
            .collect();
        assert_eq!(found, [vec![10], vec![7, 3], vec![5, 5], vec![4, 2, 1]]);
        let (x, y) = rows[3].rows(9).unwrap();
        assert_eq!(x.shape().dims(), [2, 9]);
        let x = x.to_vec::<i64>().unwrap();
        assert_eq!(x[..9], [700, 701, 702, 703, 200, 201, 500, 0, 0]);
        assert_eq!(x[9..], [0, 0, 0, 0, 4, 4, 6, 7, 7]);
        assert_eq!(
            y.to_vec::<i64>().unwrap(),
            [-100, 702, 703, 704, -100, 202, -100, -100, -100]
        );
        // An example longer than a row gets its own row.
        assert_eq!(Packed::rows_of(examples, 1).len(), 8);
        assert!(Packed::rows_of(Vec::new(), 10).is_empty());
    }
}
