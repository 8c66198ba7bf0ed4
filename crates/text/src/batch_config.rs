//! Options of a batch of texts.

use polygrad_tensor::{Error, Result};
use tokenizers::{PaddingDirection, PaddingStrategy, TruncationDirection, TruncationStrategy};

use crate::Tokenizer;
use crate::tokenizer::Kind;

/// An end of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Its beginning, the side of padding for generation.
    Left,
    /// Its end, the side of padding for encoders such as BERT.
    Right,
}

/// The part of a pair that is truncated, by Hugging Face's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Truncation {
    /// The longer one, and both if that is not enough.
    #[default]
    LongestFirst,
    /// Only the first.
    OnlyFirst,
    /// Only the second; a text that is not a pair is an error.
    OnlySecond,
}

/// The length to which texts are padded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Padding {
    /// No padding: different lengths are an error.
    None,
    /// The length of the longest.
    #[default]
    Longest,
    /// This length, or that of the longest if it is longer.
    Length(usize),
}

/// How [`Tokenizer::batch`] truncates and pads texts. [`Tokenizer::batch_config`] returns the settings of the
/// tokenizer's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchConfig {
    pub(crate) max_length: Option<usize>,
    pub(crate) truncation: Truncation,
    pub(crate) truncation_side: Side,
    pub(crate) stride: usize,
    pub(crate) overflowing: bool,
    pub(crate) padding: Padding,
    pub(crate) multiple: Option<usize>,
    pub(crate) pad_id: Option<i64>,
    pub(crate) pad_type_id: i64,
    pub(crate) padding_side: Side,
    pub(crate) special: bool,
}

impl Default for BatchConfig {
    fn default() -> Self {
        Self {
            max_length: None,
            truncation: Truncation::default(),
            truncation_side: Side::Right,
            stride: 0,
            overflowing: false,
            padding: Padding::default(),
            multiple: None,
            pad_id: None,
            pad_type_id: 0,
            padding_side: Side::Right,
            special: true,
        }
    }
}

impl BatchConfig {
    /// The most tokens of a row, including special ones. Default: no limit.
    #[must_use]
    pub const fn max_length(mut self, length: usize) -> Self {
        self.max_length = Some(length);
        self
    }

    /// Never truncates texts, regardless of the tokenizer's file.
    #[must_use]
    pub const fn whole_texts(mut self) -> Self {
        self.max_length = None;
        self
    }

    /// The part of a pair that is truncated. Default: [`Truncation::LongestFirst`].
    #[must_use]
    pub const fn truncation(mut self, truncation: Truncation) -> Self {
        self.truncation = truncation;
        self
    }

    /// The end at which a text is truncated. Default: the right.
    #[must_use]
    pub const fn truncation_side(mut self, side: Side) -> Self {
        self.truncation_side = side;
        self
    }

    /// The number of tokens that a piece of a truncated text shares with the next one. Default: 0.
    #[must_use]
    pub const fn stride(mut self, stride: usize) -> Self {
        self.stride = stride;
        self
    }

    /// Whether the truncated pieces become rows, too, after the row of their text:
    /// [`Batch::samples`](crate::Batch::samples) names the text of each row. Default: false.
    #[must_use]
    pub const fn overflowing(mut self, overflowing: bool) -> Self {
        self.overflowing = overflowing;
        self
    }

    /// The length to which texts are padded. Default: [`Padding::Longest`].
    #[must_use]
    pub const fn padding(mut self, padding: Padding) -> Self {
        self.padding = padding;
        self
    }

    /// Makes the length a multiple of this. Default: 1.
    #[must_use]
    pub const fn pad_to_multiple_of(mut self, multiple: usize) -> Self {
        self.multiple = Some(multiple);
        self
    }

    /// The padding token. Default: none, which is an error if a text needs padding.
    #[must_use]
    pub const fn pad_id(mut self, id: i64) -> Self {
        self.pad_id = Some(id);
        self
    }

    /// The type of the padding token. Default: 0.
    #[must_use]
    pub const fn pad_type_id(mut self, id: i64) -> Self {
        self.pad_type_id = id;
        self
    }

    /// The side of padding. Default: the right.
    #[must_use]
    pub const fn padding_side(mut self, side: Side) -> Self {
        self.padding_side = side;
        self
    }

    /// Whether rows have the special tokens that a model expects, such as BERT's `[CLS]` and `[SEP]`. Default: true.
    #[must_use]
    pub const fn special(mut self, special: bool) -> Self {
        self.special = special;
        self
    }

    /// The numbers of tokens of the two parts that are kept within `room`.
    pub(crate) fn kept(&self, first: usize, second: Option<usize>, room: usize) -> Result<(usize, usize)> {
        let other = second.unwrap_or(0);
        let Some(excess) = (first + other).checked_sub(room).filter(|&excess| excess > 0) else {
            return Ok((first, other));
        };
        let shortened = |length: usize, which: &str| match length > excess {
            true => Ok(length - excess),
            false => Err(Error::invalid(format!(
                "the {which} text of {length} tokens is too short: {excess} tokens are too many"
            ))
            .with_op("batch")
            .with_hint("take a larger max_length, or Truncation::LongestFirst")),
        };
        Ok(match (self.truncation, second) {
            (Truncation::LongestFirst, None) => (room, 0),
            (Truncation::LongestFirst, Some(second)) => {
                // Like the crate tokenizers: only the longer part is truncated if that is enough; otherwise each gets
                // half of the room.
                let short = first.min(second);
                let (mut a, mut b) = (short, room.saturating_sub(short).max(short));
                if a + b > room {
                    (a, b) = (room / 2, room / 2 + room % 2);
                }
                if first > second { (b, a) } else { (a, b) }
            }
            (Truncation::OnlyFirst, _) => (shortened(first, "first")?, other),
            (Truncation::OnlySecond, Some(second)) => (first, shortened(second, "second")?),
            (Truncation::OnlySecond, None) => {
                return Err(Error::invalid("only the second text may be cut, and there is none")
                    .with_op("batch")
                    .with_hint("give pairs, or take Truncation::LongestFirst"));
            }
        })
    }
}

impl Tokenizer {
    /// The batch settings of the tokenizer's file, from its sections `truncation` and `padding`. By default, texts are
    /// not truncated, and are padded on the right to the longest, with the token `[PAD]` or `<pad>` if there is one.
    pub fn batch_config(&self) -> BatchConfig {
        let mut config = BatchConfig {
            pad_id: ["[PAD]", "<pad>"].iter().find_map(|token| self.token_to_id(token)),
            ..BatchConfig::default()
        };
        let Kind::HuggingFace(parts) = &self.kind else {
            return config;
        };
        if let Some(truncation) = &parts.truncation {
            config.max_length = Some(truncation.max_length);
            config.stride = truncation.stride;
            config.truncation = match truncation.strategy {
                TruncationStrategy::LongestFirst => Truncation::LongestFirst,
                TruncationStrategy::OnlyFirst => Truncation::OnlyFirst,
                TruncationStrategy::OnlySecond => Truncation::OnlySecond,
            };
            config.truncation_side = match truncation.direction {
                TruncationDirection::Left => Side::Left,
                TruncationDirection::Right => Side::Right,
            };
        }
        if let Some(padding) = &parts.padding {
            config.padding = match padding.strategy {
                PaddingStrategy::BatchLongest => Padding::Longest,
                PaddingStrategy::Fixed(length) => Padding::Length(length),
            };
            config.multiple = padding.pad_to_multiple_of;
            config.pad_id = Some(padding.pad_id.into());
            config.pad_type_id = padding.pad_type_id.into();
            config.padding_side = match padding.direction {
                PaddingDirection::Left => Side::Left,
                PaddingDirection::Right => Side::Right,
            };
        }
        config
    }
}
