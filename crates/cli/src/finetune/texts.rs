//! Examples for a BERT: texts with labels, and texts that belong together.

use polygrad::backend::HostTensor;
use polygrad::text::{BatchConfig, TextInput, Tokenizer};
use serde::Deserialize;

use super::jsonl::{json, said};

/// The fields of a line with a label.
#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct Labelled {
    text: String,
    text_pair: Option<String>,
    label: String,
}

/// The fields of a line of texts that belong together.
#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct Group {
    anchor: String,
    positive: String,
    negative: Option<String>,
}

/// The texts of a line: one with its label, or a group of an anchor, its text, and perhaps a negative text.
#[derive(Clone)]
pub(super) struct Texts {
    texts: Vec<Encoded>,
    /// The name of its class; empty for texts without a class.
    pub(super) label: String,
    /// The index of the class.
    pub(super) class: usize,
    pub(super) line: usize,
}

/// A text, or a pair of them.
#[derive(Clone)]
struct Encoded {
    ids: Vec<i64>,
    /// The text of the pair that each token belongs to.
    types: Vec<i64>,
}

impl Texts {
    /// A text with the name of its class.
    ///
    /// # Errors
    /// A description of the line's fault.
    pub(super) fn labelled(line: (usize, &str), encode: &Encode<'_>) -> Result<(Self, bool), String> {
        let Labelled { text, text_pair, label } = serde_json::from_str(line.1).map_err(json)?;
        if label.is_empty() {
            return Err("the label is empty".to_owned());
        }
        let input = match &text_pair {
            Some(second) => TextInput::Pair(&text, second),
            None => TextInput::Single(&text),
        };
        Self::of(line.0, label, &[("text", input)], encode)
    }

    /// Texts that belong together, and perhaps a negative text.
    ///
    /// # Errors
    /// A description of the line's fault.
    pub(super) fn group(line: (usize, &str), encode: &Encode<'_>) -> Result<(Self, bool), String> {
        let group: Group = serde_json::from_str(line.1).map_err(json)?;
        let texts = [
            ("anchor", Some(&group.anchor)),
            ("positive", Some(&group.positive)),
            ("negative", group.negative.as_ref()),
        ];
        let inputs = texts
            .iter()
            .filter_map(|(name, text)| Some((*name, TextInput::from((*text)?))));
        Self::of(line.0, String::new(), &inputs.collect::<Vec<_>>(), encode)
    }

    /// The texts as tokens, and whether any of them was truncated.
    fn of(
        line: usize,
        label: String,
        inputs: &[(&str, TextInput<'_>)],
        encode: &Encode<'_>,
    ) -> Result<(Self, bool), String> {
        let (mut texts, mut is_cut) = (Vec::with_capacity(inputs.len()), false);
        for (name, input) in inputs {
            if let TextInput::Single(text) | TextInput::Pair(text, _) = input
                && text.trim().is_empty()
            {
                return Err(format!("the {name} is empty"));
            }
            let (ids, types, cut) = encode.tokenizer.encode_input(*input, &encode.config).map_err(said)?;
            if ids.is_empty() {
                return Err(format!("the {name} has no tokens"));
            }
            texts.push(Encoded { ids, types });
            is_cut |= cut;
        }
        let texts = Self {
            texts,
            label,
            class: 0,
            line,
        };
        Ok((texts, is_cut))
    }

    /// The number of texts.
    pub(super) fn count(&self) -> usize {
        self.texts.len()
    }

    /// The length of the longest text, in tokens.
    pub(super) fn width(&self) -> usize {
        self.texts.iter().map(|text| text.ids.len()).max().unwrap_or(0)
    }

    /// All tokens.
    pub(super) fn ids(&self) -> impl Iterator<Item = &i64> {
        self.texts.iter().flat_map(|text| &text.ids)
    }

    /// `[texts, 3, width]`: the tokens, the mask and the types of each text; and the class.
    pub(super) fn rows(&self, width: usize) -> polygrad::Result<(HostTensor, HostTensor)> {
        let mut all = Vec::with_capacity(self.texts.len() * 3 * width);
        for text in &self.texts {
            for values in [&text.ids, &vec![1; text.ids.len()], &text.types] {
                all.extend_from_slice(values);
                all.resize(all.len() + width - values.len(), 0);
            }
        }
        Ok((
            HostTensor::new([self.texts.len(), 3, width].into(), all)?,
            HostTensor::new([].into(), vec![self.class as i64])?,
        ))
    }
}

/// Converts texts to tokens.
pub(super) struct Encode<'a> {
    tokenizer: &'a Tokenizer,
    config: BatchConfig,
}

impl<'a> Encode<'a> {
    /// For texts of at most `context` tokens, including special ones.
    pub(super) fn new(tokenizer: &'a Tokenizer, context: usize) -> Self {
        let config = BatchConfig::default().max_length(context);
        Self { tokenizer, config }
    }
}
