//! Embeddings.

use polygrad_tensor::{AnyBackend, Backend, DType, Device, Error, Result, Shape, Tensor};

use super::stateless::layer_of_tensors;
use crate::init::skips;
use crate::lora::{AdapterSlot, Kind, Layer, Weight, adapted};
use crate::options::options;
use crate::{Init, Param, Visit, Visitor, watch};

/// A table of vectors, looked up by index: `weight [num_embeddings, embedding_dim]`.
#[derive(Debug)]
pub struct Embedding<B: Backend = AnyBackend> {
    /// `[num_embeddings, embedding_dim]`.
    pub weight: Param<B>,
    padding_idx: Option<usize>,
    adapters: AdapterSlot<B>,
}

options! {
    /// Options of [`Embedding`].
    #[derive(Clone, Copy, Debug)]
    pub struct EmbeddingConfig {
        /// `num_embeddings` vectors of `embedding_dim`.
        pub const fn new(num_embeddings: usize, embedding_dim: usize);
        /// Index (negative: from the end) of a vector that begins as 0 and gets no gradient. Default: none.
        padding_idx: Option<isize> = None, from |index: isize| Some(index);
        /// Initial vectors. Default, as in PyTorch: standard normal.
        init: Init = Init::Normal { mean: 0.0, std: 1.0 };
    }
}

impl EmbeddingConfig {
    /// The layer, on a device.
    ///
    /// # Errors
    /// When `padding_idx` is out of range, or memory runs out.
    #[track_caller]
    pub fn build<B: Backend>(self, device: &Device<B>) -> Result<Embedding<B>> {
        let (weight, padding_idx) = self.table(device).map_err(|e| e.with_op("embedding"))?;
        Ok(Embedding {
            weight,
            padding_idx,
            adapters: AdapterSlot::default(),
        })
    }

    /// The table of vectors, and the index of the padding vector.
    #[track_caller]
    pub(super) fn table<B: Backend>(self, device: &Device<B>) -> Result<(Param<B>, Option<usize>)> {
        let shape = Shape::new(&[self.num_embeddings, self.embedding_dim])?;
        let mut weight = self.init.tensor(shape, DType::F32, device)?;
        let padding_idx = self
            .padding_idx
            .map(|index| resolve(index, self.num_embeddings))
            .transpose()?;
        // A table that is to be loaded takes no memory before.
        if let Some(row) = padding_idx.filter(|_| !skips()) {
            let padding = (0..self.num_embeddings).map(|i| i == row).collect();
            let padding = Tensor::from_vec::<bool>(padding, [self.num_embeddings, 1], device)?;
            weight = weight.masked_fill(&padding, 0.0)?;
        }
        Ok((Param::new(weight)?, padding_idx))
    }
}

fn resolve(index: isize, len: usize) -> Result<usize> {
    let row = if index < 0 {
        len.checked_sub(index.unsigned_abs())
    } else {
        Some(index.unsigned_abs())
    };
    row.filter(|&row| row < len)
        .ok_or_else(|| Error::out_of_range(format!("padding_idx {index} is outside the {len} embeddings")))
}

impl<B: Backend> Embedding<B> {
    /// `num_embeddings` vectors of `embedding_dim`; [`EmbeddingConfig`] has the other options.
    ///
    /// # Errors
    /// When memory runs out.
    #[track_caller]
    pub fn new(num_embeddings: usize, embedding_dim: usize, device: &Device<B>) -> Result<Self> {
        EmbeddingConfig::new(num_embeddings, embedding_dim).build(device)
    }

    /// The vectors for i64 indices of any shape: `[…]` to `[…, embedding_dim]`.
    ///
    /// # Errors
    /// When the dtype is not i64, or an index is out of range.
    pub fn forward(&self, index: &Tensor<B>) -> Result<Tensor<B>> {
        watch::layer(self, index, || {
            let y = index.embedding(&self.weight.tensor(), self.padding_idx)?;
            match self.adapters.active() {
                None => Ok(y),
                Some(active) => adapted(&active, &self.layer(), index, y),
            }
        })
    }

    fn layer(&self) -> Layer<'_, B> {
        Layer {
            kind: Kind::Embedding {
                padding_idx: self.padding_idx,
            },
            weight: Weight::Param(&self.weight),
            bias: None,
        }
    }
}

impl<B: Backend> Visit<B> for Embedding<B> {
    fn visit(&self, visitor: &mut Visitor<'_, B>) {
        visitor.module(self);
        visitor.field("weight", &self.weight);
        self.adapters.visit(self.layer(), visitor);
    }
}

layer_of_tensors!([B: Backend] Embedding<B>);
