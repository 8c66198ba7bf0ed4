//! Activation functions as config values.

use polygrad_tensor::{Activation, Backend, Result, Tensor};
use serde::{Deserialize, Serialize};

use crate::{ELU, GELU, LeakyReLU, ReLU, Sequential, SiLU, Sigmoid, Tanh};

/// An activation function in a model's config. In JSON it is PyTorch's name of the function: `"relu"`, `"leaky_relu"`.
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
        x.activation(self.function())
    }

    /// The function itself.
    pub(super) fn function(self) -> Activation {
        match self {
            Self::Relu => Activation::Relu,
            Self::LeakyRelu => Activation::LeakyRelu {
                slope: LeakyReLU::default().0,
            },
            Self::Elu => Activation::Elu {
                alpha: ELU::default().0,
            },
            Self::Gelu => Activation::Gelu,
            Self::GeluTanh => Activation::GeluTanh,
            Self::Silu => Activation::Silu,
            Self::Tanh => Activation::Tanh,
            Self::Sigmoid => Activation::Sigmoid,
        }
    }

    /// Appends this function's module.
    pub fn push_to<B: Backend>(self, modules: Sequential<B>) -> Sequential<B> {
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
