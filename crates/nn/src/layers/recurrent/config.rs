//! Options of recurrent layers.

use polygrad_tensor::{Backend, Device, Error, Result};

use super::recurrence::{GruGates, LstmGates, Nonlinearity, Recurrence};
use super::stack::Recurrent;
use super::weights::Sizes;
use crate::options::options;
use crate::{Init, Mode};

/// Options of an [`RNN`](super::RNN).
pub type RNNConfig = RecurrentConfig<Nonlinearity>;
/// Options of an [`LSTM`](super::LSTM).
pub type LSTMConfig = RecurrentConfig<LstmGates>;
/// Options of a [`GRU`](super::GRU).
pub type GRUConfig = RecurrentConfig<GruGates>;

options! {
    /// Options of a recurrent layer.
    ///
    /// ```
    /// # use polygrad_nn::{LSTMConfig, Nonlinearity, RNNConfig};
    /// let config = LSTMConfig::new(64, 128).num_layers(2).dropout(0.1).batch_first(true).bidirectional(true);
    /// let config = RNNConfig::new(64, 128).nonlinearity(Nonlinearity::ReLU);
    /// ```
    #[derive(Clone, Copy, Debug)]
    pub struct RecurrentConfig<K: Recurrence> {
        /// One layer in one direction, with biases, from `input_size` to `hidden_size`.
        pub fn new(input_size: usize, hidden_size: usize; kind: K = K::default());
        /// Number of stacked layers, each of which takes the outputs of the one below as its input.
        num_layers: usize = 1;
        /// Whether there are biases.
        bias: bool = true;
        /// Initial weights. Default, as in PyTorch: uniform on `±1 / √hidden_size`.
        init: Option<Init> = None, from |init: Init| Some(init);
        /// Initial biases. Default, as in PyTorch: uniform on `±1 / √hidden_size`.
        bias_init: Option<Init> = None, from |init: Init| Some(init);
        /// Whether input and output are `[N, T, …]` rather than `[T, N, …]`; states are not affected.
        batch_first: bool = false;
        /// The probability of [`Dropout`](crate::Dropout) between layers, in training; without effect for a single
        /// layer.
        dropout: f64 = 0.0;
        /// Whether each layer also reads from the end to the beginning; the outputs of both directions are
        /// concatenated.
        bidirectional: bool = false;
    }
}

impl<K: Recurrence> RecurrentConfig<K> {
    /// The layer, on a device.
    ///
    /// # Errors
    /// When a size or the number of layers is 0, `dropout` is not a probability, or memory runs out.
    #[track_caller]
    pub fn build<B: Backend>(self, device: &Device<B>) -> Result<Recurrent<K, B>> {
        let fail = |e: Error| e.with_op(K::LAYER);
        if self.num_layers == 0 {
            return Err(fail(Error::invalid("num_layers must be at least 1")));
        }
        if !(0.0..=1.0).contains(&self.dropout) {
            return Err(fail(Error::invalid(format!(
                "dropout = {:?} is no probability",
                self.dropout
            ))));
        }
        let mut weights = Vec::new();
        for layer in 0..self.num_layers {
            let below = self.hidden_size.saturating_mul(self.directions());
            let sizes = Sizes {
                input: if layer == 0 { self.input_size } else { below },
                hidden: self.hidden_size,
                bias: self.bias,
                init: self.init,
                bias_init: self.bias_init,
            };
            for _ in 0..self.directions() {
                weights.push(sizes.build::<K, B>(device).map_err(fail)?);
            }
        }
        Ok(Recurrent {
            weights,
            config: self,
            mode: Mode::default(),
        })
    }

    /// Number of directions, 1 or 2.
    pub(super) fn directions(&self) -> usize {
        1 + usize::from(self.bidirectional)
    }
}

impl RecurrentConfig<Nonlinearity> {
    /// The activation. Default: tanh.
    #[must_use]
    pub fn nonlinearity(mut self, nonlinearity: Nonlinearity) -> Self {
        self.kind = nonlinearity;
        self
    }
}
