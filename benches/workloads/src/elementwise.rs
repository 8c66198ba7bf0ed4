//! `elementwise`: ops whose time is proportional to the number of elements.

use polygrad_tensor::{Backend, Device, Result, Tensor};

use crate::data::{INPUT, TARGET, noise};
use crate::{Amount, Prepared};

/// Ops without gradients; those along an axis use the last axis of [elements / 1024, 1024].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Elementwise {
    Add,
    Exp,
    Tanh,
    Gelu,
    LayerNorm,
    Softmax,
    Sum,
}

/// The extent of the last axis.
const ROW: usize = 1024;

impl Elementwise {
    pub(crate) const ALL: [Self; 7] = [
        Self::Add,
        Self::Exp,
        Self::Tanh,
        Self::Gelu,
        Self::LayerNorm,
        Self::Softmax,
        Self::Sum,
    ];
    /// The numbers of elements.
    pub(crate) const SIZES: [usize; 4] = [1_024, 65_536, 1_048_576, 16_777_216];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Exp => "exp",
            Self::Tanh => "tanh",
            Self::Gelu => "gelu",
            Self::LayerNorm => "layer_norm",
            Self::Softmax => "softmax",
            Self::Sum => "sum",
        }
    }

    pub(crate) fn amount(self, size: usize) -> Amount {
        let touched = match self {
            Self::Add => 3 * size,
            Self::Sum => size,
            Self::Exp | Self::Tanh | Self::Gelu | Self::LayerNorm | Self::Softmax => 2 * size,
        };
        Amount {
            elements: size as u64,
            bytes: 4 * touched as u64,
            ..Amount::default()
        }
    }

    pub(crate) fn prepare<B: Backend>(self, size: usize, device: &Device<B>) -> Result<Prepared<B>> {
        let shape = [size / ROW, ROW];
        let x = Tensor::from_vec(noise(size, INPUT), shape, device)?;
        Ok(match self {
            Self::Add => {
                let other = Tensor::from_vec(noise(size, TARGET), shape, device)?;
                Prepared::call(move || x.add(&other))
            }
            Self::Exp => Prepared::call(move || x.exp()),
            Self::Tanh => Prepared::call(move || x.tanh()),
            Self::Gelu => Prepared::call(move || x.gelu()),
            Self::LayerNorm => {
                let weight = Tensor::ones([ROW], device)?;
                let bias = Tensor::zeros([ROW], device)?;
                Prepared::call(move || x.layer_norm(Some(&weight), Some(&bias), 1, 1e-5))
            }
            Self::Softmax => Prepared::call(move || x.softmax(-1)),
            Self::Sum => Prepared::call(move || x.sum_all()),
        })
    }
}
