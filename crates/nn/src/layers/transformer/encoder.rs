//! Encoders.

use polygrad_tensor::{AnyBackend, Backend, Device, Result, Tensor};

use super::block::{feed_forward, residual};
use super::{TransformerActivation, TransformerLayerConfig};
use crate::{Dropout, LayerNorm, Linear, Masks, Module, MultiheadAttention, watch};

/// Self-attention, then two linear layers, each with a norm and a residual connection, as PyTorch's
/// `nn.TransformerEncoderLayer`.
#[derive(Debug, Module)]
pub struct TransformerEncoderLayer<B: Backend = AnyBackend> {
    /// The attention.
    pub self_attn: MultiheadAttention<B>,
    /// From `d_model` to `dim_feedforward`.
    pub linear1: Linear<B>,
    dropout: Dropout,
    /// From `dim_feedforward` to `d_model`.
    pub linear2: Linear<B>,
    /// The attention's norm.
    pub norm1: LayerNorm<B>,
    /// The feed-forward part's norm.
    pub norm2: LayerNorm<B>,
    dropout1: Dropout,
    dropout2: Dropout,
    #[module(skip)]
    activation: TransformerActivation,
    norm_first: bool,
}

impl<B: Backend> TransformerEncoderLayer<B> {
    /// `nhead` heads over vectors of `d_model`, with PyTorch's defaults; [`TransformerLayerConfig`] has the options.
    ///
    /// # Errors
    /// As [`TransformerLayerConfig::encoder_layer`].
    pub fn new(d_model: usize, nhead: usize, device: &Device<B>) -> Result<Self> {
        TransformerLayerConfig::new(d_model, nhead).encoder_layer(device)
    }

    pub(super) fn build(config: TransformerLayerConfig, device: &Device<B>) -> Result<Self> {
        Ok(Self {
            self_attn: config.attention(device)?,
            linear1: config.linear(config.d_model, config.dim_feedforward, device)?,
            dropout: Dropout::new(config.dropout)?,
            linear2: config.linear(config.dim_feedforward, config.d_model, device)?,
            norm1: config.norm(device)?,
            norm2: config.norm(device)?,
            dropout1: Dropout::new(config.dropout)?,
            dropout2: Dropout::new(config.dropout)?,
            activation: config.activation,
            norm_first: config.norm_first,
        })
    }

    /// Maps a sequence `[S, N, E]` (`[N, S, E]` with `batch_first`; or `[S, E]`) to one of the same shape.
    ///
    /// # Errors
    /// When shapes, dtypes or devices do not fit.
    pub fn forward(&self, src: &Tensor<B>, masks: Masks<'_, B>) -> Result<Tensor<B>> {
        watch::layer(self, src, || {
            let x = residual(src, &self.norm1, self.norm_first, |x| {
                self.dropout1.forward(&self.self_attn.forward_self(x, masks)?)
            })?;
            residual(&x, &self.norm2, self.norm_first, |x| {
                let linears = (&self.linear1, &self.linear2);
                self.dropout2
                    .forward(&feed_forward(x, linears, self.activation, &self.dropout)?)
            })
        })
    }
}

/// A stack of encoder layers and an optional final norm, as PyTorch's `nn.TransformerEncoder`.
#[derive(Debug, Module)]
pub struct TransformerEncoder<B: Backend = AnyBackend> {
    /// The layers.
    pub layers: Vec<TransformerEncoderLayer<B>>,
    /// The final norm.
    pub norm: Option<LayerNorm<B>>,
}

impl<B: Backend> TransformerEncoder<B> {
    /// `num_layers` layers without a final norm; each has its own random weights (PyTorch copies those of the first).
    ///
    /// # Errors
    /// As [`TransformerLayerConfig::encoder_layer`].
    pub fn new(layer: TransformerLayerConfig, num_layers: usize, device: &Device<B>) -> Result<Self> {
        Ok(Self {
            layers: layer.layers(num_layers, |layer| layer.encoder_layer(device))?,
            norm: None,
        })
    }

    /// Adds a final norm, which pre-norm layers need.
    #[must_use]
    pub fn with_norm(mut self, norm: LayerNorm<B>) -> Self {
        self.norm = Some(norm);
        self
    }

    /// Maps a sequence, in the form that the layers take, to one of the same shape. All layers get the same masks.
    ///
    /// # Errors
    /// When shapes, dtypes or devices do not fit.
    pub fn forward(&self, src: &Tensor<B>, masks: Masks<'_, B>) -> Result<Tensor<B>> {
        watch::layer(self, src, || {
            let mut x = src.clone();
            for layer in &self.layers {
                x = layer.forward(&x, masks)?;
            }
            match &self.norm {
                Some(norm) => norm.forward(&x),
                None => Ok(x),
            }
        })
    }
}
