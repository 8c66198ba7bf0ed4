//! The last layer of language models.

use polygrad_tensor::{Backend, Device, Result, Tensor};

use crate::{Embedding, Init, Module, Param, watch};

/// The projection to the vocabulary, whose weight is the embedding's where they are tied.
#[derive(Debug, Module)]
pub(super) struct LmHead<B: Backend> {
    weight: Param<B>,
}

impl<B: Backend> LmHead<B> {
    /// For the words of an embedding, tied to it or with a weight of its own.
    pub(super) fn new(words: &Embedding<B>, tied: bool, init: Init, device: &Device<B>) -> Result<Self> {
        let weight = match tied {
            true => words.weight.clone(),
            false => init.param(words.weight.shape(), device)?,
        };
        Ok(Self { weight })
    }

    /// Logits `[…, words]` of vectors.
    pub(super) fn forward(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        watch::layer(self, x, || x.linear(&self.weight.tensor(), None))
    }
}
