//! A text as tokens, one for each character.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::sync::Arc;

use flate2::read::MultiGzDecoder;
use polygrad::Device;
use polygrad::data::{DataLoader, DataLoaderConfig, Dataset};
use polygrad::nn::open_file;

use super::Settings;
use crate::data::source::Places;
use crate::failure::{Failure, Result, Shown};
use crate::progress::grouped;
use crate::task::Batch;

/// The largest text in bytes.
const MOST: u64 = 1 << 30;

/// The most different characters: a text with more is not suitable for learning.
const KINDS: usize = 4096;

/// Sequences in a batch of an evaluation.
const EVALUATED: usize = 64;

/// A text.
pub(crate) struct Text {
    characters: String,
    tokens: Arc<Vec<i64>>,
}

/// A number of sequences of a text, by index.
struct Sequences {
    count: usize,
    tokens: Arc<Vec<i64>>,
}

impl Dataset for Sequences {
    type Item = usize;

    fn len(&self) -> usize {
        self.count
    }

    fn example(&self, index: usize) -> polygrad::Result<usize> {
        Ok(index)
    }

    fn fingerprint(&self) -> Option<u64> {
        let mut hasher = DefaultHasher::new();
        self.tokens.hash(&mut hasher);
        Some(hasher.finish())
    }
}

impl Text {
    /// Reads a file, plain or gzip-compressed; without a path, the plays that come with Polygrad.
    ///
    /// # Errors
    /// A file that cannot be found or read, is not UTF-8, is empty, or has only one distinct character, or more than
    /// 4,096.
    pub(super) fn load(path: Option<&Path>) -> Result<Self> {
        let own = match path {
            Some(path) => path.to_owned(),
            None => Places::of_this_machine().carried_file("shakespeare/shakespeare.txt.gz")?,
        };
        let bad = |what: &str| Failure::new(format!("{} {what}", own.shown())).fix("give a file of text in UTF-8");
        let mut bytes = Vec::new();
        let failed = |e: std::io::Error| Failure::io("read", &own, &e);
        open_file(&own)?.0.read_to_end(&mut bytes).map_err(failed)?;
        if bytes.starts_with(&[0x1f, 0x8b]) {
            let mut plain = Vec::new();
            let mut decoder = MultiGzDecoder::new(bytes.as_slice()).take(MOST + 1);
            decoder.read_to_end(&mut plain).map_err(|e| match e.kind() {
                ErrorKind::InvalidData | ErrorKind::InvalidInput | ErrorKind::UnexpectedEof => {
                    bad(&format!("is no whole gzip file: {e}"))
                }
                _ => failed(e),
            })?;
            if plain.len() as u64 > MOST {
                return Err(bad(&format!("is more than {MOST} bytes when it is unpacked")));
            }
            bytes = plain;
        }
        let text = String::from_utf8(bytes).map_err(|_| bad("is no text in UTF-8"))?;
        let kinds: BTreeSet<char> = text.chars().collect();
        match kinds.len() {
            0 => return Err(bad("is empty")),
            1 => {
                let only = text.chars().next().unwrap_or_default();
                return Err(bad(&format!(
                    "has the character {only:?} alone, from which there is nothing to learn"
                )));
            }
            2..=KINDS => {}
            many => {
                return Err(bad(&format!(
                    "has {} kinds of characters, and a text may have {}",
                    grouped(many as u64),
                    grouped(KINDS as u64)
                )));
            }
        }
        let places: HashMap<char, i64> = kinds.iter().copied().zip(0..).collect();
        Ok(Self {
            tokens: Arc::new(text.chars().map(|c| places[&c]).collect()),
            characters: kinds.into_iter().collect(),
        })
    }

    /// Each character once.
    pub(super) fn characters(&self) -> &str {
        &self.characters
    }

    /// The number of characters.
    pub(super) fn len(&self) -> usize {
        self.tokens.len()
    }

    /// For training, sequences from random places of the first nine tenths of the text, as many in an epoch as cover it
    /// once. For evaluation, the last tenth from its beginning on. Each sequence comes with the characters that follow.
    ///
    /// # Errors
    /// A text that is too short for one sequence in either part.
    pub(super) fn loaders(
        &self,
        settings: &Settings,
        device: &Device,
    ) -> Result<(DataLoader<Batch>, DataLoader<Batch>)> {
        let (length, context) = (self.tokens.len(), settings.context);
        let end = length - length / 10;
        if length - end <= context {
            return Err(Failure::new(format!(
                "a tenth of the text is to judge by, and must be longer than {context} characters: it has {length}"
            ))
            .fix("give a longer text"));
        }
        let at = move |tokens: &[i64], begin: usize| {
            let window = |begin: usize| tokens[begin..begin + context].to_vec();
            (window(begin), window(begin + 1))
        };
        let tokens = Arc::clone(&self.tokens);
        let sequences = Sequences {
            count: end / context,
            tokens: Arc::clone(&self.tokens),
        };
        let train = DataLoaderConfig::new(sequences)
            .batch_size(settings.training.batch_size)
            .seed(settings.training.seed)
            .transform(move |_, rng| Ok(at(&tokens, rng.below(end - context))))
            .build(device)?;
        let tokens = Arc::clone(&self.tokens);
        let validation = DataLoaderConfig::new((end..length - context).step_by(context).collect::<Vec<usize>>())
            .batch_size(EVALUATED)
            .transform(move |begin, _| Ok(at(&tokens, begin)))
            .build(device)?;
        Ok((train, validation))
    }
}
