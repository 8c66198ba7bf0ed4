//! The parts of T5's blocks, each with its norm and its residual connection.

use polygrad_tensor::{AnyBackend, Backend, Device, Result, Tensor};

use super::super::ActivationFn;
use super::T5Config;
use super::attention::{Attention, Source};
use crate::{Dropout, Linear, Module, RMSNorm, Slot, watch};

/// Self-attention.
#[derive(Debug, Module)]
pub struct SelfAttentionPart<B: Backend = AnyBackend> {
    /// "SelfAttention" in names.
    #[module(rename = "SelfAttention")]
    pub attention: Attention<B>,
    /// The norm before it.
    pub layer_norm: Slot<RMSNorm<B>, B>,
    /// Dropout after it.
    pub dropout: Dropout,
}

impl<B: Backend> SelfAttentionPart<B> {
    pub(super) fn new(config: &T5Config, with_bias: bool, device: &Device<B>) -> Result<Self> {
        Ok(Self {
            attention: Attention::new(config, with_bias, device)?,
            layer_norm: config.norm(device)?,
            dropout: Dropout::new(config.dropout_rate)?,
        })
    }

    pub(super) fn forward(&self, x: &Tensor<B>, source: Source<'_, B>, mask: &Tensor<B>) -> Result<Tensor<B>> {
        watch::layer(self, x, || {
            let part = self
                .attention
                .forward(&self.layer_norm.forward(x)?, source, Some(mask))?;
            x.add(&self.dropout.forward(&part)?)
        })
    }
}

/// Cross-attention to an encoded text.
#[derive(Debug, Module)]
pub struct CrossAttentionPart<B: Backend = AnyBackend> {
    /// "EncDecAttention" in names.
    #[module(rename = "EncDecAttention")]
    pub attention: Attention<B>,
    /// The norm before it.
    pub layer_norm: Slot<RMSNorm<B>, B>,
    /// Dropout after it.
    pub dropout: Dropout,
}

impl<B: Backend> CrossAttentionPart<B> {
    pub(super) fn new(config: &T5Config, device: &Device<B>) -> Result<Self> {
        Ok(Self {
            attention: Attention::new(config, false, device)?,
            layer_norm: config.norm(device)?,
            dropout: Dropout::new(config.dropout_rate)?,
        })
    }

    pub(super) fn forward(&self, x: &Tensor<B>, text: Source<'_, B>, mask: Option<&Tensor<B>>) -> Result<Tensor<B>> {
        watch::layer(self, x, || {
            let part = self.attention.forward(&self.layer_norm.forward(x)?, text, mask)?;
            x.add(&self.dropout.forward(&part)?)
        })
    }
}

/// Linear layers, applied to each token.
#[derive(Debug, Module)]
pub struct FeedForwardPart<B: Backend = AnyBackend> {
    /// "DenseReluDense" in names.
    #[module(rename = "DenseReluDense")]
    pub dense: Dense<B>,
    /// The norm before them.
    pub layer_norm: Slot<RMSNorm<B>, B>,
    /// Dropout after them.
    pub dropout: Dropout,
}

/// Two linear layers, or three if the first is gated.
#[derive(Debug, Module)]
pub struct Dense<B: Backend = AnyBackend> {
    /// `[…, d_model]` to `[…, d_ff]`, before the activation; `None` in a gated part.
    pub wi: Option<Slot<Linear<B>, B>>,
    /// The same in a gated part.
    pub wi_0: Option<Slot<Linear<B>, B>>,
    /// The vectors that are gated, in a gated part.
    pub wi_1: Option<Slot<Linear<B>, B>>,
    /// `[…, d_ff]` to `[…, d_model]`.
    pub wo: Slot<Linear<B>, B>,
    /// Dropout before `wo`.
    pub dropout: Dropout,
    #[module(skip)]
    act: ActivationFn,
}

impl<B: Backend> FeedForwardPart<B> {
    pub(super) fn new(config: &T5Config, device: &Device<B>) -> Result<Self> {
        let (act, gated) = config.activation()?;
        let (width, inner) = (config.d_model, config.d_ff);
        let std = |fan: usize| (fan as f64).sqrt().recip();
        let into = |there: bool| {
            there
                .then(|| config.linear([width, inner], std(width), device))
                .transpose()
        };
        Ok(Self {
            dense: Dense {
                wi: into(!gated)?,
                wi_0: into(gated)?,
                wi_1: into(gated)?,
                wo: config.linear([inner, width], std(inner), device)?,
                dropout: Dropout::new(config.dropout_rate)?,
                act,
            },
            layer_norm: config.norm(device)?,
            dropout: Dropout::new(config.dropout_rate)?,
        })
    }

    pub(super) fn forward(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        watch::layer(self, x, || {
            let part = self.dense.forward(&self.layer_norm.forward(x)?)?;
            x.add(&self.dropout.forward(&part)?)
        })
    }
}

impl<B: Backend> Dense<B> {
    fn forward(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        watch::layer(self, x, || {
            let mut inner = x.clone();
            for first in [&self.wi, &self.wi_0].into_iter().flatten() {
                inner = self.act.forward(&first.forward(x)?)?;
            }
            if let Some(gate) = &self.wi_1 {
                inner = inner.mul(&gate.forward(x)?)?;
            }
            self.wo.forward(&self.dropout.forward(&inner)?)
        })
    }
}
