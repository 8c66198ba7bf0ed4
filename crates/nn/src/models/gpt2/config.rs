//! The config of GPT-2.

use serde::{Deserialize, Serialize};

use super::super::{ActivationFn, ModelConfig};
use crate::{Init, defaults};

defaults! {
    /// The config of a [`Gpt2`](super::Gpt2), with the fields and defaults of Hugging Face's `GPT2Config`.
    ///
    /// ```
    /// use polygrad_nn::models::{Gpt2Config, ModelConfig};
    /// # fn main() -> polygrad_tensor::Result<()> {
    /// let config = Gpt2Config::from_json(r#"{ "n_embd": 128, "n_layer": 4, "n_head": 4 }"#)?;
    /// assert_eq!((config.n_embd, config.vocab_size), (128, 50257));
    /// # Ok(())
    /// # }
    /// ```
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct Gpt2Config {
        /// Size of the vocabulary. Default: 50,257.
        pub vocab_size: usize = 50_257,
        /// Length of the longest sequence. Default: 1,024.
        pub n_positions: usize = 1024,
        /// Width of the vectors. Default: 768.
        pub n_embd: usize = 768,
        /// Number of blocks. Default: 12.
        pub n_layer: usize = 12,
        /// Number of attention heads, which must divide `n_embd`. Default: 12.
        pub n_head: usize = 12,
        /// Width between the two linear layers of a block. Default: `4 · n_embd`.
        pub n_inner: Option<usize> = None,
        /// The activation between them. Default: GELU by its tanh approximation.
        pub activation_function: ActivationFn = ActivationFn::GeluTanh,
        /// Dropout after each part of a block. Default: 0.1.
        pub resid_pdrop: f64 = 0.1,
        /// Dropout of the embeddings. Default: 0.1.
        pub embd_pdrop: f64 = 0.1,
        /// Dropout of attention weights. Default: 0.1.
        pub attn_pdrop: f64 = 0.1,
        /// Added to the variance in the norms. Default: 1e-5.
        pub layer_norm_epsilon: f64 = 1e-5,
        /// Standard deviation of the initial weights. Default: 0.02.
        pub initializer_range: f64 = 0.02,
        /// Whether scores are divided by the square root of the heads' width. Default: true.
        pub scale_attn_weights: bool = true,
        /// Whether the scores of block i are also divided by i + 1. Default: false.
        pub scale_attn_by_inverse_layer_idx: bool = false,
        /// Whether the projection to the vocabulary shares the embedding's weight. Default: true.
        pub tie_word_embeddings: bool = true,
        /// Attention to an encoder, which is not implemented: true is an error. Default: false.
        pub add_cross_attention: bool = false,
    }
}

impl ModelConfig for Gpt2Config {}

impl Gpt2Config {
    pub(super) fn init(&self) -> Init {
        Init::Normal {
            mean: 0.0,
            std: self.initializer_range,
        }
    }

    /// Initial values of the projections before a residual sum, of which each block has two.
    pub(super) fn residual_init(&self) -> Init {
        Init::Normal {
            mean: 0.0,
            std: self.initializer_range / (2.0 * self.n_layer.max(1) as f64).sqrt(),
        }
    }
}
