//! Activations as data.

use polygrad_tensor::Backend;
use serde::{Deserialize, Serialize};

use crate::{ELU, GELU, LeakyReLU, ReLU, Sequential, SiLU, Sigmoid, Tanh};

/// The activation of a model's config. In JSON it is PyTorch's name of the function: `"relu"`, `"leaky_relu"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ActivationFn {
    /// [`ReLU`].
    #[default]
    Relu,
    /// [`LeakyReLU`] with slope 0.01.
    LeakyRelu,
    /// [`ELU`] with alpha 1.
    Elu,
    /// [`GELU`], exact.
    Gelu,
    /// [`GELU`] by the tanh formula.
    GeluTanh,
    /// [`SiLU`].
    Silu,
    /// [`Tanh`].
    Tanh,
    /// [`Sigmoid`].
    Sigmoid,
}

impl ActivationFn {
    /// The modules with this one behind them.
    pub(crate) fn push_to<B: Backend>(self, modules: Sequential<B>) -> Sequential<B> {
        match self {
            Self::Relu => modules.push(ReLU),
            Self::LeakyRelu => modules.push(LeakyReLU::default()),
            Self::Elu => modules.push(ELU::default()),
            Self::Gelu => modules.push(GELU::Exact),
            Self::GeluTanh => modules.push(GELU::Tanh),
            Self::Silu => modules.push(SiLU),
            Self::Tanh => modules.push(Tanh),
            Self::Sigmoid => modules.push(Sigmoid),
        }
    }
}
