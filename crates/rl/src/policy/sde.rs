//! Generalized state-dependent exploration (gSDE).

use polygrad_nn::Param;
use polygrad_tensor::{AnyBackend, Backend, Device, Error, Result, Tensor};

/// Keeps the standard deviation of an action above 0, as in Stable-Baselines3.
const EPSILON: f64 = 1e-6;

/// Noise that depends on the state: features times a matrix of normal numbers, which stays the same for many steps, so
/// that the same state gives the same noise.
///
/// It is Stable-Baselines3's `StateDependentNoiseDistribution` with its `full_std`, and without `use_expln`.
///
/// Source: Raffin et al., "Smooth exploration for robotic reinforcement learning" (2021).
#[derive(Clone)]
pub struct StateDependentNoise<B: Backend = AnyBackend> {
    /// The last features before the actions' means, `[N, features]`.
    pub features: Tensor<B>,
    /// The logarithms of the standard deviations of the matrix's numbers, `[features, actions]`.
    pub log_std: Tensor<B>,
}

impl<B: Backend> StateDependentNoise<B> {
    /// The logarithms of the standard deviations of the noise `[N, actions]`, over all matrices: the actions'
    /// distribution is normal, with these.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn action_log_std(&self) -> Result<Tensor<B>> {
        self.variance()?.log()?.mul(0.5)
    }

    /// The same as variances.
    pub(super) fn variance(&self) -> Result<Tensor<B>> {
        let weights = self.log_std.mul(2.0)?.exp()?;
        self.features.square()?.matmul(&weights)?.add(EPSILON)
    }

    /// The noise `[N, actions]` of one matrix for all rows: `normal` are numbers of the standard normal distribution,
    /// `[features, actions]`.
    ///
    /// # Errors
    /// When shapes or devices do not fit.
    pub fn noise(&self, normal: &Tensor<B>) -> Result<Tensor<B>> {
        self.features.matmul(&self.log_std.exp()?.mul(normal)?)
    }
}

/// Settings of state-dependent exploration, which PPO and SAC have under the same names.
pub(crate) struct StateDependent {
    pub(crate) use_sde: bool,
    pub(crate) sample_freq: i64,
    /// What is set, and what it is if nothing is said.
    pub(crate) log_std_init: (f64, f64),
}

impl StateDependent {
    /// Fails if a setting is out of range, or means nothing without `use_sde`.
    pub(crate) fn check(&self) -> Result<()> {
        let wrong = |what: &'static str| Err(Error::invalid(what));
        let (init, default) = self.log_std_init;
        if !init.is_finite() {
            return wrong("log_std_init is not a number");
        }
        if self.sample_freq != -1 && self.sample_freq < 1 {
            return wrong("sde_sample_freq is neither at least 1 nor -1");
        }
        if !self.use_sde && (self.sample_freq != -1 || init != default) {
            let error = Error::invalid("sde_sample_freq and log_std_init mean nothing without use_sde");
            return Err(error.with_hint("set use_sde=true, or leave both as they are"));
        }
        Ok(())
    }

    /// Whether other noise is drawn at a step of a rollout.
    pub(crate) fn renews(step: usize, sample_freq: i64) -> bool {
        let freq = usize::try_from(sample_freq).unwrap_or(0);
        step == 0 || (freq > 0 && step.is_multiple_of(freq))
    }
}

/// Standard deviations for features and actions, all of which have this logarithm.
pub(super) fn log_std_param<B: Backend>(
    [features, actions]: [usize; 2],
    init: f64,
    device: &Device<B>,
) -> Result<Param<B>> {
    if !init.is_finite() {
        return Err(Error::invalid("log_std_init is not a number").with_op("policy"));
    }
    Param::new(Tensor::full([features, actions], init as f32, device)?)
}
