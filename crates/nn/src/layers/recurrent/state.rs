//! The state carried from step to step.

use polygrad_tensor::{Backend, Result, Tensor};

use crate::watch::Output;

/// The state of a recurrent layer: the hidden state `h`, a tensor, for RNN and GRU, and `(h, c)`, with the cell state,
/// for LSTM.
pub trait RecurrentState<B: Backend>: Clone + Output<B> {
    /// The hidden state, which is also the output of a step.
    fn hidden(&self) -> &Tensor<B> {
        self.activation()
    }

    /// A state in which every part is this tensor.
    fn filled(part: &Tensor<B>) -> Self;

    /// A state each of whose parts `f` computes from the corresponding parts of other states.
    ///
    /// # Errors
    /// Those of `f`.
    fn merge(states: &[&Self], f: impl FnMut(&[&Tensor<B>]) -> Result<Tensor<B>>) -> Result<Self>;
}

impl<B: Backend> RecurrentState<B> for Tensor<B> {
    fn filled(part: &Tensor<B>) -> Self {
        part.clone()
    }

    fn merge(states: &[&Self], mut f: impl FnMut(&[&Tensor<B>]) -> Result<Tensor<B>>) -> Result<Self> {
        f(states)
    }
}

impl<B: Backend> RecurrentState<B> for (Tensor<B>, Tensor<B>) {
    fn filled(part: &Tensor<B>) -> Self {
        (part.clone(), part.clone())
    }

    fn merge(states: &[&Self], mut f: impl FnMut(&[&Tensor<B>]) -> Result<Tensor<B>>) -> Result<Self> {
        let hidden: Vec<_> = states.iter().map(|state| &state.0).collect();
        let cell: Vec<_> = states.iter().map(|state| &state.1).collect();
        Ok((f(&hidden)?, f(&cell)?))
    }
}
