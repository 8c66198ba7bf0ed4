//! Tokenizers of all kinds behind one type.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use polygrad_tensor::{Error, ErrorKind, Result};
use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{Encoding, PaddingParams, PostProcessor, PostProcessorWrapper, Token, TruncationParams};

/// The most bytes of a text read per token before it is rejected as too long: tokens are usually much shorter.
const MOST_BYTES: usize = 128;
/// The least bytes read at a time, even for few tokens.
const LEAST_BYTES: usize = 4096;

/// Turns text into token ids and back. Cloning gives a second handle to the same tokenizer, for example for a function
/// that makes batches.
#[derive(Clone)]
pub struct Tokenizer {
    pub(crate) kind: Kind,
}

#[derive(Clone)]
pub(crate) enum Kind {
    /// Described by Hugging Face's tokenizer.json.
    HuggingFace(Arc<HuggingFace>),
    Bytes,
    Characters(Arc<Characters>),
}

/// The parts of a tokenizer.json.
pub(crate) struct HuggingFace {
    /// Without the other three parts.
    inner: tokenizers::Tokenizer,
    /// Adds special tokens.
    pub(crate) post_processor: Option<PostProcessorWrapper>,
    pub(crate) truncation: Option<TruncationParams>,
    pub(crate) padding: Option<PaddingParams>,
}

pub(crate) struct Characters {
    characters: Vec<char>,
    ids: HashMap<char, i64>,
}

impl HuggingFace {
    /// Adds the special tokens to a text of one or two parts.
    pub(crate) fn joined(&self, first: Encoding, second: Option<Encoding>, special: bool) -> Result<Encoding> {
        if let Some(processor) = &self.post_processor {
            return guarded("encode", || processor.process(first, second, special));
        }
        Ok(Encoding::merge([first].into_iter().chain(second), false))
    }
}

/// Calls the crate `tokenizers` with what a tokenizer.json says. Some of its parts panic if that contradicts itself,
/// for example in a template with a special token that has no number; such a panic becomes an error.
fn guarded<T>(op: &'static str, call: impl FnOnce() -> tokenizers::Result<T>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(done) => done.map_err(|e| failed(op, e)),
        Err(_) => Err(failed(op, "the tokenizer.json contradicts itself")
            .with_hint("take the tokenizer.json that the model was published with")),
    }
}

/// Converts an error of the crate `tokenizers`.
pub(crate) fn failed(op: &'static str, error: impl fmt::Display) -> Error {
    Error::new(ErrorKind::Format, error.to_string()).with_op(op)
}

impl Tokenizer {
    /// Reads a `tokenizer.json` in the Hub's format.
    ///
    /// # Errors
    /// If it cannot be read, or has another format.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path).map_err(|e| Error::io("read", path, e))?;
        Self::from_json(&text).map_err(|e| e.with_hint(format!("is {} a tokenizer.json?", path.display())))
    }

    /// Like [`Tokenizer::from_file`], from the file's text. Its truncation and padding apply to
    /// [batches](Tokenizer::batch_config); [`Tokenizer::encode`] encodes whole texts.
    ///
    /// # Errors
    /// If it has another format.
    pub fn from_json(json: &str) -> Result<Self> {
        Self::wrapped(guarded("tokenizer", || json.parse())?)
    }

    pub(crate) fn wrapped(mut inner: tokenizers::Tokenizer) -> Result<Self> {
        let (truncation, padding) = (inner.get_truncation().cloned(), inner.get_padding().cloned());
        let post_processor = inner.get_post_processor().cloned();
        inner.with_padding(None);
        inner.with_post_processor(None::<PostProcessorWrapper>);
        inner.with_truncation(None).map_err(|e| failed("tokenizer", e))?;
        Ok(Self {
            kind: Kind::HuggingFace(Arc::new(HuggingFace {
                inner,
                post_processor,
                truncation,
                padding,
            })),
        })
    }

    /// A token for each byte of UTF-8: 256 of them, whose ids are the bytes.
    pub const fn bytes() -> Self {
        Self { kind: Kind::Bytes }
    }

    /// A token for each character of a text, in the order of their code points.
    pub fn characters(text: &str) -> Self {
        let characters: Vec<char> = text.chars().collect::<BTreeSet<_>>().into_iter().collect();
        let ids = characters.iter().copied().zip(0..).collect();
        Self {
            kind: Kind::Characters(Arc::new(Characters { characters, ids })),
        }
    }

    /// Trains byte-level BPE on texts, with up to `vocab_size` tokens (at least 256, since all bytes are included);
    /// `special_tokens` come first.
    ///
    /// Source: Radford et al., "Language models are unsupervised multitask learners" (2019).
    ///
    /// # Errors
    /// If the vocabulary is too small, or training fails.
    pub fn train_bpe<S: AsRef<str> + Send>(
        texts: impl IntoIterator<Item = S, IntoIter: Send>,
        vocab_size: usize,
        special_tokens: &[&str],
    ) -> Result<Self> {
        const OP: &str = "train_bpe";
        let least = 256 + special_tokens.len();
        if vocab_size < least {
            let text = format!("a vocabulary of {vocab_size} has no room for all bytes and special tokens: {least}");
            return Err(Error::invalid(text).with_op(OP));
        }
        let special = special_tokens
            .iter()
            .map(|&token| tokenizers::AddedToken::from(token, true));
        let mut trainer: TrainerWrapper = BpeTrainer::builder()
            .show_progress(false)
            .vocab_size(vocab_size)
            .special_tokens(special.collect())
            .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
            .build()
            .into();
        let bytes = ByteLevel::default().add_prefix_space(false);
        let mut inner = tokenizers::Tokenizer::new(BPE::default());
        inner.with_pre_tokenizer(Some(bytes));
        inner.with_decoder(Some(bytes));
        inner
            .train(&mut trainer, texts.into_iter())
            .map_err(|e| failed(OP, e))?;
        Self::wrapped(inner)
    }

    /// The text of a `tokenizer.json`.
    ///
    /// # Errors
    /// For tokenizers of bytes and characters, which have no such form.
    pub fn to_json(&self) -> Result<String> {
        match &self.kind {
            Kind::HuggingFace(parts) => {
                let mut whole = parts.inner.clone();
                // Set before the special tokens: otherwise their number would be subtracted from the length without a
                // check.
                whole
                    .with_truncation(parts.truncation.clone())
                    .map_err(|e| failed("to_json", e))?;
                whole.with_padding(parts.padding.clone());
                whole.with_post_processor(parts.post_processor.clone());
                whole.to_string(true).map_err(|e| failed("to_json", e))
            }
            _ => Err(Error::unsupported("a tokenizer of bytes or characters is no tokenizer.json").with_op("to_json")),
        }
    }

    /// The number of tokens, including special ones.
    pub fn vocab_size(&self) -> usize {
        match &self.kind {
            Kind::HuggingFace(parts) => parts.inner.get_vocab_size(true),
            Kind::Bytes => 256,
            Kind::Characters(all) => all.characters.len(),
        }
    }

    /// The ids below `count` that are no token. A model often has more tokens than its tokenizer, which it must not
    /// [choose](polygrad_nn::models::GenerateConfig::suppress_tokens): nothing could be shown of them.
    pub fn lacking(&self, count: usize) -> Vec<i64> {
        let own = self.vocab_size();
        let lacks = |&id: &usize| match &self.kind {
            Kind::HuggingFace(parts) => !u32::try_from(id).is_ok_and(|id| parts.inner.id_to_token(id).is_some()),
            Kind::Bytes | Kind::Characters(_) => id >= own,
        };
        let all = if own < count { 0..count } else { 0..0 };
        all.filter(lacks).map(|id| id as i64).collect()
    }

    /// The id of a token; `None` if there is no such token.
    pub fn token_to_id(&self, token: &str) -> Option<i64> {
        match &self.kind {
            Kind::HuggingFace(parts) => parts.inner.token_to_id(token).map(i64::from),
            Kind::Bytes => match token.as_bytes() {
                [byte] => Some((*byte).into()),
                _ => None,
            },
            Kind::Characters(all) => {
                let mut characters = token.chars();
                let first = characters.next()?;
                characters.next().is_none().then(|| all.ids.get(&first).copied())?
            }
        }
    }

    /// The ids of a text. `special` adds the special tokens that a model expects, such as BERT's `[CLS]` and `[SEP]`.
    ///
    /// # Errors
    /// If a character is not in the vocabulary of a tokenizer of characters; if a tokenizer.json contradicts itself.
    pub fn encode(&self, text: &str, special: bool) -> Result<Vec<i64>> {
        match &self.kind {
            Kind::HuggingFace(parts) => {
                let encoding = parts.joined(self.encoding(text)?, None, special)?;
                Ok(encoding.get_ids().iter().map(|&id| id.into()).collect())
            }
            Kind::Bytes => Ok(text.bytes().map(i64::from).collect()),
            Kind::Characters(all) => text
                .chars()
                .map(|c| {
                    all.ids.get(&c).copied().ok_or_else(|| {
                        Error::invalid(format!("the character {c:?} is not in the vocabulary")).with_op("encode")
                    })
                })
                .collect(),
        }
    }

    /// Encodes a text without special tokens.
    pub(crate) fn encoding(&self, text: &str) -> Result<Encoding> {
        if let Kind::HuggingFace(parts) = &self.kind {
            return guarded("encode", || parts.inner.encode_fast(text, false));
        }
        let ids = self.encode(text, false)?;
        let token = |id: i64| Token::new(id as u32, String::new(), (0, 0));
        Ok(Encoding::from_tokens(ids.into_iter().map(token).collect(), 0))
    }

    /// The ids of a text, without adding special tokens, and for each whether it overlaps one of `spans`, which are
    /// byte ranges of the text.
    ///
    /// # Errors
    /// Those of [`Tokenizer::encode`].
    pub fn encode_spans(&self, text: &str, spans: &[Range<usize>]) -> Result<(Vec<i64>, Vec<bool>)> {
        let (ids, places): (Vec<i64>, Vec<(usize, usize)>) = match &self.kind {
            Kind::HuggingFace(parts) => {
                let encoding = guarded("encode", || parts.inner.encode(text, false))?;
                let ids = encoding.get_ids().iter().map(|&id| id.into()).collect();
                (ids, encoding.get_offsets().to_vec())
            }
            Kind::Bytes => (
                self.encode(text, false)?,
                (0..text.len()).map(|at| (at, at + 1)).collect(),
            ),
            Kind::Characters(_) => {
                let places = text.char_indices().map(|(at, c)| (at, at + c.len_utf8()));
                (self.encode(text, false)?, places.collect())
            }
        };
        let is_inside = |&(start, end): &(usize, usize)| spans.iter().any(|span| start < span.end && span.start < end);
        Ok((ids, places.iter().map(is_inside).collect()))
    }

    /// The ids of the beginning of a text, for a limit of `most` tokens. If the whole text was read, returns its ids
    /// and true. Otherwise, returns more than `most` ids, of which the first `most` are those of the whole text, and
    /// false; the rest of the text is not read.
    ///
    /// # Errors
    /// Those of [`Tokenizer::encode`]; if a long text has few tokens, for example if it consists of spaces.
    pub fn encode_start(&self, text: &str, special: bool, most: usize) -> Result<(Vec<i64>, bool)> {
        // Tokens at the cut may differ from those of the whole text, so that the needed ones have to be far from it.
        let enough = most.saturating_mul(2);
        let last = most.saturating_mul(MOST_BYTES).max(LEAST_BYTES);
        let mut bytes = enough.saturating_mul(4).clamp(LEAST_BYTES, last);
        loop {
            let part = &text[..text.floor_char_boundary(bytes)];
            let ids = self.encode(part, special)?;
            match part.len() == text.len() {
                true => return Ok((ids, true)),
                false if ids.len() > enough => return Ok((ids, false)),
                false if bytes == last => {
                    let message = format!(
                        "a text of {} bytes is longer than the {last} that are read for {most} tokens",
                        text.len()
                    );
                    return Err(Error::invalid(message).with_op("encode"));
                }
                false => bytes = bytes.saturating_mul(4).min(last),
            }
        }
    }

    /// Like [`Tokenizer::encode`], for a text of at most `most` tokens. Of a longer text, not much more than that is
    /// read.
    ///
    /// # Errors
    /// Those of [`Tokenizer::encode`]; if the text has more tokens.
    pub fn encode_within(&self, text: &str, special: bool, most: usize) -> Result<Vec<i64>> {
        let (ids, is_whole) = self.encode_start(text, special, most)?;
        match is_whole && ids.len() <= most {
            true => Ok(ids),
            false => Err(Error::invalid(format!(
                "a text of {} bytes has more than {most} tokens, which is the most that can be taken",
                text.len()
            ))
            .with_op("encode")
            .with_hint("give a shorter text")),
        }
    }

    /// The ids of several texts.
    ///
    /// # Errors
    /// Those of [`Tokenizer::encode`].
    pub fn encode_batch(&self, texts: &[&str], special: bool) -> Result<Vec<Vec<i64>>> {
        texts.iter().map(|text| self.encode(text, special)).collect()
    }

    /// The text of ids. `skip_special` omits special tokens. Bytes that are not valid UTF-8 become U+FFFD.
    ///
    /// # Errors
    /// If an id is outside the vocabulary.
    pub fn decode(&self, ids: &[i64], skip_special: bool) -> Result<String> {
        let outside = |id: i64| {
            let text = format!("token {id} is outside the vocabulary of {}", self.vocab_size());
            Error::out_of_range(text).with_op("decode")
        };
        match &self.kind {
            Kind::HuggingFace(parts) => {
                let inner = &parts.inner;
                let known = |&id: &i64| {
                    let small = u32::try_from(id).ok();
                    small
                        .filter(|&id| inner.id_to_token(id).is_some())
                        .ok_or_else(|| outside(id))
                };
                let ids = ids.iter().map(known).collect::<Result<Vec<u32>>>()?;
                guarded("decode", || inner.decode(&ids, skip_special))
            }
            Kind::Bytes => {
                let bytes = ids.iter().map(|&id| u8::try_from(id).map_err(|_| outside(id)));
                Ok(String::from_utf8_lossy(&bytes.collect::<Result<Vec<u8>>>()?).into_owned())
            }
            Kind::Characters(all) => ids
                .iter()
                .map(|&id| {
                    let place = usize::try_from(id).ok();
                    place
                        .and_then(|place| all.characters.get(place))
                        .copied()
                        .ok_or_else(|| outside(id))
                })
                .collect(),
        }
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.kind {
            Kind::HuggingFace(_) => "tokenizer.json",
            Kind::Bytes => "bytes",
            Kind::Characters(_) => "characters",
        };
        write!(f, "Tokenizer({kind}, {} tokens)", self.vocab_size())
    }
}
