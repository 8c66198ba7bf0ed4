//! Networks that say what each action is worth.

use polygrad_nn::models::ModelConfig;
use polygrad_nn::{Init, Linear, LinearConfig, Module, watch};
use polygrad_tensor::{AnyBackend, Backend, Device, Error, Result, Tensor};
use serde::{Deserialize, Serialize};

use super::config::EncoderConfig;
use super::trunk::Trunk;

/// Options of [`QNetwork`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QNetworkConfig {
    /// From observations to features.
    pub encoder: EncoderConfig,
    /// How many actions there are.
    pub actions: usize,
    /// Whether the value of the state and the advantages of actions are computed apart. Default: false.
    #[serde(default)]
    pub dueling: bool,
}

impl ModelConfig for QNetworkConfig {}

/// The value of each action: from observations `[N, …]` to `[N, actions]`. Parameters are `trunk.network.0.weight`, …,
/// `advantage.weight` and in a dueling network `value.weight`.
///
/// A dueling network computes `value + advantage − mean(advantage)`.
///
/// Sources: Mnih et al., "Human-level control through deep reinforcement learning" (2015); Wang et al., "Dueling
/// network architectures for deep reinforcement learning" (2016).
#[derive(Module)]
#[module(forward)]
pub struct QNetwork<B: Backend = AnyBackend> {
    trunk: Trunk<B>,
    /// From features to a number for each action.
    pub advantage: Linear<B>,
    /// From features to the value of the state, in a dueling network.
    pub value: Option<Linear<B>>,
}

impl<B: Backend> QNetwork<B> {
    /// A network with fresh parameters.
    ///
    /// # Errors
    /// When there are no actions, a size is 0, convolutions do not fit the images, or memory runs out.
    pub fn new(config: &QNetworkConfig, device: &Device<B>) -> Result<Self> {
        if config.actions == 0 {
            return Err(Error::invalid("there are no actions").with_op("QNetwork"));
        }
        let (trunk, features) = Trunk::new(&config.encoder, None, device)?;
        let head = |outputs: usize| {
            let config = LinearConfig::new(features, outputs);
            config.init(Init::orthogonal(1.0)).bias_init(Init::ZEROS).build(device)
        };
        Ok(Self {
            trunk,
            advantage: head(config.actions)?,
            value: config.dueling.then(|| head(1)).transpose()?,
        })
    }

    /// The value of each action in each state.
    ///
    /// # Errors
    /// When the observations' shape or device do not fit.
    pub fn forward(&self, observations: &Tensor<B>) -> Result<Tensor<B>> {
        watch::layer(self, observations, || {
            let dtype = self.advantage.weight.dtype();
            let (features, _) = self.trunk.forward(observations, &[], dtype)?;
            let advantage = self.advantage.forward(&features)?;
            match &self.value {
                None => Ok(advantage),
                Some(value) => {
                    let centred = advantage.sub(&advantage.mean_keepdim(1)?)?;
                    value.forward(&features)?.add(&centred)
                }
            }
        })
    }
}
