//! Texts of different lengths as one tensor.

use polygrad_tensor::{AnyBackend, Backend, Device, Error, Result, Tensor};

use crate::Tokenizer;

/// Where padding stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Before a text, as generation wants it.
    Left,
    /// After it, as encoders such as BERT want it.
    Right,
}

/// Texts as tensors.
#[derive(Debug)]
pub struct Batch<B: Backend = AnyBackend> {
    /// `[N, S]`, i64.
    pub ids: Tensor<B>,
    /// `[N, S]`, i64: 1 for tokens, 0 for padding.
    pub attention_mask: Tensor<B>,
}

impl Tokenizer {
    /// Texts, with their special tokens, filled up to the longest with the token `pad`.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`]; when there are no texts.
    pub fn batch<B: Backend>(&self, texts: &[&str], pad: i64, side: Side, device: &Device<B>) -> Result<Batch<B>> {
        let rows = self.encode_batch(texts, true)?;
        let Some(longest) = rows.iter().map(Vec::len).max() else {
            return Err(Error::shape("a batch of no texts").with_op("batch"));
        };
        let (mut ids, mut mask) = (Vec::new(), Vec::new());
        for row in &rows {
            let padding = longest - row.len();
            let (before, behind) = match side {
                Side::Left => (padding, 0),
                Side::Right => (0, padding),
            };
            for (part, count) in [(false, before), (true, row.len()), (false, behind)] {
                mask.extend(std::iter::repeat_n(i64::from(part), count));
                match part {
                    true => ids.extend_from_slice(row),
                    false => ids.extend(std::iter::repeat_n(pad, count)),
                }
            }
        }
        let shape = [rows.len(), longest];
        Ok(Batch {
            ids: Tensor::from_vec(ids, shape, device)?,
            attention_mask: Tensor::from_vec(mask, shape, device)?,
        })
    }
}
