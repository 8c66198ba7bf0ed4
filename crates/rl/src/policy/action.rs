//! Action spaces of policies, and distributions over actions.

use std::sync::Arc;

use polygrad_nn::distributions::{Bernoulli, Categorical, Distribution, Independent, MultiDiscrete, Normal};
use polygrad_tensor::{AnyBackend, Backend, DType, Error, Result, Tensor};
use serde::{Deserialize, Serialize};

use crate::Space;

/// The actions that a policy chooses among.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActionSpace {
    /// One of this number of actions.
    Discrete(usize),
    /// Several choices at once, with these numbers of values.
    MultiDiscrete(Vec<usize>),
    /// This number of values that are 0 or 1.
    MultiBinary(usize),
    /// A vector of this length.
    Continuous(usize),
}

impl ActionSpace {
    /// The number of an actor's outputs for this space.
    pub fn outputs(&self) -> usize {
        match self {
            Self::Discrete(n) | Self::MultiBinary(n) | Self::Continuous(n) => *n,
            Self::MultiDiscrete(nvec) => nvec.iter().fold(0, |sum, n| sum.saturating_add(*n)),
        }
    }

    /// The length of an action vector.
    pub fn len(&self) -> usize {
        match self {
            Self::Discrete(_) => 1,
            Self::MultiDiscrete(nvec) => nvec.len(),
            Self::MultiBinary(n) | Self::Continuous(n) => *n,
        }
    }

    /// Whether an action has length 0, so that there is nothing to choose.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn check(&self) -> Result<()> {
        let some = match self {
            Self::MultiDiscrete(nvec) => !nvec.is_empty() && nvec.iter().all(|n| *n > 0),
            _ => self.outputs() > 0,
        };
        match some {
            true => Ok(()),
            false => Err(Error::invalid("there are no actions").with_op("policy")),
        }
    }
}

impl From<&Space> for ActionSpace {
    /// Choices are counted from 0, regardless of where the space begins.
    fn from(space: &Space) -> Self {
        match space {
            Space::Discrete { n, .. } => Self::Discrete(*n),
            Space::MultiDiscrete { nvec, .. } => Self::MultiDiscrete(nvec.clone()),
            Space::MultiBinary { n } => Self::MultiBinary(*n),
            Space::Box { low, .. } => Self::Continuous(low.len()),
        }
    }
}

/// The parameters of a distribution over actions, for each observation of a batch.
#[derive(Clone, Debug)]
pub enum ActionParams<B: Backend = AnyBackend> {
    /// Of [`ActionSpace::Discrete`]: unnormalized logarithms of probabilities, `[N, n]`.
    Categorical(Tensor<B>),
    /// Of [`ActionSpace::MultiDiscrete`]: the same for all choices one after another, `[N, sum of nvec]`, and the
    /// number of values of each choice.
    MultiDiscrete(Tensor<B>, Arc<[usize]>),
    /// Of [`ActionSpace::MultiBinary`]: the logarithms of odds, `[N, n]`.
    Bernoulli(Tensor<B>),
    /// Of [`ActionSpace::Continuous`]: independent normal distributions.
    Normal {
        /// `[N, size]`.
        mean: Tensor<B>,
        /// The logarithm of the standard deviation: `[N, size]`, or `[size]` if it does not depend on the observation.
        log_std: Tensor<B>,
    },
    /// Of [`ActionSpace::Continuous`] without sampling: the actions, `[N, size]`.
    Deterministic(Tensor<B>),
}

impl<B: Backend> ActionParams<B> {
    /// Logits or means; without sampling, the actions.
    pub fn output(&self) -> &Tensor<B> {
        match self {
            Self::Categorical(x)
            | Self::MultiDiscrete(x, _)
            | Self::Bernoulli(x)
            | Self::Normal { mean: x, .. }
            | Self::Deterministic(x) => x,
        }
    }

    /// The space of these actions.
    pub fn space(&self) -> ActionSpace {
        let outputs = self.output().dims().last().copied().unwrap_or(0);
        match self {
            Self::Categorical(_) => ActionSpace::Discrete(outputs),
            Self::MultiDiscrete(_, nvec) => ActionSpace::MultiDiscrete(nvec.to_vec()),
            Self::Bernoulli(_) => ActionSpace::MultiBinary(outputs),
            Self::Normal { .. } | Self::Deterministic(_) => ActionSpace::Continuous(outputs),
        }
    }

    /// The logarithms of standard deviations, for continuous actions that are sampled.
    pub fn log_std(&self) -> Option<&Tensor<B>> {
        match self {
            Self::Normal { log_std, .. } => Some(log_std),
            _ => None,
        }
    }

    /// The same parameters, with `f` applied to the tensors that have a batch axis.
    pub(super) fn map(self, f: impl Fn(&Tensor<B>) -> Result<Tensor<B>>) -> Result<Self> {
        Ok(match self {
            Self::Categorical(logits) => Self::Categorical(f(&logits)?),
            Self::MultiDiscrete(logits, nvec) => Self::MultiDiscrete(f(&logits)?, nvec),
            Self::Bernoulli(logits) => Self::Bernoulli(f(&logits)?),
            Self::Deterministic(actions) => Self::Deterministic(f(&actions)?),
            Self::Normal { mean, log_std } => Self::Normal {
                log_std: if log_std.rank() < mean.rank() {
                    log_std
                } else {
                    f(&log_std)?
                },
                mean: f(&mean)?,
            },
        })
    }

    /// Stacks the parameters of several steps, `[N, …]` each, to `[T, N, …]`.
    pub(super) fn stack(steps: &[Self]) -> Result<Self> {
        let stack = |part: fn(&Self) -> Option<&Tensor<B>>| {
            Tensor::stack(&steps.iter().filter_map(part).collect::<Vec<_>>(), 0)
        };
        let output = stack(|step| Some(step.output()))?;
        Ok(match &steps[0] {
            Self::Categorical(_) => Self::Categorical(output),
            Self::MultiDiscrete(_, nvec) => Self::MultiDiscrete(output, nvec.clone()),
            Self::Bernoulli(_) => Self::Bernoulli(output),
            Self::Deterministic(_) => Self::Deterministic(output),
            Self::Normal { mean, log_std } => Self::Normal {
                log_std: if log_std.rank() < mean.rank() {
                    log_std.clone()
                } else {
                    stack(Self::log_std)?
                },
                mean: output,
            },
        })
    }

    /// The distribution. `mask`, a bool tensor of the logits' shape, forbids the discrete actions whose entry is false.
    ///
    /// # Errors
    /// If the mask has another shape, if there is a mask and actions are not discrete, or if the policy does not
    /// sample.
    pub fn distribution(&self, mask: Option<&Tensor<B>>) -> Result<ActionDistribution<B>> {
        Ok(match (self, mask) {
            (Self::Categorical(logits), None) => ActionDistribution::Categorical(Categorical::new(logits)?),
            (Self::Categorical(logits), Some(mask)) => {
                ActionDistribution::Categorical(Categorical::masked(logits, mask)?)
            }
            (Self::MultiDiscrete(logits, nvec), None) => {
                ActionDistribution::MultiDiscrete(MultiDiscrete::new(logits, nvec)?)
            }
            (Self::MultiDiscrete(logits, nvec), Some(mask)) => {
                ActionDistribution::MultiDiscrete(MultiDiscrete::masked(logits, mask, nvec)?)
            }
            (Self::Bernoulli(logits), None) => {
                ActionDistribution::Bernoulli(Independent::new(Bernoulli::new(logits)?, 1))
            }
            (Self::Normal { mean, log_std }, None) => {
                ActionDistribution::Normal(Independent::new(Normal::from_log_std(mean, log_std)?, 1))
            }
            (Self::Deterministic(_), _) => {
                let error = Error::invalid("the policy draws no actions, and has no probabilities").with_op("policy");
                return Err(error.with_hint("take a policy that draws them, such as ActorCritic"));
            }
            (Self::Bernoulli(_) | Self::Normal { .. }, Some(_)) => {
                return Err(Error::invalid("only choices among several actions have masks").with_op("policy"));
            }
        })
    }
}

/// A distribution over actions: one of [`polygrad_nn::distributions`], depending on the kind of actions. Values are
/// floats `[N, len]`, even for discrete choices. Log-probabilities and entropies have one number for each row.
#[derive(Clone, Debug)]
pub enum ActionDistribution<B: Backend = AnyBackend> {
    /// One of several.
    Categorical(Categorical<B>),
    /// Several choices.
    MultiDiscrete(MultiDiscrete<B>),
    /// Numbers that are 0 or 1.
    Bernoulli(Independent<Bernoulli<B>, B>),
    /// A vector of numbers.
    Normal(Independent<Normal<B>, B>),
}

/// Applies an expression to the inner distribution of each variant.
macro_rules! each {
    ($self:expr, $inner:ident => $do:expr) => {
        match $self {
            ActionDistribution::Categorical($inner) => $do,
            ActionDistribution::MultiDiscrete($inner) => $do,
            ActionDistribution::Bernoulli($inner) => $do,
            ActionDistribution::Normal($inner) => $do,
        }
    };
}

impl<B: Backend> ActionDistribution<B> {
    /// Converts a value of the distribution to floats `[…, len]`.
    fn as_actions(&self, value: &Tensor<B>) -> Result<Tensor<B>> {
        match self {
            Self::Categorical(_) => value.unsqueeze(-1)?.to_dtype(DType::F32),
            Self::MultiDiscrete(_) => value.to_dtype(DType::F32),
            Self::Bernoulli(_) | Self::Normal(_) => Ok(value.clone()),
        }
    }

    /// The reverse.
    fn as_value(&self, actions: &Tensor<B>) -> Result<Tensor<B>> {
        match self {
            Self::Categorical(_) => actions.to_dtype(DType::I64)?.squeeze(-1),
            Self::MultiDiscrete(_) => actions.to_dtype(DType::I64),
            Self::Bernoulli(_) | Self::Normal(_) => Ok(actions.clone()),
        }
    }
}

impl<B: Backend> Distribution<B> for ActionDistribution<B> {
    fn sample(&self) -> Result<Tensor<B>> {
        self.as_actions(&each!(self, inner => inner.sample())?)
    }

    fn log_prob(&self, actions: &Tensor<B>) -> Result<Tensor<B>> {
        let value = self.as_value(actions)?;
        each!(self, inner => inner.log_prob(&value))
    }

    fn entropy(&self) -> Result<Tensor<B>> {
        each!(self, inner => inner.entropy())
    }

    fn mode(&self) -> Result<Tensor<B>> {
        self.as_actions(&each!(self, inner => inner.mode())?)
    }

    fn kl_divergence(&self, other: &Self) -> Result<Tensor<B>> {
        match (self, other) {
            (Self::Categorical(a), Self::Categorical(b)) => a.kl_divergence(b),
            (Self::MultiDiscrete(a), Self::MultiDiscrete(b)) => a.kl_divergence(b),
            (Self::Bernoulli(a), Self::Bernoulli(b)) => a.kl_divergence(b),
            (Self::Normal(a), Self::Normal(b)) => a.kl_divergence(b),
            _ => Err(Error::invalid("distributions over actions of different kinds").with_op("kl_divergence")),
        }
    }
}
