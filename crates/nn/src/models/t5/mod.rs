//! T5, and its building blocks for models of your own.

mod attention;
mod block;
mod config;
mod stack;

use polygrad_tensor::{AnyBackend, Backend, Device, Error, Result, Tensor};

pub use config::T5Config;

use super::causal::lm_head;
use super::config::{padding_mask, token_shape};
use crate::layers::all_or_nothing;
use crate::{Embedding, EmbeddingConfig, Init, KvCache, Linear, Module, Slot, watch};
pub use attention::Attention;
pub use block::{CrossAttentionPart, Dense, FeedForwardPart, SelfAttentionPart};
pub use stack::{Decoder, DecoderBlock, Encoder, EncoderBlock};

const NAME: &str = "T5";

/// An encoder and a decoder from text to text, with the parameter names of Hugging Face's `T5ForConditionalGeneration`.
///
/// Source: Raffel et al., "Exploring the limits of transfer learning with a unified text-to-text transformer" (2019);
/// for gated feed-forward parts, Shazeer, "GLU variants improve transformer" (2020).
///
/// ```
/// use polygrad_nn::models::{T5, T5Config};
/// # use polygrad_reference::Reference;
/// # use polygrad_tensor::{Device, Result, Tensor};
/// # fn main() -> Result<()> {
/// let device = Device::<Reference>::default();
/// let (num_layers, num_heads) = (2, 2);
/// let sizes = T5Config { vocab_size: 20, d_model: 8, d_kv: 4, d_ff: 16, ..T5Config::default() };
/// let config = T5Config { num_layers, num_heads, ..sizes };
/// let model = T5::new(&config, &device)?;
/// let (ids, targets) = (Tensor::new([[3i64, 7, 9, 1]], &device)?, Tensor::new([[8i64, 2, 1]], &device)?);
/// let logits = model.forward(&ids, None, &model.shift_right(&targets)?)?;
/// assert_eq!(logits.dims(), [1, 3, 20]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Module)]
pub struct T5<B: Backend = AnyBackend> {
    /// The token vectors, shared by both stacks.
    pub shared: Slot<Embedding<B>, B>,
    /// The encoder of the input text.
    pub encoder: Encoder<B>,
    /// The decoder of the output text.
    pub decoder: Decoder<B>,
    /// The projection to the vocabulary.
    pub lm_head: Slot<Linear<B>, B>,
    #[module(skip)]
    config: T5Config,
}

/// The vectors of all layers of a [`T5`]: Hugging Face's `encoder_hidden_states` and `decoder_hidden_states`.
#[derive(Clone, Debug)]
pub struct T5HiddenStates<B: Backend = AnyBackend> {
    /// `[N, S, d_model]` after the embeddings and after each block, the last ones after the norm: the result of
    /// [`T5::encode`].
    pub encoder: Vec<Tensor<B>>,
    /// `[N, T, d_model]`, the same for the decoder, before the scaling for the projection to the vocabulary.
    pub decoder: Vec<Tensor<B>>,
}

/// The cached keys and values of each layer of a [`T5`]'s decoder for a batch: of its own tokens and of the encoded
/// text.
#[derive(Debug)]
pub struct T5Cache<B: Backend = AnyBackend> {
    layers: Vec<[KvCache<B>; 2]>,
}

impl<B: Backend> T5Cache<B> {
    /// Number of decoder tokens of each sequence in the cache.
    pub fn len(&self) -> usize {
        self.layers.first().map_or(0, |[own, _]| own.len())
    }

    /// Whether the cache holds no tokens.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<B: Backend> T5<B> {
    /// A model with random weights, initialised like T5.
    ///
    /// # Errors
    /// When the config is contradictory or requires something that is not implemented, or memory runs out.
    pub fn new(config: &T5Config, device: &Device<B>) -> Result<Self> {
        config.check()?;
        let init = Init::Normal {
            mean: 0.0,
            std: config.initializer_factor,
        };
        let shared = EmbeddingConfig::new(config.vocab_size, config.d_model)
            .init(init)
            .build(device)?;
        let tokens = || shared.weight.clone();
        let lm_head = lm_head(&shared, config.tie_word_embeddings, init, device)?;
        Ok(Self {
            encoder: Encoder::new(config, tokens(), device)?,
            decoder: Decoder::new(config, tokens(), device)?,
            lm_head: lm_head.into(),
            config: config.clone(),
            shared: shared.into(),
        })
    }

    /// The config.
    pub fn config(&self) -> &T5Config {
        &self.config
    }

    /// The logits `[N, T, vocab_size]` of the token after each of `decoder_ids [N, T]`, given the text `ids [N, S]`
    /// (both i64). `attention_mask [N, S]` is 1 (or true) for tokens of the text, 0 (or false) for padding; without a
    /// mask there is no padding.
    ///
    /// # Errors
    /// When shapes do not fit, or a token is outside the vocabulary.
    pub fn forward(
        &self,
        ids: &Tensor<B>,
        attention_mask: Option<&Tensor<B>>,
        decoder_ids: &Tensor<B>,
    ) -> Result<Tensor<B>> {
        watch::layer(self, ids, || {
            let encoded = self.encode(ids, attention_mask)?;
            self.decode(decoder_ids, &encoded, attention_mask, &mut self.new_cache())
        })
    }

    /// The vectors of a text `[N, S, d_model]` for [`T5::decode`].
    ///
    /// # Errors
    /// As [`T5::forward`].
    pub fn encode(&self, ids: &Tensor<B>, attention_mask: Option<&Tensor<B>>) -> Result<Tensor<B>> {
        let size = token_shape(NAME, ids)?;
        let padding = attention_mask.map(|mask| padding_mask(NAME, mask, size)).transpose()?;
        self.encoder
            .forward(&self.shared.forward(ids)?, padding.as_ref(), |_| {})
    }

    /// The vectors of all layers, for the arguments of [`T5::forward`].
    ///
    /// # Errors
    /// As [`T5::forward`].
    pub fn hidden_states(
        &self,
        ids: &Tensor<B>,
        attention_mask: Option<&Tensor<B>>,
        decoder_ids: &Tensor<B>,
    ) -> Result<T5HiddenStates<B>> {
        let padding = attention_mask
            .map(|mask| padding_mask(NAME, mask, token_shape(NAME, ids)?))
            .transpose()?;
        token_shape(NAME, decoder_ids)?;
        let (mut encoder, mut decoder) = (Vec::new(), Vec::new());
        let mut cache = self.new_cache();
        let text = self
            .encoder
            .forward(&self.shared.forward(ids)?, padding.as_ref(), |x| {
                encoder.push(x.clone())
            })?;
        let tokens = self.shared.forward(decoder_ids)?;
        let last = self
            .decoder
            .forward(&tokens, &text, padding.as_ref(), &mut cache.layers, |x| {
                decoder.push(x.clone())
            })?;
        encoder.push(text);
        decoder.push(last);
        Ok(T5HiddenStates { encoder, decoder })
    }

    /// An empty cache for [`T5::decode`].
    pub fn new_cache(&self) -> T5Cache<B> {
        T5Cache {
            layers: (0..self.config.decoder_layers())
                .map(|_| [KvCache::new(), KvCache::new()])
                .collect(),
        }
    }

    /// The logits of the token after each of `decoder_ids [N, T]`, which follow the cached tokens, given an encoded
    /// text. The cache then also holds these tokens, and the keys and values of the text: use a new cache for another
    /// text.
    ///
    /// # Errors
    /// As [`T5::forward`], and when the cache is from another model or batch.
    pub fn decode(
        &self,
        decoder_ids: &Tensor<B>,
        encoded: &Tensor<B>,
        attention_mask: Option<&Tensor<B>>,
        cache: &mut T5Cache<B>,
    ) -> Result<Tensor<B>> {
        token_shape(NAME, decoder_ids)?;
        if encoded.rank() != 3 || cache.layers.len() != self.config.decoder_layers() {
            return Err(
                Error::invalid("takes what encode gives, and a cache that new_cache has made")
                    .with_op(NAME)
                    .with_operands([(encoded.shape(), encoded.dtype())]),
            );
        }
        let size = (encoded.shape()[0], encoded.shape()[1]);
        let padding = attention_mask.map(|mask| padding_mask(NAME, mask, size)).transpose()?;
        let tokens = self.shared.forward(decoder_ids)?;
        let mut x = all_or_nothing(cache.layers.as_mut_slice(), |layers| {
            self.decoder.forward(&tokens, encoded, padding.as_ref(), layers, |_| {})
        })?;
        if self
            .config
            .scale_decoder_outputs
            .unwrap_or(self.config.tie_word_embeddings)
        {
            x = (&x * (self.config.d_model as f64).sqrt().recip())?;
        }
        self.lm_head.forward(&x)
    }

    /// The decoder's input in training for these targets `[N, T]` (i64): the targets moved one place to the right,
    /// after `decoder_start_token_id`. −100, which losses ignore, becomes `pad_token_id`.
    ///
    /// # Errors
    /// When the shape does not fit.
    pub fn shift_right(&self, targets: &Tensor<B>) -> Result<Tensor<B>> {
        let (n, length) = token_shape(NAME, targets)?;
        let start = Tensor::full(
            [n, 1],
            self.config.decoder_start_token_id,
            (&targets.device(), targets.dtype()),
        )?;
        let shifted = Tensor::cat(&[&start, &targets.narrow(1, 0, length.saturating_sub(1))?], 1)?;
        shifted.masked_fill(&shifted.eq(-100)?, self.config.pad_token_id)
    }
}
