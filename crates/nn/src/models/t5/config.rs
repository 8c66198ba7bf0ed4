//! The config of T5.

use polygrad_tensor::{Backend, Device, Error, Result};
use serde::{Deserialize, Serialize};

use super::super::{ActivationFn, ModelConfig};
use super::NAME;
use crate::{Init, Linear, LinearConfig, RMSNorm, RMSNormConfig, Slot, defaults};

defaults! {
    /// The config of a [`T5`](super::T5), with the fields and defaults of Hugging Face's `T5Config`.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct T5Config {
        /// Size of the vocabulary. Default: 32,128.
        pub vocab_size: usize = 32_128,
        /// Width of the vectors. Default: 512.
        pub d_model: usize = 512,
        /// Width of each head. Default: 64.
        pub d_kv: usize = 64,
        /// Width between the two linear layers of a block. Default: 2,048.
        pub d_ff: usize = 2048,
        /// Blocks of the encoder. Default: 6.
        pub num_layers: usize = 6,
        /// Blocks of the decoder. Default: `num_layers`.
        pub num_decoder_layers: Option<usize> = None,
        /// Number of attention heads. Default: 8.
        pub num_heads: usize = 8,
        /// Number of buckets that attention sorts distances into. Default: 32.
        pub relative_attention_num_buckets: usize = 32,
        /// The distance from which on all distances share a bucket. Default: 128.
        pub relative_attention_max_distance: usize = 128,
        /// Dropout probability everywhere. Default: 0.1.
        pub dropout_rate: f64 = 0.1,
        /// Added to the mean square in the norms. Default: 1e-6.
        pub layer_norm_epsilon: f64 = 1e-6,
        /// Factor of the initial weights. Default: 1.
        pub initializer_factor: f64 = 1.0,
        /// The activation of the feed-forward parts: a name of [`ActivationFn`], prefixed with "gated-" for gated ones.
        /// "gated-gelu" uses the tanh approximation. Default: "relu".
        pub feed_forward_proj: String = "relu".to_owned(),
        /// Whether the projection to the vocabulary shares the embedding's weight. Default: true.
        pub tie_word_embeddings: bool = true,
        /// Whether vectors are scaled by `1 / √d_model` before the projection to the vocabulary. Default: as
        /// `tie_word_embeddings`.
        pub scale_decoder_outputs: Option<bool> = None,
        /// The padding token. Default: 0.
        pub pad_token_id: i64 = 0,
        /// The token with which the decoder begins. Default: 0.
        pub decoder_start_token_id: i64 = 0,
    }
}

impl ModelConfig for T5Config {}

impl T5Config {
    /// Blocks of the decoder.
    pub fn decoder_layers(&self) -> usize {
        self.num_decoder_layers.unwrap_or(self.num_layers)
    }

    pub(super) fn check(&self) -> Result<()> {
        self.activation()?;
        let buckets = self.relative_attention_num_buckets;
        if buckets < 4
            || self.relative_attention_max_distance <= buckets / 2
            || self.relative_attention_max_distance > 1 << 24
        {
            return Err(Error::invalid(format!(
                "{buckets} buckets for distances up to {}: there must be at least 4, and the distance above half of them and at most 2^24",
                self.relative_attention_max_distance
            ))
            .with_op(NAME));
        }
        if self.num_heads.checked_mul(self.d_kv).is_none_or(|width| width == 0) {
            return Err(Error::invalid(format!("{} heads of width {}", self.num_heads, self.d_kv)).with_op(NAME));
        }
        Ok(())
    }

    /// The activation of the feed-forward parts, and whether they are gated.
    pub(super) fn activation(&self) -> Result<(ActivationFn, bool)> {
        let (name, gated) = match self.feed_forward_proj.strip_prefix("gated-") {
            // As Hugging Face interprets it.
            Some("gelu") => return Ok((ActivationFn::GeluTanh, true)),
            Some(name) => (name, true),
            None => (self.feed_forward_proj.as_str(), false),
        };
        let act = serde_json::from_value(serde_json::Value::from(name)).map_err(|_| {
            Error::invalid(format!(
                "feed_forward_proj {:?} is no activation",
                self.feed_forward_proj
            ))
            .with_op(NAME)
            .with_hint("relu, gelu, gelu_new, silu or tanh, with gated- before it for gated ones")
        })?;
        Ok((act, gated))
    }

    /// A linear layer without bias, with initial weights of this standard deviation.
    pub(super) fn linear<B: Backend>(
        &self,
        [inputs, outputs]: [usize; 2],
        std: f64,
        device: &Device<B>,
    ) -> Result<Slot<Linear<B>, B>> {
        let std = self.initializer_factor * std;
        LinearConfig::new(inputs, outputs)
            .bias(false)
            .init(Init::Normal { mean: 0.0, std })
            .build(device)
            .map(Slot::new)
    }

    pub(super) fn norm<B: Backend>(&self, device: &Device<B>) -> Result<Slot<RMSNorm<B>, B>> {
        RMSNormConfig::new([self.d_model])
            .eps(self.layer_norm_epsilon)
            .build(device)
            .map(Slot::new)
    }
}
