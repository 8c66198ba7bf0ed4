//! Embeddings whose vectors stay packed.

use polygrad_tensor::{AnyBackend, Backend, Result, Tensor};

use super::QuantizedWeight;
use crate::layers::layer_of_tensors;
use crate::{Visit, Visitor, watch};

/// An [`Embedding`](crate::Embedding) whose vectors stay packed and are not trained; looked-up vectors are f32.
#[derive(Debug)]
pub struct QuantizedEmbedding<B: Backend = AnyBackend> {
    /// `[num_embeddings, embedding_dim]`.
    pub weight: QuantizedWeight<B>,
}

impl<B: Backend> QuantizedEmbedding<B> {
    /// An embedding with these vectors.
    pub fn of(weight: QuantizedWeight<B>) -> Self {
        Self { weight }
    }

    /// The vectors for i64 indices of any shape: `[…]` to `[…, embedding_dim]`.
    ///
    /// # Errors
    /// When the dtype is not i64, or an index is out of range.
    pub fn forward(&self, index: &Tensor<B>) -> Result<Tensor<B>> {
        watch::layer(self, index, || {
            let vectors = self.weight.rows(&index.flatten(0, -1)?)?;
            let mut dims = index.dims();
            dims.push(self.weight.dims()[1]);
            vectors.reshape(dims)
        })
    }
}

impl<B: Backend> Visit<B> for QuantizedEmbedding<B> {
    fn visit(&self, visitor: &mut Visitor<'_, B>) {
        visitor.module(self);
        self.weight.visit(visitor);
    }
}

layer_of_tensors!([B: Backend] QuantizedEmbedding<B>);
