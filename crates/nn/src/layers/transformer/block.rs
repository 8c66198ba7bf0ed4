//! A block with its norm, dropout and residual connection.

use polygrad_tensor::{Backend, Device, Result, Tensor};

use super::{TransformerActivation, TransformerLayerConfig};
use crate::{Dropout, LayerNorm, LayerNormConfig, Linear, LinearConfig, MultiheadAttention, MultiheadAttentionConfig};

impl TransformerLayerConfig {
    pub(super) fn attention<B: Backend>(&self, device: &Device<B>) -> Result<MultiheadAttention<B>> {
        MultiheadAttentionConfig::new(self.d_model, self.nhead)
            .dropout(self.dropout)
            .bias(self.bias)
            .batch_first(self.batch_first)
            .build(device)
    }

    pub(super) fn linear<B: Backend>(&self, inputs: usize, outputs: usize, device: &Device<B>) -> Result<Linear<B>> {
        LinearConfig::new(inputs, outputs).bias(self.bias).build(device)
    }

    pub(super) fn norm<B: Backend>(&self, device: &Device<B>) -> Result<LayerNorm<B>> {
        LayerNormConfig::new([self.d_model])
            .eps(self.layer_norm_eps)
            .bias(self.bias)
            .build(device)
    }
}

/// `x + block(norm(x))` or `norm(x + block(x))`.
pub(super) fn residual<B: Backend>(
    x: &Tensor<B>,
    norm: &LayerNorm<B>,
    norm_first: bool,
    block: impl FnOnce(&Tensor<B>) -> Result<Tensor<B>>,
) -> Result<Tensor<B>> {
    if norm_first {
        x.add(&block(&norm.forward(x)?)?)
    } else {
        norm.forward(&x.add(&block(x)?)?)
    }
}

/// The feed-forward part.
pub(super) fn feed_forward<B: Backend>(
    x: &Tensor<B>,
    (linear1, linear2): (&Linear<B>, &Linear<B>),
    activation: TransformerActivation,
    dropout: &Dropout,
) -> Result<Tensor<B>> {
    let inner = linear1.forward(x)?;
    let inner = match activation {
        TransformerActivation::Relu => inner.relu()?,
        TransformerActivation::Gelu => inner.gelu()?,
    };
    linear2.forward(&dropout.forward(&inner)?)
}
