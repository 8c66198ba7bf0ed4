//! Options of policies.

use serde::{Deserialize, Serialize};

use super::ActionSpace;
use crate::models::{ActivationFn, ModelConfig};

/// A network over observations that are vectors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MlpEncoderConfig {
    /// Numbers in an observation.
    pub observation_size: usize,
    /// Features of each hidden layer. Default: 64 and 64.
    #[serde(default = "two_layers")]
    pub hidden: Vec<usize>,
    /// Behind each layer. Default: tanh.
    #[serde(default = "tanh")]
    pub activation: ActivationFn,
}

impl MlpEncoderConfig {
    /// Two layers of 64 features, with tanh.
    pub fn new(observation_size: usize) -> Self {
        Self {
            observation_size,
            hidden: two_layers(),
            activation: tanh(),
        }
    }
}

/// A convolution of a [`CnnEncoderConfig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConvLayer {
    /// Channels of its output.
    pub channels: usize,
    /// Extent of its window.
    pub kernel: usize,
    /// Step of its window.
    pub stride: usize,
}

/// A network over observations that are images.
///
/// Source of the defaults: Mnih et al., "Human-level control through deep reinforcement learning" (2015).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CnnEncoderConfig {
    /// Channels, height and width of an observation.
    pub observation_shape: [usize; 3],
    /// Convolutions. Default: 32 channels 8×8 with stride 4, 64 channels 4×4 with stride 2, 64 channels 3×3.
    #[serde(default = "nature")]
    pub convolutions: Vec<ConvLayer>,
    /// Features of each linear layer behind them. Default: 512.
    #[serde(default = "one_layer")]
    pub hidden: Vec<usize>,
    /// Behind each layer. Default: ReLU.
    #[serde(default)]
    pub activation: ActivationFn,
    /// What observations are multiplied by. Default: 1/255, for bytes.
    #[serde(default = "bytes")]
    pub scale: f64,
}

impl CnnEncoderConfig {
    /// The network for Atari's 84×84 images, for images of any extents that are large enough.
    pub fn new(observation_shape: [usize; 3]) -> Self {
        Self {
            observation_shape,
            convolutions: nature(),
            hidden: one_layer(),
            activation: ActivationFn::Relu,
            scale: bytes(),
        }
    }
}

/// The network of an [`LstmPolicyConfig`] before the LSTM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EncoderConfig {
    /// Over vectors.
    Mlp(MlpEncoderConfig),
    /// Over images.
    Cnn(CnnEncoderConfig),
}

/// Options of [`MlpPolicy`](super::MlpPolicy).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MlpPolicyConfig {
    /// From observations to features.
    pub encoder: MlpEncoderConfig,
    /// What actions there are.
    pub action: ActionSpace,
    /// Whether actor and critic share all but their last layers. Default: false.
    #[serde(default)]
    pub shared: bool,
}

impl ModelConfig for MlpPolicyConfig {}

impl MlpPolicyConfig {
    /// Two layers of 64 features with tanh, for actor and critic each.
    pub fn new(observation_size: usize, action: ActionSpace) -> Self {
        Self {
            encoder: MlpEncoderConfig::new(observation_size),
            action,
            shared: false,
        }
    }
}

/// Options of [`CnnPolicy`](super::CnnPolicy).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CnnPolicyConfig {
    /// From observations to features.
    pub encoder: CnnEncoderConfig,
    /// What actions there are.
    pub action: ActionSpace,
    /// Whether actor and critic share all but their last layers. Default: true.
    #[serde(default = "yes")]
    pub shared: bool,
}

impl ModelConfig for CnnPolicyConfig {}

impl CnnPolicyConfig {
    /// The network for Atari's images, shared by actor and critic.
    pub fn new(observation_shape: [usize; 3], action: ActionSpace) -> Self {
        Self {
            encoder: CnnEncoderConfig::new(observation_shape),
            action,
            shared: true,
        }
    }
}

/// Options of [`LstmPolicy`](super::LstmPolicy).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LstmPolicyConfig {
    /// From observations to what the LSTM reads.
    pub encoder: EncoderConfig,
    /// Features of the LSTM. Default: 128.
    #[serde(default = "lstm_size")]
    pub hidden_size: usize,
    /// Layers of the LSTM. Default: 1.
    #[serde(default = "lstm_layers")]
    pub num_layers: usize,
    /// What actions there are.
    pub action: ActionSpace,
    /// Whether actor and critic share all but their last layers; otherwise each has an LSTM. Default: true.
    #[serde(default = "yes")]
    pub shared: bool,
}

impl ModelConfig for LstmPolicyConfig {}

impl LstmPolicyConfig {
    /// One LSTM of 128 features behind an encoder, shared by actor and critic.
    pub fn new(encoder: EncoderConfig, action: ActionSpace) -> Self {
        Self {
            encoder,
            hidden_size: lstm_size(),
            num_layers: lstm_layers(),
            action,
            shared: true,
        }
    }
}

fn two_layers() -> Vec<usize> {
    vec![64, 64]
}

fn one_layer() -> Vec<usize> {
    vec![512]
}

fn tanh() -> ActivationFn {
    ActivationFn::Tanh
}

fn nature() -> Vec<ConvLayer> {
    [(32, 8, 4), (64, 4, 2), (64, 3, 1)]
        .map(|(channels, kernel, stride)| ConvLayer {
            channels,
            kernel,
            stride,
        })
        .to_vec()
}

fn bytes() -> f64 {
    1.0 / 255.0
}

fn lstm_size() -> usize {
    128
}

fn lstm_layers() -> usize {
    1
}

fn yes() -> bool {
    true
}

/// What the configs of all policies have: how an [`ActorCritic`](super::ActorCritic) is made. It cannot be implemented outside this crate.
pub trait PolicyConfig: sealed::Sealed + Clone + Send + Sync + 'static {
    /// From observations to features.
    fn encoder(&self) -> EncoderConfig;

    /// Features and layers of the LSTM, if there is one.
    fn lstm(&self) -> Option<(usize, usize)> {
        None
    }

    /// What actions there are.
    fn action(&self) -> ActionSpace;

    /// Whether actor and critic share all but their last layers.
    fn shared(&self) -> bool;
}

impl PolicyConfig for MlpPolicyConfig {
    fn encoder(&self) -> EncoderConfig {
        EncoderConfig::Mlp(self.encoder.clone())
    }

    fn action(&self) -> ActionSpace {
        self.action
    }

    fn shared(&self) -> bool {
        self.shared
    }
}

impl PolicyConfig for CnnPolicyConfig {
    fn encoder(&self) -> EncoderConfig {
        EncoderConfig::Cnn(self.encoder.clone())
    }

    fn action(&self) -> ActionSpace {
        self.action
    }

    fn shared(&self) -> bool {
        self.shared
    }
}

impl PolicyConfig for LstmPolicyConfig {
    fn encoder(&self) -> EncoderConfig {
        self.encoder.clone()
    }

    fn lstm(&self) -> Option<(usize, usize)> {
        Some((self.hidden_size, self.num_layers))
    }

    fn action(&self) -> ActionSpace {
        self.action
    }

    fn shared(&self) -> bool {
        self.shared
    }
}

mod sealed {
    pub trait Sealed {}

    impl Sealed for super::MlpPolicyConfig {}
    impl Sealed for super::CnnPolicyConfig {}
    impl Sealed for super::LstmPolicyConfig {}
}
