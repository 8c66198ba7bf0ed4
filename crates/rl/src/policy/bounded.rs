//! Policies with bounded continuous actions, and networks that estimate the values of such actions.

use std::f64::consts::TAU;

use polygrad_nn::{Buffer, Linear, LinearConfig, Module, Param, watch};
use polygrad_tensor::{AnyBackend, Backend, Device, Error, Result, Tensor};

use super::config::{EncoderConfig, MlpEncoderConfig};
use super::sde::{StateDependentNoise, log_std_param};
use super::trunk::{Start, Trunk};
use super::{ActionParams, Policy, PolicyOutput, PolicyState};

/// Bounds of the logarithm of a standard deviation, enforced by tanh.
const LOG_STD: (f64, f64) = (-5.0, 2.0);

/// The most that a mean is from 0 before tanh, with state-dependent exploration: Stable-Baselines3's `clip_mean`.
const MOST: f64 = 2.0;

/// Keeps the logarithm finite where an action is at its bound.
const AT_BOUND: f64 = 1e-6;

/// A policy with bounded continuous actions: `tanh(x) · scale + middle`, where `x` is the mean or, when SAC trains it,
/// a sample with a standard deviation that depends on the observation.
///
/// As a [`Policy`](crate::Policy) it takes the action of the mean. Parameters are `trunk.network.0.weight`, …,
/// `mean.weight`, and `log_std.weight` if it can sample; their initial values are those of PyTorch's layers. The bounds
/// are buffers, `scale` and `middle`.
///
/// Source: Haarnoja et al., "Soft actor-critic algorithms and applications" (2018).
#[derive(Module)]
pub struct BoundedPolicy<B: Backend = AnyBackend> {
    trunk: Trunk<B>,
    /// From features to means before tanh.
    pub mean: Linear<B>,
    /// From features to standard deviations before tanh: their logarithms, before these are brought from −5 to 2. None
    /// of a policy that draws nothing, or by state-dependent exploration.
    pub log_std: Option<Linear<B>>,
    /// Of state-dependent exploration: the logarithms of the standard deviations of the noise's matrix, `[features,
    /// actions]`.
    pub sde_log_std: Option<Param<B>>,
    /// Half of what is between the bounds, `[actions]`.
    pub scale: Buffer<B>,
    /// The middle of the bounds, `[actions]`.
    pub middle: Buffer<B>,
}

impl<B: Backend> BoundedPolicy<B> {
    /// A policy with new parameters whose actions are `actions` numbers from −1 to 1; with `draws` it can sample them.
    ///
    /// # Errors
    /// If there are no actions, a size is 0, or memory runs out.
    pub fn new(encoder: &MlpEncoderConfig, actions: usize, draws: bool, device: &Device<B>) -> Result<Self> {
        if actions == 0 {
            return Err(Error::invalid("there are no actions").with_op("BoundedPolicy"));
        }
        let (trunk, features) = Trunk::new(&EncoderConfig::Mlp(encoder.clone()), None, Start::Default, device)?;
        let head = || LinearConfig::new(features, actions).build(device);
        Ok(Self {
            trunk,
            mean: head()?,
            log_std: draws.then(head).transpose()?,
            sde_log_std: None,
            scale: Buffer::new(&Tensor::ones([actions], device)?),
            middle: Buffer::new(&Tensor::zeros([actions], device)?),
        })
    }

    /// Draws actions by [state-dependent exploration](StateDependentNoise), whose gradient reaches the features.
    /// `log_std_init` is the logarithm of the initial standard deviations of the noise's matrix. Means are clipped to
    /// −2 to 2 before tanh.
    ///
    /// # Errors
    /// When `log_std_init` is NaN or infinite, or memory runs out.
    pub fn use_sde(mut self, log_std_init: f64) -> Result<Self> {
        let weight = &self.mean.weight;
        let size = [weight.shape()[1], weight.shape()[0]];
        self.sde_log_std = Some(log_std_param(size, log_std_init, &weight.device())?);
        self.log_std = None;
        Ok(self)
    }

    /// The shape of the noise that draws actions for `rows` rows: `[rows, actions]`, or with state-dependent
    /// exploration `[features, actions]`.
    pub fn noise_shape(&self, rows: usize) -> [usize; 2] {
        let weight = self.mean.weight.shape();
        match self.sde_log_std {
            Some(_) => [weight[1], weight[0]],
            None => [rows, weight[0]],
        }
    }

    /// Sets the bounds of the actions.
    ///
    /// # Errors
    /// If their number is not that of the actions, or one is infinite.
    pub fn set_bounds(&self, low: &[f32], high: &[f32]) -> Result<()> {
        let size = self.scale.tensor().numel();
        if low.len() != size || high.len() != size {
            let text = format!("{} and {} bounds for {size} numbers", low.len(), high.len());
            return Err(Error::shape(text).with_op("BoundedPolicy"));
        }
        if !low.iter().chain(high).all(|bound| bound.is_finite()) {
            return Err(Error::invalid("an action has no bounds")
                .with_op("BoundedPolicy")
                .with_hint("give the action space a finite low and high, or take PPO"));
        }
        for (buffer, sign) in [(&self.scale, -1.0), (&self.middle, 1.0)] {
            let old = buffer.tensor();
            let values = low.iter().zip(high).map(|(low, high)| 0.5 * (high + sign * low));
            let values = Tensor::from_vec(values.collect(), [size], &old.device())?;
            buffer.set(&values.to_dtype(old.dtype())?)?;
        }
        Ok(())
    }

    /// The actions at the means, `[N, actions]`.
    ///
    /// # Errors
    /// If the observations' shape or device do not fit.
    pub fn action(&self, observations: &Tensor<B>) -> Result<Tensor<B>> {
        self.within_bounds(&self.mean_before(&self.features(observations)?)?.tanh()?)
    }

    fn features(&self, observations: &Tensor<B>) -> Result<Tensor<B>> {
        let (features, _) = self.trunk.forward(observations, &[], self.mean.weight.dtype())?;
        Ok(features)
    }

    /// The means before tanh.
    fn mean_before(&self, features: &Tensor<B>) -> Result<Tensor<B>> {
        let mean = self.mean.forward(features)?;
        match &self.sde_log_std {
            Some(_) => mean.clamp(Some(-MOST), Some(MOST)),
            None => Ok(mean),
        }
    }

    fn within_bounds(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        x.mul(self.scale.tensor())?.add(self.middle.tensor())
    }

    /// Actions `[N, actions]` that are drawn by `noise`, numbers of the standard normal distribution of the
    /// [shape](Self::noise_shape) that it has for `N` rows, and the logarithms of their probability densities `[N]`;
    /// with gradients for the parameters.
    ///
    /// # Errors
    /// Those of [`BoundedPolicy::action`]; if the policy cannot sample.
    pub fn draw(&self, observations: &Tensor<B>, noise: &Tensor<B>) -> Result<(Tensor<B>, Tensor<B>)> {
        let features = self.features(observations)?;
        let noise = noise.to_dtype(features.dtype())?;
        let (apart, before) = match (&self.log_std, self.state_dependent(&features)) {
            (_, Some(own)) => {
                let (apart, variance) = (own.noise(&noise)?, own.variance()?);
                let before = apart.square()?.div(&variance)?.add(&variance.log()?)?.mul(-0.5)?;
                (apart, before)
            }
            (Some(log_std), None) => {
                let (low, high) = LOG_STD;
                let log_std = log_std.forward(&features)?.tanh()?;
                let log_std = log_std.mul(0.5 * (high - low))?.add(0.5 * (high + low))?;
                let before = noise.square()?.mul(-0.5)?.sub(&log_std)?;
                (log_std.exp()?.mul(&noise)?, before)
            }
            (None, None) => return Err(Error::invalid("this policy draws no actions").with_op("BoundedPolicy")),
        };
        let squashed = self.mean_before(&features)?.add(&apart)?.tanh()?;
        let slope = squashed.square()?.neg()?.add(1.0)?;
        // CleanRL's, and Stable-Baselines3's.
        let slope = match &self.sde_log_std {
            None => slope.mul(self.scale.tensor())?.add(AT_BOUND)?,
            Some(_) => slope.add(AT_BOUND)?.mul(self.scale.tensor())?,
        };
        let log_prob = before.sub(0.5 * TAU.ln())?.sub(&slope.log()?)?.sum(1)?;
        Ok((self.within_bounds(&squashed)?, log_prob))
    }

    /// The noise that depends on the state, if the policy explores by it.
    fn state_dependent(&self, features: &Tensor<B>) -> Option<StateDependentNoise<B>> {
        let log_std = self.sde_log_std.as_ref()?.tensor();
        Some(StateDependentNoise {
            features: features.clone(),
            log_std,
        })
    }

    /// A matrix of state-dependent exploration for each of `rows` rows, `[rows, features, actions]`, without gradients.
    /// `normal` has a number of the standard normal distribution for each element.
    ///
    /// # Errors
    /// When the policy has no state-dependent exploration, or `normal` has another number of elements.
    pub fn noise_matrices(&self, normal: &Tensor<B>, rows: usize) -> Result<Tensor<B>> {
        let Some(log_std) = &self.sde_log_std else {
            return Err(Error::invalid("this policy has no state-dependent exploration").with_op("BoundedPolicy"));
        };
        let [features, actions] = self.noise_shape(rows);
        let std = log_std.tensor().detach().exp()?;
        normal.reshape([rows, features, actions])?.mul(&std)
    }

    /// Actions `[N, actions]` with the noise of [matrices](Self::noise_matrices), one for each row.
    ///
    /// # Errors
    /// As [`BoundedPolicy::action`]; when shapes do not fit.
    pub fn explore(&self, observations: &Tensor<B>, matrices: &Tensor<B>) -> Result<Tensor<B>> {
        let features = self.features(observations)?;
        let noise = features.unsqueeze(1)?.matmul(matrices)?.squeeze(1)?;
        self.within_bounds(&self.mean_before(&features)?.add(&noise)?.tanh()?)
    }
}

impl<B: Backend> Policy<B> for BoundedPolicy<B> {
    fn initial_state(&self, _batch: usize) -> Result<PolicyState<B>> {
        Ok(PolicyState::new(Vec::new()))
    }

    fn forward(&self, observations: &Tensor<B>, _state: &PolicyState<B>) -> Result<PolicyOutput<B>> {
        watch::layer(self, observations, || {
            Ok(PolicyOutput {
                action: ActionParams::Deterministic(self.action(observations)?),
                value: None,
                noise: None,
                state: PolicyState::new(Vec::new()),
            })
        })
    }
}

/// The value of continuous actions: from observations `[N, observation]` and actions `[N, actions]` to `[N]`.
/// Parameters are `trunk.network.0.weight`, … and `value.weight`; their initial values are those of PyTorch's layers.
#[derive(Module)]
pub struct ActionValue<B: Backend = AnyBackend> {
    trunk: Trunk<B>,
    /// From features to the value.
    pub value: Linear<B>,
}

impl<B: Backend> ActionValue<B> {
    /// A network with new parameters, whose layers are as wide as a policy's.
    ///
    /// # Errors
    /// If a size is 0, or memory runs out.
    pub fn new(encoder: &MlpEncoderConfig, actions: usize, device: &Device<B>) -> Result<Self> {
        let encoder = MlpEncoderConfig {
            observation_size: encoder.observation_size.saturating_add(actions),
            ..encoder.clone()
        };
        let (trunk, features) = Trunk::new(&EncoderConfig::Mlp(encoder), None, Start::Default, device)?;
        Ok(Self {
            trunk,
            value: LinearConfig::new(features, 1).build(device)?,
        })
    }

    /// The value of each action.
    ///
    /// # Errors
    /// If shapes or devices do not fit.
    pub fn values(&self, observations: &Tensor<B>, actions: &Tensor<B>) -> Result<Tensor<B>> {
        self.values_of(&self.joined(observations, actions)?)
    }

    /// Observations and actions side by side, as [`values_of`](Self::values_of) takes them.
    pub(crate) fn joined(&self, observations: &Tensor<B>, actions: &Tensor<B>) -> Result<Tensor<B>> {
        let dtype = self.value.weight.dtype();
        Tensor::cat(&[observations.to_dtype(dtype)?, actions.to_dtype(dtype)?], 1)
    }

    /// The values of observations and actions that are joined already.
    pub(crate) fn values_of(&self, both: &Tensor<B>) -> Result<Tensor<B>> {
        let (features, _) = self.trunk.forward(both, &[], self.value.weight.dtype())?;
        self.value.forward(&features)?.squeeze(1)
    }
}
