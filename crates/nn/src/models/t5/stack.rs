//! The two stacks of T5.

use polygrad_tensor::{Backend, Device, Error, Result, Tensor};

use super::attention::{Buckets, Source};
use super::block::{CrossAttentionPart, FeedForwardPart, SelfAttentionPart};
use super::{NAME, T5Config};
use crate::{Dropout, KvCache, Module, Param, RMSNorm, watch};

/// The embedding of all tokens, once more under a stack's name.
#[derive(Debug, Module)]
struct Tokens<B: Backend> {
    weight: Param<B>,
}

#[derive(Debug, Module)]
pub(super) struct Encoder<B: Backend> {
    embed_tokens: Tokens<B>,
    block: Vec<EncoderBlock<B>>,
    final_layer_norm: RMSNorm<B>,
    dropout: Dropout,
    #[module(skip)]
    buckets: Buckets,
}

#[derive(Debug, Module)]
struct EncoderBlock<B: Backend> {
    layer: (SelfAttentionPart<B>, FeedForwardPart<B>),
}

#[derive(Debug, Module)]
pub(super) struct Decoder<B: Backend> {
    embed_tokens: Tokens<B>,
    block: Vec<DecoderBlock<B>>,
    final_layer_norm: RMSNorm<B>,
    dropout: Dropout,
    #[module(skip)]
    buckets: Buckets,
}

#[derive(Debug, Module)]
struct DecoderBlock<B: Backend> {
    layer: (SelfAttentionPart<B>, CrossAttentionPart<B>, FeedForwardPart<B>),
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
            block: (0..config.num_layers).map(block).collect::<Result<_>>()?,
            final_layer_norm: config.norm(device)?,
            dropout: Dropout::new(config.dropout_rate)?,
            buckets: Buckets::new(config, true),
        })
    }

    pub(super) fn forward(&self, tokens: &Tensor<B>, padding: Option<&Tensor<B>>) -> Result<Tensor<B>> {
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
            block: (0..config.decoder_layers()).map(block).collect::<Result<_>>()?,
            final_layer_norm: config.norm(device)?,
            dropout: Dropout::new(config.dropout_rate)?,
            buckets: Buckets::new(config, false),
        })
    }

    pub(super) fn forward(
        &self,
        tokens: &Tensor<B>,
        text: &Tensor<B>,
        padding: Option<&Tensor<B>>,
        caches: &mut [[KvCache<B>; 2]],
    ) -> Result<Tensor<B>> {
        watch::layer(self, tokens, || {
            let length = tokens.shape()[1];
            let past = caches.first().map_or(0, |[own, _]| own.len());
            let mut x = self.dropout.forward(tokens)?;
            if let Some(first) = self.block.first() {
                let mask = bias(&first.layer.0, self.buckets, length, past + length)?;
                for (block, [own, cross]) in self.block.iter().zip(caches) {
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

/// What all blocks of a stack add to their scores.
fn bias<B: Backend>(first: &SelfAttentionPart<B>, buckets: Buckets, queries: usize, keys: usize) -> Result<Tensor<B>> {
    match &first.attention.relative_attention_bias {
        Some(table) => buckets.bias(table, queries, keys),
        None => Err(Error::invalid("the first block has lost its table of distances").with_op(NAME)),
    }
}
