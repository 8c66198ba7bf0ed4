//! Llama.

mod config;
mod gguf;
mod layer;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use polygrad_tensor::{AnyBackend, Backend, Device, Result, Tensor, checkpoint};

pub use config::{LlamaConfig, RopeScaling};
pub use gguf::{GgufValue, llama_from_gguf};

use super::causal::{CausalLm, CausalLmCache, GenerateConfig, Places, sized};
use super::head::LmHead;
use crate::{Embedding, EmbeddingConfig, Module, RMSNorm, watch};
use layer::{DecoderLayer, Turns, norm};

const NAME: &str = "Llama";

/// A decoder that predicts the next token, with rotary positions, RMS norms, gated linear layers and heads of queries that share keys and values,
/// and with the parameter names of Hugging Face's `LlamaForCausalLM`. Mistral and Qwen2 are the same model: see [`LlamaConfig`].
///
/// Sources: Touvron et al., "LLaMA: open and efficient foundation language models" (2023); Ainslie et al., "GQA: training generalized multi-query
/// transformer models from multi-head checkpoints" (2023); Shazeer, "GLU variants improve transformer" (2020).
///
/// ```
/// use polygrad_nn::Module;
/// use polygrad_nn::models::{GenerateConfig, Llama, LlamaConfig};
/// # use polygrad_reference::Reference;
/// # use polygrad_tensor::{Device, Result, Tensor};
/// # fn main() -> Result<()> {
/// let device = Device::<Reference>::default();
/// let config = LlamaConfig {
///     vocab_size: 11,
///     hidden_size: 8,
///     intermediate_size: 12,
///     num_hidden_layers: 2,
///     num_attention_heads: 4,
///     num_key_value_heads: Some(2),
///     ..LlamaConfig::default()
/// };
/// let model = Llama::new(&config, &device)?;
/// model.eval();
/// let longer = model.generate(&Tensor::new([[1i64, 5, 2]], &device)?, 3, &GenerateConfig::greedy())?;
/// assert_eq!(longer.dims(), [1, 6]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Module)]
pub struct Llama<B: Backend = AnyBackend> {
    model: Decoder<B>,
    lm_head: LmHead<B>,
    #[module(skip)]
    config: LlamaConfig,
    #[module(skip)]
    checkpointing: AtomicBool,
}

#[derive(Debug, Module)]
struct Decoder<B: Backend> {
    embed_tokens: Embedding<B>,
    layers: Vec<Arc<DecoderLayer<B>>>,
    norm: RMSNorm<B>,
}

impl<B: Backend> Llama<B> {
    /// A model with random weights, as Llama begins.
    ///
    /// # Errors
    /// When the config is contradictory or asks for what is not there, or memory runs out.
    pub fn new(config: &LlamaConfig, device: &Device<B>) -> Result<Self> {
        config.check()?;
        let embed_tokens = EmbeddingConfig::new(config.vocab_size, config.hidden_size)
            .init(config.init())
            .build(device)?;
        let layers = (0..config.num_hidden_layers).map(|_| DecoderLayer::new(config, device).map(Arc::new));
        let lm_head = LmHead::new(&embed_tokens, config.tie_word_embeddings, config.init(), device)?;
        Ok(Self {
            model: Decoder {
                layers: layers.collect::<Result<_>>()?,
                norm: norm(config, device)?,
                embed_tokens,
            },
            lm_head,
            config: config.clone(),
            checkpointing: AtomicBool::new(false),
        })
    }

    /// The config.
    pub fn config(&self) -> &LlamaConfig {
        &self.config
    }

    /// Whether the backward pass computes each block again instead of keeping what it needs. Default: false.
    pub fn set_gradient_checkpointing(&self, on: bool) {
        self.checkpointing.store(on, Ordering::Relaxed);
    }

    /// The logits `[N, S, vocab_size]` of the token after each of `ids [N, S]` (i64).
    ///
    /// # Errors
    /// When a sequence is longer than `max_position_embeddings`, or a token is outside the vocabulary.
    pub fn forward(&self, ids: &Tensor<B>) -> Result<Tensor<B>> {
        watch::layer(self, ids, || {
            let (n, length) = sized(NAME, ids, 0, self.config.max_position_embeddings)?;
            let places = Places::new(NAME, (n, 0, length), None, &ids.device())?;
            let mut x = self.model.embed_tokens.forward(ids)?;
            let turns = Arc::new(Turns::new(&self.config, &places.positions, x.dtype())?);
            for layer in &self.model.layers {
                x = if self.checkpointing.load(Ordering::Relaxed) {
                    let (layer, turns) = (Arc::clone(layer), Arc::clone(&turns));
                    checkpoint(move |x| layer.forward(&x[0], &turns, None, None), &[&x])?
                } else {
                    layer.forward(&x, &turns, None, None)?
                };
            }
            self.logits(&x)
        })
    }

    /// An empty cache for [`Llama::forward_cached`].
    pub fn new_cache(&self) -> CausalLmCache<B> {
        CausalLmCache::new(self.model.layers.len())
    }

    /// [`Llama::forward`] for further tokens of sequences whose first ones the cache holds.
    ///
    /// # Errors
    /// As [`Llama::forward`], and when the cache is of another model or batch.
    pub fn forward_cached(&self, ids: &Tensor<B>, cache: &mut CausalLmCache<B>) -> Result<Tensor<B>> {
        watch::layer(self, ids, || self.extend(ids, cache, |x| self.logits(x)))
    }

    /// `prompt [N, S]` with up to `count` further tokens: [`CausalLm::generate`].
    ///
    /// # Errors
    /// As [`CausalLm::generate`].
    pub fn generate(&self, prompt: &Tensor<B>, count: usize, config: &GenerateConfig) -> Result<Tensor<B>> {
        CausalLm::generate(self, prompt, count, config)
    }

    fn extend(
        &self,
        ids: &Tensor<B>,
        cache: &mut CausalLmCache<B>,
        head: impl FnOnce(&Tensor<B>) -> Result<Tensor<B>>,
    ) -> Result<Tensor<B>> {
        let layers = &self.model.layers;
        let size = sized(NAME, ids, cache.len(), self.config.max_position_embeddings)?;
        cache.extend(NAME, layers.len(), size, &ids.device(), |caches, places| {
            let mut x = self.model.embed_tokens.forward(ids)?;
            let turns = Turns::new(&self.config, &places.positions, x.dtype())?;
            for (layer, cache) in layers.iter().zip(caches) {
                x = layer.forward(&x, &turns, Some(cache), places.mask.as_ref())?;
            }
            head(&x)
        })
    }

    fn logits(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let x = self.model.norm.forward(x)?;
        self.lm_head.forward(&x)
    }
}

impl<B: Backend> CausalLm<B> for Llama<B> {
    fn name(&self) -> &'static str {
        NAME
    }

    fn vocab_size(&self) -> usize {
        self.config.vocab_size
    }

    fn num_positions(&self) -> usize {
        self.config.max_position_embeddings
    }

    fn new_cache(&self) -> CausalLmCache<B> {
        self.new_cache()
    }

    fn forward_cached(&self, ids: &Tensor<B>, cache: &mut CausalLmCache<B>) -> Result<Tensor<B>> {
        self.forward_cached(ids, cache)
    }

    fn next_logits(&self, ids: &Tensor<B>, cache: &mut CausalLmCache<B>) -> Result<Tensor<B>> {
        watch::layer(self, ids, || {
            self.extend(ids, cache, |x| self.logits(&x.select(1, -1)?))
        })
    }
}
