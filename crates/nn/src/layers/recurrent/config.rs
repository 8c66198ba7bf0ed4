//! Options of recurrent layers.

use polygrad_tensor::{Backend, Device, Error, Result};

use super::recurrence::{GruGates, LstmGates, Nonlinearity, Recurrence};
use super::stack::Recurrent;
use super::weights::Sizes;
use crate::{Init, Mode};

/// Options of an [`RNN`](super::RNN).
pub type RNNConfig = RecurrentConfig<Nonlinearity>;
/// Options of an [`LSTM`](super::LSTM).
pub type LSTMConfig = RecurrentConfig<LstmGates>;
/// Options of a [`GRU`](super::GRU).
pub type GRUConfig = RecurrentConfig<GruGates>;

/// Options of a recurrent layer.
///
/// ```
/// # use polygrad_nn::{LSTMConfig, Nonlinearity, RNNConfig};
/// let config = LSTMConfig::new(64, 128).num_layers(2).dropout(0.1).batch_first(true).bidirectional(true);
/// let config = RNNConfig::new(64, 128).nonlinearity(Nonlinearity::ReLU);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct RecurrentConfig<K: Recurrence> {
    pub(super) kind: K,
    pub(super) sizes: Sizes,
    pub(super) num_layers: usize,
    pub(super) batch_first: bool,
    pub(super) dropout: f64,
    pub(super) bidirectional: bool,
}

impl<K: Recurrence> RecurrentConfig<K> {
    /// One layer in one direction, with biases, from `input_size` to `hidden_size`.
    pub fn new(input_size: usize, hidden_size: usize) -> Self {
        Self {
            kind: K::default(),
            sizes: Sizes::new(input_size, hidden_size),
            num_layers: 1,
            batch_first: false,
            dropout: 0.0,
            bidirectional: false,
        }
    }

    /// How many layers lie on top of each other, each with the outputs of the one below as its input. Default: 1.
    #[must_use]
    pub fn num_layers(mut self, num_layers: usize) -> Self {
        self.num_layers = num_layers;
        self
    }

    /// Whether there are biases. Default: true.
    #[must_use]
    pub fn bias(mut self, bias: bool) -> Self {
        self.sizes.bias = bias;
        self
    }

    /// Whether input and output are `[N, T, …]` rather than `[T, N, …]`; states are not concerned. Default: false.
    #[must_use]
    pub fn batch_first(mut self, batch_first: bool) -> Self {
        self.batch_first = batch_first;
        self
    }

    /// The probability of [`Dropout`](crate::Dropout) between layers, in training; with one layer there is none. Default: 0.
    #[must_use]
    pub fn dropout(mut self, p: f64) -> Self {
        self.dropout = p;
        self
    }

    /// Whether each layer also reads from the end to the beginning; the outputs of both directions lie side by side. Default: false.
    #[must_use]
    pub fn bidirectional(mut self, bidirectional: bool) -> Self {
        self.bidirectional = bidirectional;
        self
    }

    /// How all weights begin. Default, as in PyTorch: uniform on `±1 / √hidden_size`.
    #[must_use]
    pub fn init(mut self, init: Init) -> Self {
        self.sizes.init = Some(init);
        self
    }

    /// How all biases begin. Default, as in PyTorch: uniform on `±1 / √hidden_size`.
    #[must_use]
    pub fn bias_init(mut self, init: Init) -> Self {
        self.sizes.bias_init = Some(init);
        self
    }

    /// The layer, on a device.
    ///
    /// # Errors
    /// When a size or the number of layers is 0, `dropout` is no probability, or memory runs out.
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
            let below = self.sizes.hidden.saturating_mul(self.directions());
            let sizes = Sizes {
                input: if layer == 0 { self.sizes.input } else { below },
                ..self.sizes
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

    /// 1 or 2.
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
