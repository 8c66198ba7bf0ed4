//! Networks that estimate the value of each action.

use polygrad_nn::{Init, Linear, LinearConfig, Module, watch};
use polygrad_tensor::{AnyBackend, Backend, Device, Error, Result, Tensor};

use super::config::EncoderConfig;
use super::trunk::{HIDDEN_GAIN, Start, Trunk};
use super::{ActionParams, Policy, PolicyOutput, PolicyState};

/// The value of each action: from observations `[N, …]` to `[N, actions]`. Parameters are `trunk.network.0.weight`, …,
/// `advantage.weight` and in a dueling network `value.weight`. Their initial values are those of PyTorch's layers.
///
/// A dueling network computes `value + advantage − mean(advantage)`.
///
/// As a policy it takes the action of the greatest value. If actions are sampled, their probabilities are the
/// [`softmax`](Tensor::softmax) of the values.
///
/// Sources: Mnih et al., "Human-level control through deep reinforcement learning" (2015); Wang et al., "Dueling
/// network architectures for deep reinforcement learning" (2016).
#[derive(Module)]
pub struct QNetwork<B: Backend = AnyBackend> {
    trunk: Trunk<B>,
    /// From features to a number for each action.
    pub advantage: Linear<B>,
    /// From features to the value of the state, in a dueling network.
    pub value: Option<Linear<B>>,
}

impl<B: Backend> QNetwork<B> {
    /// A network with new parameters, for this number of actions.
    ///
    /// # Errors
    /// If there are no actions, a size is 0, convolutions do not fit the images, or memory runs out.
    pub fn new(encoder: &EncoderConfig, actions: usize, dueling: bool, device: &Device<B>) -> Result<Self> {
        Self::started(encoder, actions, dueling, Start::Default, device)
    }

    /// The same, not dueling, with the initial values of CleanRL's `pqn.py`: orthogonal weights, and biases of 0.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    pub fn orthogonal(encoder: &EncoderConfig, actions: usize, device: &Device<B>) -> Result<Self> {
        Self::started(encoder, actions, false, Start::Orthogonal, device)
    }

    fn started(
        encoder: &EncoderConfig,
        actions: usize,
        dueling: bool,
        start: Start,
        device: &Device<B>,
    ) -> Result<Self> {
        if actions == 0 {
            return Err(Error::invalid("there are no actions").with_op("QNetwork"));
        }
        let (trunk, features) = Trunk::new(encoder, None, start, device)?;
        let head = |outputs: usize| {
            let layer = LinearConfig::new(features, outputs);
            match start {
                Start::Default => layer.build(device),
                Start::Orthogonal => layer
                    .init(Init::orthogonal(HIDDEN_GAIN))
                    .bias_init(Init::ZEROS)
                    .build(device),
            }
        };
        Ok(Self {
            trunk,
            advantage: head(actions)?,
            value: dueling.then(|| head(1)).transpose()?,
        })
    }

    /// The value of each action in each state.
    ///
    /// # Errors
    /// If the observations' shape or device do not fit.
    pub fn values(&self, observations: &Tensor<B>) -> Result<Tensor<B>> {
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
    }
}

impl<B: Backend> AsRef<Self> for QNetwork<B> {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl<B: Backend> Policy<B> for QNetwork<B> {
    fn initial_state(&self, _batch: usize) -> Result<PolicyState<B>> {
        Ok(PolicyState::new(Vec::new()))
    }

    fn forward(&self, observations: &Tensor<B>, _state: &PolicyState<B>) -> Result<PolicyOutput<B>> {
        watch::layer(self, observations, || {
            Ok(PolicyOutput {
                action: ActionParams::Categorical(self.values(observations)?),
                value: None,
                noise: None,
                state: PolicyState::new(Vec::new()),
            })
        })
    }
}
