//! Options of policies.

use polygrad_nn::models::{ActivationFn, ModelConfig};
use polygrad_tensor::{Error, Result};
use serde::{Deserialize, Serialize};

use super::ActionSpace;

/// A network for vector observations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MlpEncoderConfig {
    /// Numbers in an observation.
    pub observation_size: usize,
    /// Features of each hidden layer. Default: 64 and 64.
    #[serde(default = "two_layers")]
    pub hidden: Vec<usize>,
    /// After each layer. Default: tanh.
    #[serde(default = "tanh")]
    pub activation: ActivationFn,
    /// Whether features are normalized before each activation, by a [`LayerNorm`](polygrad_nn::LayerNorm). Default: no.
    #[serde(default)]
    pub layer_norm: bool,
}

impl MlpEncoderConfig {
    /// Two layers of 64 features, with tanh.
    pub fn new(observation_size: usize) -> Self {
        Self {
            observation_size,
            hidden: two_layers(),
            activation: tanh(),
            layer_norm: false,
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

/// A network for image observations.
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
    /// Features of each linear layer after them. Default: 512.
    #[serde(default = "one_layer")]
    pub hidden: Vec<usize>,
    /// After each layer. Default: ReLU.
    #[serde(default)]
    pub activation: ActivationFn,
    /// The factor applied to observations. Default: 1/255, for bytes.
    #[serde(default = "bytes")]
    pub scale: f64,
}

impl CnnEncoderConfig {
    /// The least height and width of images that [`new`](Self::new)'s network takes.
    pub const LEAST_IMAGE: usize = 36;

    /// The network for Atari's 84×84 images, for all image sizes that are large enough.
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

/// The network from observations to features.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EncoderConfig {
    /// For vectors.
    Mlp(MlpEncoderConfig),
    /// For images.
    Cnn(CnnEncoderConfig),
}

/// The kind of recurrent layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemoryKind {
    /// [`LSTM`](polygrad_nn::LSTM).
    Lstm,
    /// [`GRU`](polygrad_nn::GRU).
    Gru,
    /// [`MinGRU`](polygrad_nn::MinGRU).
    MinGru,
}

/// The recurrent layers between the encoder and the heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryConfig {
    /// The kind of layer.
    pub kind: MemoryKind,
    /// Features of each layer. Default: 128.
    #[serde(default = "memory_size")]
    pub hidden_size: usize,
    /// The number of layers. Default: 1.
    #[serde(default = "memory_layers")]
    pub num_layers: usize,
}

impl MemoryConfig {
    /// One layer of this size.
    pub const fn new(kind: MemoryKind, hidden_size: usize) -> Self {
        Self {
            kind,
            hidden_size,
            num_layers: 1,
        }
    }
}

/// Options of [`ActorCritic`](super::ActorCritic).
///
/// ```
/// use polygrad_rl::{ActionSpace, MemoryConfig, MemoryKind, PolicyConfig};
///
/// let config = PolicyConfig::mlp(4, ActionSpace::Discrete(2));
/// let with_memory = PolicyConfig {
///     memory: Some(MemoryConfig::new(MemoryKind::Lstm, 64)),
///     shared: true,
///     ..config
/// };
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyConfig {
    /// From observations to features.
    pub encoder: EncoderConfig,
    /// The memory of earlier observations. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryConfig>,
    /// The action space.
    pub action: ActionSpace,
    /// Whether actor and critic share all but their last layers. Default: false.
    #[serde(default)]
    pub shared: bool,
    /// Whether the standard deviation of continuous actions depends on the observation. Default: false, a separate
    /// parameter.
    #[serde(default)]
    pub state_dependent_std: bool,
    /// Whether weights begin orthogonal and biases as 0, as in CleanRL; otherwise as the layers' own defaults, as with
    /// Stable-Baselines3's `ortho_init=False`. Memory always begins orthogonal. Default: true.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    pub ortho_init: bool,
}

fn yes() -> bool {
    true
}

impl ModelConfig for PolicyConfig {}

impl PolicyConfig {
    /// For vector observations: two layers of 64 features with tanh, for actor and critic each.
    pub fn mlp(observation_size: usize, action: ActionSpace) -> Self {
        Self::new(EncoderConfig::Mlp(MlpEncoderConfig::new(observation_size)), action)
    }

    /// For image observations of channels, height and width: the network for Atari, shared by actor and critic.
    pub fn cnn(observation_shape: [usize; 3], action: ActionSpace) -> Self {
        Self {
            shared: true,
            ..Self::new(EncoderConfig::Cnn(CnnEncoderConfig::new(observation_shape)), action)
        }
    }

    /// Fails unless such a policy can explore by noise that depends on the state.
    pub(crate) fn check_sde(&self) -> Result<()> {
        if matches!(self.action, ActionSpace::Continuous(_)) && !self.state_dependent_std {
            return Ok(());
        }
        let what = "state-dependent exploration is for continuous actions without state_dependent_std";
        Err(Error::invalid(what).with_op("policy").with_hint("set use_sde=false"))
    }

    /// Without memory, and with a network for actor and critic each.
    pub fn new(encoder: EncoderConfig, action: ActionSpace) -> Self {
        Self {
            encoder,
            memory: None,
            action,
            shared: false,
            state_dependent_std: false,
            ortho_init: true,
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

fn memory_size() -> usize {
    128
}

fn memory_layers() -> usize {
    1
}
