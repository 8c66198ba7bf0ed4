//! The two stacks of T5.

use polygrad_tensor::{AnyBackend, Backend, Device, Error, Result, Tensor};

use super::super::config::layers;
use super::attention::{Buckets, Source};
use super::block::{CrossAttentionPart, FeedForwardPart, SelfAttentionPart};
use super::{NAME, T5Config};
use crate::{Dropout, KvCache, Module, Param, RMSNorm, Slot, watch};

/// The shared token embedding, listed again under a stack's name.
#[derive(Debug, Module)]
struct Tokens<B: Backend> {
    weight: Param<B>,
}

/// The encoder.
#[derive(Debug, Module)]
pub struct Encoder<B: Backend = AnyBackend> {
    embed_tokens: Tokens<B>,
    /// The blocks.
    pub block: Vec<EncoderBlock<B>>,
    /// The norm after the last block.
    pub final_layer_norm: Slot<RMSNorm<B>, B>,
    /// Dropout before the first block and at the end.
    pub dropout: Dropout,
    #[module(skip)]
    buckets: Buckets,
}

/// A block of the encoder.
#[derive(Debug, Module)]
pub struct EncoderBlock<B: Backend = AnyBackend> {
    /// Its parts, in order.
    pub layer: (SelfAttentionPart<B>, FeedForwardPart<B>),
}

/// The decoder.
#[derive(Debug, Module)]
#[module(unused = "block.0.layer.1.EncDecAttention.relative_attention_bias.weight")]
pub struct Decoder<B: Backend = AnyBackend> {
    embed_tokens: Tokens<B>,
    /// The blocks.
    pub block: Vec<DecoderBlock<B>>,
    /// The norm after the last block.
    pub final_layer_norm: Slot<RMSNorm<B>, B>,
    /// Dropout before the first block and at the end.
    pub dropout: Dropout,
    #[module(skip)]
    buckets: Buckets,
}

/// A block of the decoder.
#[derive(Debug, Module)]
pub struct DecoderBlock<B: Backend = AnyBackend> {
    /// Its parts, in order.
    pub layer: (SelfAttentionPart<B>, CrossAttentionPart<B>, FeedForwardPart<B>),
}

impl<B: Backend> Encoder<B> {
    pub(super) fn new(config: &T5Config, tokens: Param<B>, device: &Device<B>) -> Result<Self> {
        let block = |i: usize| {
            Ok(EncoderBlock {
                layer: (
                    SelfAttentionPart::new(config, i == 0, device)?,
                    FeedForwardPart::new(config, device)?,
                ),
            })
        };
        Ok(Self {
            embed_tokens: Tokens { weight: tokens },
            block: layers(NAME, config.num_layers)?.map(block).collect::<Result<_>>()?,
            final_layer_norm: config.norm(device)?,
            dropout: Dropout::new(config.dropout_rate)?,
            buckets: Buckets::new(config, true),
        })
    }

    /// `before` is called with the input of each block.
    pub(super) fn forward(
        &self,
        tokens: &Tensor<B>,
        padding: Option<&Tensor<B>>,
        mut before: impl FnMut(&Tensor<B>),
    ) -> Result<Tensor<B>> {
        watch::layer(self, tokens, || {
            let length = tokens.shape()[1];
            let mut x = self.dropout.forward(tokens)?;
            if let Some(first) = self.block.first() {
                let mut mask = bias(&first.layer.0, self.buckets, length, length)?;
                if let Some(seen) = padding {
                    let hidden = Tensor::full((), f64::NEG_INFINITY, (&mask.device(), mask.dtype()))?;
                    mask = Tensor::where_(seen, &mask, &hidden)?;
                }
                for EncoderBlock {
                    layer: (attention, dense),
                } in &self.block
                {
                    before(&x);
                    x = dense.forward(&attention.forward(&x, Source::Input, &mask)?)?;
                }
            }
            self.dropout.forward(&self.final_layer_norm.forward(&x)?)
        })
    }
}

impl<B: Backend> Decoder<B> {
    pub(super) fn new(config: &T5Config, tokens: Param<B>, device: &Device<B>) -> Result<Self> {
        let block = |i: usize| {
            Ok(DecoderBlock {
                layer: (
                    SelfAttentionPart::new(config, i == 0, device)?,
                    CrossAttentionPart::new(config, device)?,
                    FeedForwardPart::new(config, device)?,
                ),
            })
        };
        Ok(Self {
            embed_tokens: Tokens { weight: tokens },
            block: layers(NAME, config.decoder_layers())?
                .map(block)
                .collect::<Result<_>>()?,
            final_layer_norm: config.norm(device)?,
            dropout: Dropout::new(config.dropout_rate)?,
            buckets: Buckets::new(config, false),
        })
    }

    /// `before` is called with the input of each block.
    pub(super) fn forward(
        &self,
        tokens: &Tensor<B>,
        text: &Tensor<B>,
        padding: Option<&Tensor<B>>,
        caches: &mut [[KvCache<B>; 2]],
        mut before: impl FnMut(&Tensor<B>),
    ) -> Result<Tensor<B>> {
        watch::layer(self, tokens, || {
            let length = tokens.shape()[1];
            let past = caches.first().map_or(0, |[own, _]| own.len());
            let mut x = self.dropout.forward(tokens)?;
            if let Some(first) = self.block.first() {
                let mask = bias(&first.layer.0, self.buckets, length, past + length)?;
                for (block, [own, cross]) in self.block.iter().zip(caches) {
                    before(&x);
                    let (attention, across, dense) = &block.layer;
                    let y = attention.forward(&x, Source::Past(own), &mask)?;
                    let y = across.forward(&y, Source::Text(text, cross), padding)?;
                    x = dense.forward(&y)?;
                }
            }
            self.dropout.forward(&self.final_layer_norm.forward(&x)?)
        })
    }
}

/// The bias that all blocks of a stack add to their scores.
fn bias<B: Backend>(first: &SelfAttentionPart<B>, buckets: Buckets, queries: usize, keys: usize) -> Result<Tensor<B>> {
    match &first.attention.relative_attention_bias {
        Some(table) => buckets.bias(table, queries, keys),
        None => Err(Error::invalid("the first block has lost its table of distances").with_op(NAME)),
    }
}
