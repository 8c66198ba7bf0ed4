//! The parts of T5's blocks, each with its norm and its way around.

use polygrad_tensor::{Backend, Device, Result, Tensor};

use super::super::ActivationFn;
use super::T5Config;
use super::attention::{Attention, Source};
use crate::{Dropout, Linear, Module, RMSNorm, watch};

#[derive(Debug, Module)]
pub(super) struct SelfAttentionPart<B: Backend> {
    #[module(rename = "SelfAttention")]
    pub(super) attention: Attention<B>,
    layer_norm: RMSNorm<B>,
    dropout: Dropout,
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

#[derive(Debug, Module)]
pub(super) struct CrossAttentionPart<B: Backend> {
    #[module(rename = "EncDecAttention")]
    attention: Attention<B>,
    layer_norm: RMSNorm<B>,
    dropout: Dropout,
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

#[derive(Debug, Module)]
pub(super) struct FeedForwardPart<B: Backend> {
    #[module(rename = "DenseReluDense")]
    dense: Dense<B>,
    layer_norm: RMSNorm<B>,
    dropout: Dropout,
}

/// Two linear layers, or three where the first is gated.
#[derive(Debug, Module)]
struct Dense<B: Backend> {
    wi: Option<Linear<B>>,
    wi_0: Option<Linear<B>>,
    wi_1: Option<Linear<B>>,
    wo: Linear<B>,
    dropout: Dropout,
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
