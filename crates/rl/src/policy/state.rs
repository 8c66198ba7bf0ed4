//! The recurrent state of a policy.

use polygrad_tensor::{AnyBackend, Backend, Error, Result, Tensor};

/// The state of a policy between two steps: empty, or tensors `[layers, N, hidden_size]`, such as the states of an
/// LSTM.
pub struct PolicyState<B: Backend = AnyBackend> {
    parts: Vec<Tensor<B>>,
}

impl<B: Backend> PolicyState<B> {
    /// From tensors, each with the batch as its second axis; none for a policy without memory.
    pub fn new(parts: Vec<Tensor<B>>) -> Self {
        Self { parts }
    }

    /// The tensors.
    pub fn parts(&self) -> &[Tensor<B>] {
        &self.parts
    }

    pub(super) fn into_parts(self) -> Vec<Tensor<B>> {
        self.parts
    }

    /// The state with zeros, as at the beginning, in rows where `done [N]` is nonzero (or true), since their episodes
    /// ended.
    ///
    /// # Errors
    /// If `done` does not have one element for each episode of the batch.
    pub fn reset(&self, done: &Tensor<B>) -> Result<Self> {
        if self.parts.is_empty() {
            return Ok(Self::new(Vec::new()));
        }
        if done.rank() != 1 {
            return Err(Error::shape("done must have one element for each episode: [N]")
                .with_op("PolicyState::reset")
                .with_operands([(done.shape(), done.dtype())]));
        }
        let mask = done.ne(0)?.reshape([1, done.numel(), 1])?;
        self.map(|part| {
            if part.rank() != 3 || part.dims()[1] != done.numel() {
                return Err(Error::shape("done has not one element for each episode")
                    .with_op("PolicyState::reset")
                    .with_operands([(part.shape(), part.dtype()), (done.shape(), done.dtype())]));
            }
            part.masked_fill(&mask, 0.0)
        })
    }

    /// The state without its history: no gradients flow back through it.
    #[must_use]
    pub fn detach(&self) -> Self {
        Self::new(self.parts.iter().map(Tensor::detach).collect())
    }

    fn map(&self, f: impl FnMut(&Tensor<B>) -> Result<Tensor<B>>) -> Result<Self> {
        Ok(Self::new(self.parts.iter().map(f).collect::<Result<_>>()?))
    }
}

impl<B: Backend> Clone for PolicyState<B> {
    fn clone(&self) -> Self {
        Self::new(self.parts.clone())
    }
}
