//! Activations as data.

use polygrad_tensor::{Backend, Result, Tensor};
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
    /// [`GELU`] by the tanh formula; "gelu_new" in JSON, as in Hugging Face's configs.
    #[serde(rename = "gelu_new", alias = "gelu_tanh", alias = "gelu_pytorch_tanh")]
    GeluTanh,
    /// [`SiLU`].
    #[serde(alias = "swish")]
    Silu,
    /// [`Tanh`].
    Tanh,
    /// [`Sigmoid`].
    Sigmoid,
}

impl ActivationFn {
    pub(super) fn forward<B: Backend>(self, x: &Tensor<B>) -> Result<Tensor<B>> {
        match self {
            Self::Relu => x.relu(),
            Self::LeakyRelu => x.leaky_relu(LeakyReLU::default().0),
            Self::Elu => x.elu(ELU::default().0),
            Self::Gelu => x.gelu(),
            Self::GeluTanh => x.gelu_tanh(),
            Self::Silu => x.silu(),
            Self::Tanh => x.tanh(),
            Self::Sigmoid => x.sigmoid(),
        }
    }

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
