//! The recurrent layers of a policy.

use polygrad_nn::{GRU, GRUConfig, Init, LSTM, LSTMConfig, MinGRU, MinGRUConfig, Module};
use polygrad_tensor::{Backend, Device, Error, Result, Tensor};

use super::config::{MemoryConfig, MemoryKind};

/// Initial weights are orthogonal, with the matrix of all gates as one, and biases are 0, as in CleanRL.
#[derive(Module)]
pub(super) enum Memory<B: Backend> {
    Lstm(LSTM<B>),
    Gru(GRU<B>),
    /// The layers in order, at least one.
    MinGru(Vec<MinGRU<B>>),
}

impl<B: Backend> Memory<B> {
    pub(super) fn new(config: MemoryConfig, features: usize, device: &Device<B>) -> Result<Self> {
        let MemoryConfig {
            kind,
            hidden_size,
            num_layers,
        } = config;
        let init = Init::orthogonal(1.0);
        match kind {
            MemoryKind::Lstm => {
                let config = LSTMConfig::new(features, hidden_size).num_layers(num_layers);
                config.init(init).bias_init(Init::ZEROS).build(device).map(Self::Lstm)
            }
            MemoryKind::Gru => {
                let config = GRUConfig::new(features, hidden_size).num_layers(num_layers);
                config.init(init).bias_init(Init::ZEROS).build(device).map(Self::Gru)
            }
            MemoryKind::MinGru if num_layers == 0 => {
                Err(Error::invalid("a memory of 0 layers remembers nothing").with_op("policy"))
            }
            MemoryKind::MinGru => {
                let layer = |i: usize| {
                    let config = MinGRUConfig::new(if i == 0 { features } else { hidden_size }, hidden_size);
                    config.init(init).bias_init(Init::ZEROS).build(device)
                };
                (0..num_layers).map(layer).collect::<Result<_>>().map(Self::MinGru)
            }
        }
    }

    /// The number of tensors of its state.
    pub(super) fn state_len(&self) -> usize {
        match self {
            Self::Lstm(_) => 2,
            Self::Gru(_) | Self::MinGru(_) => 1,
        }
    }

    /// Tensors `[layers, batch, hidden_size]`.
    pub(super) fn initial_state(&self, batch: usize) -> Result<Vec<Tensor<B>>> {
        Ok(match self {
            Self::Lstm(lstm) => {
                let (h, c) = lstm.initial_state(batch)?;
                vec![h, c]
            }
            Self::Gru(gru) => vec![gru.initial_state(batch)?],
            Self::MinGru(layers) => {
                let weight = layers[0].linear_z.weight.tensor();
                let shape = [layers.len(), batch, weight.shape()[0]];
                vec![Tensor::zeros(shape, (&weight.device(), weight.dtype()))?]
            }
        })
    }

    /// One step: from features `[N, C]` and a state to outputs `[N, hidden_size]` and the next state.
    pub(super) fn step(&self, x: &Tensor<B>, state: &[Tensor<B>]) -> Result<(Tensor<B>, Vec<Tensor<B>>)> {
        match (self, state) {
            (Self::Lstm(lstm), [h, c]) => {
                let (y, (h, c)) = lstm.forward(&x.unsqueeze(0)?, Some((h.clone(), c.clone())))?;
                Ok((y.squeeze(0)?, vec![h, c]))
            }
            (Self::Gru(gru), [h]) => {
                let (y, h) = gru.forward(&x.unsqueeze(0)?, Some(h.clone()))?;
                Ok((y.squeeze(0)?, vec![h]))
            }
            (Self::MinGru(layers), [h]) if h.dims().first() == Some(&layers.len()) => {
                let mut y = x.clone();
                let mut next = Vec::with_capacity(layers.len());
                for (layer, h) in layers.iter().zip(&h.unbind(0)?) {
                    y = layer.step(&y, h)?;
                    next.push(y.clone());
                }
                Ok((y, vec![Tensor::stack(&next.iter().collect::<Vec<_>>(), 0)?]))
            }
            _ => Err(Error::invalid("the state is not one of this policy")
                .with_op("policy")
                .with_hint("begin with initial_state(batch)")),
        }
    }
}
