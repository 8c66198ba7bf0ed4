//! From observations to features.

use polygrad_tensor::{Backend, DType, Device, Error, Result, Tensor};

use super::config::{CnnEncoderConfig, EncoderConfig, MlpEncoderConfig};
use crate::models::ActivationFn;
use crate::{Conv2dConfig, Flatten, Init, LSTM, LSTMConfig, LinearConfig, Module, Sequential};

/// The gain of hidden layers, as in CleanRL.
const HIDDEN_GAIN: f64 = std::f64::consts::SQRT_2;

/// All layers but the last.
#[derive(Module)]
pub(super) struct Trunk<B: Backend> {
    network: Sequential<B>,
    lstm: Option<LSTM<B>>,
    /// Of one observation.
    #[module(skip)]
    observation: Vec<usize>,
    scale: f64,
}

/// Layers that are being put behind each other, and the features of the last.
struct Layers<'a, B: Backend> {
    network: Sequential<B>,
    features: usize,
    device: &'a Device<B>,
}

impl<B: Backend> Layers<'_, B> {
    fn linear(mut self, sizes: &[usize], activation: ActivationFn) -> Result<Self> {
        for &size in sizes {
            let layer = LinearConfig::new(self.features, size)
                .init(Init::orthogonal(HIDDEN_GAIN))
                .bias_init(Init::ZEROS);
            self.network = activation.push_to(self.network.push(layer.build(self.device)?));
            self.features = size;
        }
        Ok(self)
    }
}

impl<B: Backend> Trunk<B> {
    /// The trunk, and how many features it gives.
    pub(super) fn new(
        encoder: &EncoderConfig,
        lstm: Option<(usize, usize)>,
        device: &Device<B>,
    ) -> Result<(Self, usize)> {
        let (layers, observation, scale) = match encoder {
            EncoderConfig::Mlp(config) => (mlp(config, device)?, vec![config.observation_size], 1.0),
            EncoderConfig::Cnn(config) => (cnn(config, device)?, config.observation_shape.to_vec(), config.scale),
        };
        let mut features = layers.features;
        let lstm = match lstm {
            None => None,
            Some((hidden_size, num_layers)) => {
                let config = LSTMConfig::new(features, hidden_size).num_layers(num_layers);
                features = hidden_size;
                // As CleanRL has it: each matrix of all four gates as a whole.
                Some(
                    config
                        .init(Init::orthogonal(1.0))
                        .bias_init(Init::ZEROS)
                        .build(device)?,
                )
            }
        };
        let trunk = Self {
            network: layers.network,
            lstm,
            observation,
            scale,
        };
        Ok((trunk, features))
    }

    /// How many tensors of a policy's state belong to it.
    pub(super) fn state_len(&self) -> usize {
        if self.lstm.is_some() { 2 } else { 0 }
    }

    pub(super) fn initial_state(&self, batch: usize) -> Result<Vec<Tensor<B>>> {
        match &self.lstm {
            None => Ok(Vec::new()),
            Some(lstm) => lstm.initial_state(batch).map(|(h, c)| vec![h, c]),
        }
    }

    /// Features `[N, features]`, in the parameters' dtype, and the next state.
    pub(super) fn forward(
        &self,
        observations: &Tensor<B>,
        state: &[Tensor<B>],
        dtype: DType,
    ) -> Result<(Tensor<B>, Vec<Tensor<B>>)> {
        let dims = observations.dims();
        if dims.len() != self.observation.len() + 1 || dims[1..] != self.observation {
            return Err(
                Error::shape(format!("observations must be [N, …] with {:?} each", self.observation))
                    .with_op("policy")
                    .with_operands([(observations.shape(), observations.dtype())])
                    .with_hint("a single observation has N = 1: add it with unsqueeze(0)"),
            );
        }
        let mut x = observations.to_dtype(dtype)?;
        if self.scale != 1.0 {
            x = (x * self.scale)?;
        }
        let x = self.network.forward(&x)?;
        match (&self.lstm, state) {
            (None, _) => Ok((x, Vec::new())),
            (Some(lstm), [h, c]) => {
                let (y, (h, c)) = lstm.forward(&x.unsqueeze(0)?, Some((h.clone(), c.clone())))?;
                Ok((y.squeeze(0)?, vec![h, c]))
            }
            (Some(_), _) => Err(Error::invalid("the state is not one of this policy")
                .with_op("policy")
                .with_hint("begin with initial_state(batch)")),
        }
    }
}

fn mlp<'a, B: Backend>(config: &MlpEncoderConfig, device: &'a Device<B>) -> Result<Layers<'a, B>> {
    let layers = Layers {
        network: Sequential::new(),
        features: config.observation_size,
        device,
    };
    layers.linear(&config.hidden, config.activation)
}

fn cnn<'a, B: Backend>(config: &CnnEncoderConfig, device: &'a Device<B>) -> Result<Layers<'a, B>> {
    let mut network = Sequential::new();
    let [mut channels, mut height, mut width] = config.observation_shape;
    for (i, layer) in config.convolutions.iter().enumerate() {
        let after = |extent: usize| Some(extent.checked_sub(layer.kernel)?.checked_div(layer.stride)? + 1);
        let (Some(below), Some(beside)) = (after(height), after(width)) else {
            let kernel = layer.kernel;
            return Err(Error::invalid(format!(
                "convolution {i}, {kernel}×{kernel} with stride {}, does not fit its input of {height}×{width}",
                layer.stride
            ))
            .with_op("policy")
            .with_hint("take larger images or smaller convolutions"));
        };
        (height, width) = (below, beside);
        let conv = Conv2dConfig::new(channels, layer.channels, layer.kernel)
            .stride(layer.stride)
            .init(Init::orthogonal(HIDDEN_GAIN))
            .bias_init(Init::ZEROS);
        network = config.activation.push_to(network.push(conv.build(device)?));
        channels = layer.channels;
    }
    let layers = Layers {
        network: network.push(Flatten::new()),
        features: channels.saturating_mul(height).saturating_mul(width),
        device,
    };
    layers.linear(&config.hidden, config.activation)
}
