//! The layers from observations to features.

use polygrad_nn::models::ActivationFn;
use polygrad_nn::{Conv2dConfig, Flatten, Init, LayerNorm, LinearConfig, Module, Sequential};
use polygrad_tensor::{Backend, DType, Device, Error, Result, Tensor};

use super::PolicyState;
use super::config::{CnnEncoderConfig, EncoderConfig, MemoryConfig, MlpEncoderConfig};
use super::memory::Memory;

/// The gain of hidden layers, as in CleanRL.
pub(super) const HIDDEN_GAIN: f64 = std::f64::consts::SQRT_2;

/// All layers except the last.
#[derive(Module)]
pub(super) struct Trunk<B: Backend> {
    network: Sequential<B>,
    memory: Option<Memory<B>>,
    /// Shape of one observation.
    #[module(skip)]
    observation: Vec<usize>,
    scale: f64,
}

/// The initial values of the layers' parameters.
#[derive(Clone, Copy)]
pub(super) enum Start {
    /// As in CleanRL's PPO: orthogonal weights, biases of 0.
    Orthogonal,
    /// The layers' own defaults, as in PyTorch.
    Default,
}

/// Layers under construction, one after another, and the features of the last.
struct Layers<'a, B: Backend> {
    network: Sequential<B>,
    features: usize,
    start: Start,
    device: &'a Device<B>,
}

impl<B: Backend> Layers<'_, B> {
    /// Adds layers of these sizes, normalized before each activation if `normalized`.
    fn linear(mut self, sizes: &[usize], normalized: bool, activation: ActivationFn) -> Result<Self> {
        for &size in sizes {
            let mut layer = LinearConfig::new(self.features, size);
            if let Start::Orthogonal = self.start {
                layer = layer.init(Init::orthogonal(HIDDEN_GAIN)).bias_init(Init::ZEROS);
            }
            self.network = self.network.push(layer.build(self.device)?);
            if normalized {
                self.network = self.network.push(LayerNorm::new([size], self.device)?);
            }
            self.network = activation.push_to(self.network);
            self.features = size;
        }
        Ok(self)
    }
}

impl<B: Backend> Trunk<B> {
    /// The trunk, and the number of its features.
    pub(super) fn new(
        encoder: &EncoderConfig,
        memory: Option<MemoryConfig>,
        start: Start,
        device: &Device<B>,
    ) -> Result<(Self, usize)> {
        let (layers, observation, scale) = match encoder {
            EncoderConfig::Mlp(config) => (mlp(config, start, device)?, vec![config.observation_size], 1.0),
            EncoderConfig::Cnn(config) => (
                cnn(config, start, device)?,
                config.observation_shape.to_vec(),
                config.scale,
            ),
        };
        let features = memory.map_or(layers.features, |memory| memory.hidden_size);
        let memory = memory.map(|memory| Memory::new(memory, layers.features, device));
        let trunk = Self {
            network: layers.network,
            memory: memory.transpose()?,
            observation,
            scale,
        };
        Ok((trunk, features))
    }

    /// The number of tensors of a policy's state that belong to it.
    pub(super) fn state_len(&self) -> usize {
        self.memory.as_ref().map_or(0, Memory::state_len)
    }

    pub(super) fn initial_state(&self, batch: usize) -> Result<Vec<Tensor<B>>> {
        self.memory
            .as_ref()
            .map_or_else(|| Ok(Vec::new()), |memory| memory.initial_state(batch))
    }

    /// Features `[N, features]`, in the parameters' dtype, and the next state.
    pub(super) fn forward(
        &self,
        observations: &Tensor<B>,
        state: &[Tensor<B>],
        dtype: DType,
    ) -> Result<(Tensor<B>, Vec<Tensor<B>>)> {
        let x = self.encode(observations, 1, dtype)?;
        match &self.memory {
            None => Ok((x, Vec::new())),
            Some(memory) => memory.step(&x, state),
        }
    }

    /// Features `[T * N, features]` of observations `[T, N, …]`, and the state after the last step.
    pub(super) fn unroll(
        &self,
        observations: &Tensor<B>,
        starts: &Tensor<B>,
        state: &[Tensor<B>],
        dtype: DType,
    ) -> Result<(Tensor<B>, Vec<Tensor<B>>)> {
        let x = self.encode(observations, 2, dtype)?;
        let Some(memory) = &self.memory else {
            return Ok((x, Vec::new()));
        };
        let (steps, rows) = (starts.shape()[0], starts.shape()[1]);
        let x = x.reshape([steps, rows, x.shape()[1]])?;
        let mut state = PolicyState::new(state.to_vec());
        let mut outputs = Vec::with_capacity(steps);
        for (x, starts) in x.unbind(0)?.iter().zip(&starts.unbind(0)?) {
            let (y, next) = memory.step(x, state.reset(starts)?.parts())?;
            outputs.push(y);
            state = PolicyState::new(next);
        }
        let features = Tensor::cat(&outputs.iter().collect::<Vec<_>>(), 0)?;
        Ok((features, state.into_parts()))
    }

    /// The network's output for observations after `axes` batch axes, which are flattened to one.
    fn encode(&self, observations: &Tensor<B>, axes: usize, dtype: DType) -> Result<Tensor<B>> {
        let dims = observations.dims();
        if dims.len() != self.observation.len() + axes || dims[axes..] != self.observation {
            let batch = if axes == 1 { "N" } else { "T, N" };
            return Err(Error::shape(format!(
                "observations must be [{batch}, …] with {:?} each",
                self.observation
            ))
            .with_op("policy")
            .with_operands([(observations.shape(), observations.dtype())])
            .with_hint("a single observation has N = 1: add it with unsqueeze(0)"));
        }
        let mut x = observations.to_dtype(dtype)?;
        if axes > 1 {
            x = x.flatten(0, axes as isize - 1)?;
        }
        if self.scale != 1.0 {
            x = (x * self.scale)?;
        }
        self.network.forward(&x)
    }
}

fn mlp<'a, B: Backend>(config: &MlpEncoderConfig, start: Start, device: &'a Device<B>) -> Result<Layers<'a, B>> {
    let layers = Layers {
        network: Sequential::new(),
        features: config.observation_size,
        start,
        device,
    };
    layers.linear(&config.hidden, config.layer_norm, config.activation)
}

fn cnn<'a, B: Backend>(config: &CnnEncoderConfig, start: Start, device: &'a Device<B>) -> Result<Layers<'a, B>> {
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
        let mut conv = Conv2dConfig::new(channels, layer.channels, layer.kernel).stride(layer.stride);
        if let Start::Orthogonal = start {
            conv = conv.init(Init::orthogonal(HIDDEN_GAIN)).bias_init(Init::ZEROS);
        }
        network = config.activation.push_to(network.push(conv.build(device)?));
        channels = layer.channels;
    }
    let layers = Layers {
        network: network.push(Flatten::new()),
        features: channels.saturating_mul(height).saturating_mul(width),
        start,
        device,
    };
    layers.linear(&config.hidden, false, config.activation)
}
