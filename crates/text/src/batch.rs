//! Texts of different lengths as one tensor.

use polygrad_tensor::{AnyBackend, Backend, Device, Error, ErrorKind, Result, Tensor};
use tokenizers::{Encoding, PostProcessor, TruncationDirection};

use crate::tokenizer::Kind;
use crate::{BatchConfig, Padding, Side, Tokenizer};

/// A text, or a pair of them, such as a question and a text that may answer it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextInput<'a> {
    /// A single text.
    Single(&'a str),
    /// Two texts.
    Pair(&'a str, &'a str),
}

impl<'a> From<&'a str> for TextInput<'a> {
    fn from(text: &'a str) -> Self {
        Self::Single(text)
    }
}

impl<'a> From<&&'a str> for TextInput<'a> {
    fn from(text: &&'a str) -> Self {
        Self::Single(text)
    }
}

impl<'a> From<&'a String> for TextInput<'a> {
    fn from(text: &'a String) -> Self {
        Self::Single(text)
    }
}

impl<'a> From<(&'a str, &'a str)> for TextInput<'a> {
    fn from((first, second): (&'a str, &'a str)) -> Self {
        Self::Pair(first, second)
    }
}

impl<'a> From<&(&'a str, &'a str)> for TextInput<'a> {
    fn from(&(first, second): &(&'a str, &'a str)) -> Self {
        Self::Pair(first, second)
    }
}

impl<'a> From<&'a (String, String)> for TextInput<'a> {
    fn from((first, second): &'a (String, String)) -> Self {
        Self::Pair(first, second)
    }
}

/// Texts as tensors, each `[N, S]` and i64.
#[derive(Debug)]
pub struct Batch<B: Backend = AnyBackend> {
    /// The tokens.
    pub ids: Tensor<B>,
    /// 1 for tokens, 0 for padding.
    pub attention_mask: Tensor<B>,
    /// 0 for tokens of the first text, 1 for those of the second, if the model's tokenizer distinguishes them.
    pub token_type_ids: Tensor<B>,
    /// 1 for tokens that are not part of a text: special tokens, and padding.
    pub special_tokens_mask: Tensor<B>,
    /// The index of the text that each row belongs to: with [`BatchConfig::overflowing`] a text may have several rows.
    pub samples: Vec<usize>,
}

impl Tokenizer {
    /// Truncates and pads texts, or pairs of them, to one length, like Hugging Face's tokenizers.
    ///
    /// ```
    /// use polygrad_text::Tokenizer;
    /// # use polygrad_tensor::Device;
    /// # fn main() -> polygrad_tensor::Result<()> {
    /// # let device = Device::<polygrad_cpu::Cpu>::default();
    /// let tokenizer = Tokenizer::bytes();
    /// let config = tokenizer.batch_config().max_length(4).pad_id(0);
    /// let batch = tokenizer.batch(&["abcdef", "g"], &config, &device)?;
    /// assert_eq!(batch.ids.to_vec::<i64>()?, [97, 98, 99, 100, 103, 0, 0, 0]);
    /// let pairs = tokenizer.batch(&[("ab", "c")], &config, &device)?;
    /// assert_eq!(pairs.token_type_ids.to_vec::<i64>()?, [0, 0, 1]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Tokenizer::encode`]; if there are no texts, if the options do not fit each other or a text, or if
    /// texts of different lengths are not to be padded.
    pub fn batch<'a, B: Backend>(
        &self,
        texts: impl IntoIterator<Item = impl Into<TextInput<'a>>>,
        config: &BatchConfig,
        device: &Device<B>,
    ) -> Result<Batch<B>> {
        let mut rows = Vec::new();
        let (mut samples, mut longest) = (Vec::new(), 0);
        for (sample, text) in texts.into_iter().enumerate() {
            let mut row = self.row(text.into(), config)?;
            longest = longest.max(row.len());
            let rest = row.take_overflowing();
            rows.push(row);
            samples.push(sample);
            if config.overflowing {
                samples.resize(samples.len() + rest.len(), sample);
                rows.extend(rest);
            }
        }
        if rows.is_empty() {
            return Err(Error::shape("a batch of no texts").with_op("batch"));
        }
        let length = config.length(longest)?;
        let (pad, pad_type) = config.pad(rows.iter().any(|row| row.len() < length))?;
        let [mut ids, mut mask, mut types, mut special] = [const { Vec::<i64>::new() }; 4];
        let size = rows.len().saturating_mul(length);
        for column in [&mut ids, &mut mask, &mut types, &mut special] {
            column.try_reserve_exact(size).map_err(|e| {
                let text = format!("{} rows of {length} tokens: {e}", rows.len());
                Error::new(ErrorKind::OutOfMemory, text).with_op("batch")
            })?;
        }
        for row in &rows {
            if row.len() > length || config.padding == Padding::None && row.len() != length {
                return Err(Error::shape(format!("texts of {} and {length} tokens", row.len()))
                    .with_op("batch")
                    .with_hint("cut them by max_length and fill them up by Padding::Longest"));
            }
            let padding = length - row.len();
            for (column, values, fill) in [
                (&mut ids, row.get_ids(), pad),
                (&mut mask, row.get_attention_mask(), 0),
                (&mut types, row.get_type_ids(), pad_type),
                (&mut special, row.get_special_tokens_mask(), 1),
            ] {
                let fill = std::iter::repeat_n(fill, padding);
                match config.padding_side {
                    Side::Left => column.extend(fill.chain(values.iter().map(|&value| i64::from(value)))),
                    Side::Right => column.extend(values.iter().map(|&value| i64::from(value)).chain(fill)),
                }
            }
        }
        let tensor = |values: Vec<i64>| Tensor::from_vec(values, [rows.len(), length], device);
        Ok(Batch {
            ids: tensor(ids)?,
            attention_mask: tensor(mask)?,
            token_type_ids: tensor(types)?,
            special_tokens_mask: tensor(special)?,
            samples,
        })
    }

    /// Encodes a text, or a pair of them, truncated according to `config`, with special tokens if it asks for them.
    /// Returns the tokens, for each token whether it belongs to the first (0) or the second (1) text, and whether
    /// anything was truncated. There is no padding.
    ///
    /// # Errors
    /// Those of [`Tokenizer::batch`].
    pub fn encode_input<'a>(
        &self,
        text: impl Into<TextInput<'a>>,
        config: &BatchConfig,
    ) -> Result<(Vec<i64>, Vec<i64>, bool)> {
        let row = self.row(text.into(), config)?;
        let wide = |values: &[u32]| values.iter().map(|&value| i64::from(value)).collect();
        let is_cut = !row.get_overflowing().is_empty();
        Ok((wide(row.get_ids()), wide(row.get_type_ids()), is_cut))
    }

    /// A truncated text with its special tokens; the truncated part is its overflow.
    fn row(&self, text: TextInput<'_>, config: &BatchConfig) -> Result<Encoding> {
        let (mut first, mut second) = match text {
            TextInput::Single(text) => (self.encoding(text)?, None),
            TextInput::Pair(first, second) => {
                let mut second = self.encoding(second)?;
                second.set_type_ids(vec![1; second.len()]);
                (self.encoding(first)?, Some(second))
            }
        };
        let parts = match &self.kind {
            Kind::HuggingFace(parts) => Some(parts),
            _ => None,
        };
        if let Some(max_length) = config.max_length {
            let processor = parts.and_then(|parts| parts.post_processor.as_ref());
            let added = processor.filter(|_| config.special);
            let added = added.map_or(0, |processor| processor.added_tokens(second.is_some()));
            let room = max_length.checked_sub(added).ok_or_else(|| {
                Error::invalid(format!(
                    "max_length = {max_length} has no room for {added} special tokens"
                ))
                .with_op("batch")
            })?;
            let kept = config.kept(first.len(), second.as_ref().map(Encoding::len), room)?;
            config.cut(&mut first, kept.0)?;
            if let Some(second) = &mut second {
                config.cut(second, kept.1)?;
            }
        }
        match parts {
            Some(parts) => parts.joined(first, second, config.special),
            None => Ok(Encoding::merge([first].into_iter().chain(second), false)),
        }
    }
}

impl BatchConfig {
    fn cut(&self, encoding: &mut Encoding, kept: usize) -> Result<()> {
        if kept < encoding.len() && kept > 0 && self.stride >= kept {
            return Err(Error::invalid(format!(
                "stride = {} leaves nothing new in a piece of {kept} tokens",
                self.stride
            ))
            .with_op("batch")
            .with_hint("take a smaller stride, or a larger max_length"));
        }
        let direction = match self.truncation_side {
            Side::Left => TruncationDirection::Left,
            Side::Right => TruncationDirection::Right,
        };
        encoding.truncate(kept, self.stride, direction);
        Ok(())
    }

    /// The length to which rows are padded if the longest has `longest` tokens.
    fn length(&self, longest: usize) -> Result<usize> {
        let length = match self.padding {
            Padding::None => return Ok(longest),
            Padding::Longest => longest,
            Padding::Length(length) => length.max(longest),
        };
        match self.multiple {
            None => Ok(length),
            Some(multiple) => length
                .checked_next_multiple_of(multiple)
                .ok_or_else(|| Error::invalid(format!("a length of multiples of {multiple}")).with_op("batch")),
        }
    }

    /// The padding token and its type.
    fn pad(&self, needed: bool) -> Result<(i64, i64)> {
        match self.pad_id {
            Some(id) => Ok((id, self.pad_type_id)),
            None if !needed || self.padding == Padding::None => Ok((0, 0)),
            None => Err(Error::invalid("no token to fill texts up with is known")
                .with_op("batch")
                .with_hint("say it by BatchConfig::pad_id")),
        }
    }
}
