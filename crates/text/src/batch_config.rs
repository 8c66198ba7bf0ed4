//! How a batch of texts is made.

use polygrad_tensor::{Error, Result};
use tokenizers::{PaddingDirection, PaddingStrategy, TruncationDirection, TruncationStrategy};

use crate::Tokenizer;
use crate::tokenizer::Kind;

/// An end of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Its beginning: where padding stands for generation.
    Left,
    /// Its end: where encoders such as BERT want padding.
    Right,
}

/// Which part of a pair is cut, as Hugging Face names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Truncation {
    /// The longer one, and both where that is not enough.
    #[default]
    LongestFirst,
    /// The first alone.
    OnlyFirst,
    /// The second alone; a text that is no pair is an error.
    OnlySecond,
}

/// To what length texts are filled up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Padding {
    /// Not: all have one length, or it is an error.
    None,
    /// That of the longest.
    #[default]
    Longest,
    /// This one, or that of the longest where that is longer.
    Length(usize),
}

/// How [`Tokenizer::batch`] cuts texts and fills them up. [`Tokenizer::batch_config`] gives what the
/// tokenizer's file says.
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
    /// The most tokens of a row, special ones included. Default: none.
    #[must_use]
    pub const fn max_length(mut self, length: usize) -> Self {
        self.max_length = Some(length);
        self
    }

    /// That texts are whole, whatever the tokenizer's file says.
    #[must_use]
    pub const fn whole_texts(mut self) -> Self {
        self.max_length = None;
        self
    }

    /// Which part of a pair is cut. Default: [`Truncation::LongestFirst`].
    #[must_use]
    pub const fn truncation(mut self, truncation: Truncation) -> Self {
        self.truncation = truncation;
        self
    }

    /// At which end a text is cut. Default: on the right.
    #[must_use]
    pub const fn truncation_side(mut self, side: Side) -> Self {
        self.truncation_side = side;
        self
    }

    /// How many tokens a piece of a text that is cut has in common with the next one. Default: 0.
    #[must_use]
    pub const fn stride(mut self, stride: usize) -> Self {
        self.stride = stride;
        self
    }

    /// Whether the pieces that are cut off are rows, too, behind that of their text:
    /// [`Batch::samples`](crate::Batch::samples) says whose they are. Default: false.
    #[must_use]
    pub const fn overflowing(mut self, overflowing: bool) -> Self {
        self.overflowing = overflowing;
        self
    }

    /// To what length texts are filled up. Default: [`Padding::Longest`].
    #[must_use]
    pub const fn padding(mut self, padding: Padding) -> Self {
        self.padding = padding;
        self
    }

    /// That the length is a multiple of this. Default: 1.
    #[must_use]
    pub const fn pad_to_multiple_of(mut self, multiple: usize) -> Self {
        self.multiple = Some(multiple);
        self
    }

    /// The token that texts are filled up with. Default: none, which is an error where a text has to be filled up.
    #[must_use]
    pub const fn pad_id(mut self, id: i64) -> Self {
        self.pad_id = Some(id);
        self
    }

    /// Its type. Default: 0.
    #[must_use]
    pub const fn pad_type_id(mut self, id: i64) -> Self {
        self.pad_type_id = id;
        self
    }

    /// Where padding stands. Default: on the right.
    #[must_use]
    pub const fn padding_side(mut self, side: Side) -> Self {
        self.padding_side = side;
        self
    }

    /// Whether rows have the special tokens that a model is to be given, such as BERT's `[CLS]` and
    /// `[SEP]`. Default: true.
    #[must_use]
    pub const fn special(mut self, special: bool) -> Self {
        self.special = special;
        self
    }

    /// How many tokens of the two parts are left within `room`.
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
                // As the crate tokenizers does it: the longer one alone where that is enough, else half
                // of the room for each.
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
    /// How the tokenizer's file says that batches are made, by its sections `truncation` and `padding`. Where it
    /// does not say it, texts are whole and filled up on the right to the longest, with the token `[PAD]` or
    /// `<pad>` if there is one.
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
