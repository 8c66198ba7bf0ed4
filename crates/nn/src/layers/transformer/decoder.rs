//! Decoders.

use polygrad_tensor::{AnyBackend, Backend, Device, Error, Result, Tensor};

use super::block::{feed_forward, residual};
use super::{TransformerActivation, TransformerLayerConfig};
use crate::layers::all_or_nothing;
use crate::{Dropout, KvCache, LayerNorm, Linear, Masks, Module, MultiheadAttention, watch};

/// Self-attention, attention to an encoder's output, then two linear layers, each with a norm and a residual
/// connection, as PyTorch's `nn.TransformerDecoderLayer`.
#[derive(Debug, Module)]
pub struct TransformerDecoderLayer<B: Backend = AnyBackend> {
    /// The self-attention.
    pub self_attn: MultiheadAttention<B>,
    /// The attention to the memory, the encoder's output.
    pub multihead_attn: MultiheadAttention<B>,
    /// From `d_model` to `dim_feedforward`.
    pub linear1: Linear<B>,
    dropout: Dropout,
    /// From `dim_feedforward` to `d_model`.
    pub linear2: Linear<B>,
    /// The self-attention's norm.
    pub norm1: LayerNorm<B>,
    /// The norm of the attention to the memory.
    pub norm2: LayerNorm<B>,
    /// The feed-forward part's norm.
    pub norm3: LayerNorm<B>,
    dropout1: Dropout,
    dropout2: Dropout,
    dropout3: Dropout,
    #[module(skip)]
    activation: TransformerActivation,
    norm_first: bool,
}

impl<B: Backend> TransformerDecoderLayer<B> {
    /// `nhead` heads over vectors of `d_model`, with PyTorch's defaults; [`TransformerLayerConfig`] has the options.
    ///
    /// # Errors
    /// As [`TransformerLayerConfig::decoder_layer`].
    pub fn new(d_model: usize, nhead: usize, device: &Device<B>) -> Result<Self> {
        TransformerLayerConfig::new(d_model, nhead).decoder_layer(device)
    }

    pub(super) fn build(config: TransformerLayerConfig, device: &Device<B>) -> Result<Self> {
        Ok(Self {
            self_attn: config.attention(device)?,
            multihead_attn: config.attention(device)?,
            linear1: config.linear(config.d_model, config.dim_feedforward, device)?,
            dropout: Dropout::new(config.dropout)?,
            linear2: config.linear(config.dim_feedforward, config.d_model, device)?,
            norm1: config.norm(device)?,
            norm2: config.norm(device)?,
            norm3: config.norm(device)?,
            dropout1: Dropout::new(config.dropout)?,
            dropout2: Dropout::new(config.dropout)?,
            dropout3: Dropout::new(config.dropout)?,
            activation: config.activation,
            norm_first: config.norm_first,
        })
    }

    /// Maps a sequence `[S, N, E]` (`[N, S, E]` with `batch_first`; or `[S, E]`) to one of the same shape. `memory` is
    /// the encoder's output, in the same form and of any length; `memory_masks` hide parts of it.
    ///
    /// # Errors
    /// When shapes, dtypes or devices do not fit.
    pub fn forward(
        &self,
        tgt: &Tensor<B>,
        memory: &Tensor<B>,
        masks: Masks<'_, B>,
        memory_masks: Masks<'_, B>,
    ) -> Result<Tensor<B>> {
        let attend = |x: &Tensor<B>| self.self_attn.forward_self(x, masks);
        self.blocks(tgt, memory, attend, memory_masks)
    }

    /// [`TransformerDecoderLayer::forward`] for further tokens of a sequence whose first tokens are cached.
    ///
    /// # Errors
    /// As [`TransformerDecoderLayer::forward`], and when the cache holds another batch.
    pub fn forward_cached(
        &self,
        tgt: &Tensor<B>,
        memory: &Tensor<B>,
        cache: &mut KvCache<B>,
        masks: Masks<'_, B>,
        memory_masks: Masks<'_, B>,
    ) -> Result<Tensor<B>> {
        all_or_nothing(cache, |cache| {
            let attend = |x: &Tensor<B>| self.self_attn.forward_cached(x, cache, masks);
            self.blocks(tgt, memory, attend, memory_masks)
        })
    }

    fn blocks(
        &self,
        tgt: &Tensor<B>,
        memory: &Tensor<B>,
        attend: impl FnOnce(&Tensor<B>) -> Result<Tensor<B>>,
        memory_masks: Masks<'_, B>,
    ) -> Result<Tensor<B>> {
        watch::layer(self, tgt, || {
            let x = residual(tgt, &self.norm1, self.norm_first, |x| {
                self.dropout1.forward(&attend(x)?)
            })?;
            let x = residual(&x, &self.norm2, self.norm_first, |x| {
                let attended = self.multihead_attn.forward(x, memory, memory, memory_masks)?;
                self.dropout2.forward(&attended)
            })?;
            residual(&x, &self.norm3, self.norm_first, |x| {
                let linears = (&self.linear1, &self.linear2);
                self.dropout3
                    .forward(&feed_forward(x, linears, self.activation, &self.dropout)?)
            })
        })
    }
}

/// A stack of decoder layers and an optional final norm, as PyTorch's `nn.TransformerDecoder`.
#[derive(Debug, Module)]
pub struct TransformerDecoder<B: Backend = AnyBackend> {
    /// The layers.
    pub layers: Vec<TransformerDecoderLayer<B>>,
    /// The final norm.
    pub norm: Option<LayerNorm<B>>,
}

/// The keys and values cached by the layers of a [`TransformerDecoder`].
#[derive(Debug)]
pub struct DecoderCache<B: Backend = AnyBackend>(Vec<KvCache<B>>);

impl<B: Backend> Clone for DecoderCache<B> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<B: Backend> DecoderCache<B> {
    /// Number of tokens in the cache.
    pub fn len(&self) -> usize {
        self.0.first().map_or(0, KvCache::len)
    }

    /// Whether the cache holds no tokens.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<B: Backend> TransformerDecoder<B> {
    /// `num_layers` layers without a final norm; each has its own random weights (PyTorch copies those of the first).
    ///
    /// # Errors
    /// As [`TransformerLayerConfig::decoder_layer`].
    pub fn new(layer: TransformerLayerConfig, num_layers: usize, device: &Device<B>) -> Result<Self> {
        Ok(Self {
            layers: layer.layers(num_layers, |layer| layer.decoder_layer(device))?,
            norm: None,
        })
    }

    /// Adds a final norm, which pre-norm layers need.
    #[must_use]
    pub fn with_norm(mut self, norm: LayerNorm<B>) -> Self {
        self.norm = Some(norm);
        self
    }

    /// Maps a sequence, in the form that the layers take, to one of the same shape. All layers get the same memory and
    /// masks.
    ///
    /// # Errors
    /// When shapes, dtypes or devices do not fit.
    pub fn forward(
        &self,
        tgt: &Tensor<B>,
        memory: &Tensor<B>,
        masks: Masks<'_, B>,
        memory_masks: Masks<'_, B>,
    ) -> Result<Tensor<B>> {
        watch::layer(self, tgt, || {
            let mut x = tgt.clone();
            for layer in &self.layers {
                x = layer.forward(&x, memory, masks, memory_masks)?;
            }
            self.finish(x)
        })
    }

    /// An empty cache for [`TransformerDecoder::forward_cached`].
    pub fn new_cache(&self) -> DecoderCache<B> {
        DecoderCache(self.layers.iter().map(|_| KvCache::new()).collect())
    }

    /// [`TransformerDecoder::forward`] for further tokens of a sequence whose first tokens are cached.
    ///
    /// # Errors
    /// As [`TransformerDecoder::forward`], and when the cache is from another decoder or batch.
    pub fn forward_cached(
        &self,
        tgt: &Tensor<B>,
        memory: &Tensor<B>,
        cache: &mut DecoderCache<B>,
        masks: Masks<'_, B>,
        memory_masks: Masks<'_, B>,
    ) -> Result<Tensor<B>> {
        if cache.0.len() != self.layers.len() {
            return Err(Error::invalid(format!(
                "a cache of {} layers for a decoder of {}",
                cache.0.len(),
                self.layers.len()
            ))
            .with_op("TransformerDecoder")
            .with_hint("make it with new_cache"));
        }
        watch::layer(self, tgt, || {
            all_or_nothing(cache.0.as_mut_slice(), |caches| {
                let mut x = tgt.clone();
                for (layer, cache) in self.layers.iter().zip(caches) {
                    x = layer.forward_cached(&x, memory, cache, masks, memory_masks)?;
                }
                self.finish(x)
            })
        })
    }

    fn finish(&self, x: Tensor<B>) -> Result<Tensor<B>> {
        match &self.norm {
            Some(norm) => norm.forward(&x),
            None => Ok(x),
        }
    }
}
