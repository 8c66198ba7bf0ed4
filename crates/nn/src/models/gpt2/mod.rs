//! GPT-2.

mod attention;
mod block;
mod config;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use polygrad_tensor::{AnyBackend, Backend, Device, Result, Tensor, checkpoint};

pub use config::Gpt2Config;

use super::causal::{CausalLm, CausalLmCache, GenerateConfig, Places, sized};
use super::config::{check_heads, only};
use super::head::LmHead;
use crate::{Dropout, Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Module, watch};
use block::Block;

const NAME: &str = "Gpt2";

/// A decoder that predicts the next token, with the parameter names of Hugging Face's `GPT2LMHeadModel`.
///
/// Source: Radford et al., "Language models are unsupervised multitask learners" (2019).
///
/// ```
/// use polygrad_nn::loss::cross_entropy;
/// use polygrad_nn::models::{GenerateConfig, Gpt2, Gpt2Config};
/// use polygrad_nn::Module;
/// use polygrad_nn::optim::{AdamW, Optimizer};
/// # use polygrad_reference::Reference;
/// # use polygrad_tensor::{Device, Result, Tensor};
/// # fn main() -> Result<()> {
/// let device = Device::<Reference>::default();
/// let config = Gpt2Config { vocab_size: 11, n_positions: 16, n_embd: 8, n_layer: 2, n_head: 2, ..Gpt2Config::default() };
/// let model = Gpt2::new(&config, &device)?;
/// let mut optimizer = AdamW::new(model.parameters(), 1e-3)?;
///
/// let text = Tensor::new([[1i64, 5, 2, 7, 3]], &device)?;
/// let (inputs, targets) = (text.narrow(1, 0, 4)?, text.narrow(1, 1, 4)?);
/// let loss = cross_entropy(&model.forward(&inputs)?.flatten(0, 1)?, &targets.flatten(0, 1)?)?;
/// optimizer.backward_step(loss)?;
///
/// model.eval();
/// let longer = model.generate(&text, 3, &GenerateConfig::greedy())?;
/// assert_eq!(longer.dims(), [1, 8]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Module)]
pub struct Gpt2<B: Backend = AnyBackend> {
    transformer: Transformer<B>,
    lm_head: LmHead<B>,
    #[module(skip)]
    config: Gpt2Config,
    #[module(skip)]
    checkpointing: AtomicBool,
}

#[derive(Debug, Module)]
struct Transformer<B: Backend> {
    wte: Embedding<B>,
    wpe: Embedding<B>,
    drop: Dropout,
    h: Vec<Arc<Block<B>>>,
    ln_f: LayerNorm<B>,
}

impl<B: Backend> Gpt2<B> {
    /// A model with random weights, as GPT-2 begins.
    ///
    /// # Errors
    /// When the config is contradictory or asks for what is not there, or memory runs out.
    pub fn new(config: &Gpt2Config, device: &Device<B>) -> Result<Self> {
        check_heads(NAME, config.n_head, config.n_embd)?;
        only(NAME, "add_cross_attention", !config.add_cross_attention)?;
        let embedding = |rows: usize| {
            EmbeddingConfig::new(rows, config.n_embd)
                .init(config.init())
                .build(device)
        };
        let wte = embedding(config.vocab_size)?;
        let blocks = (0..config.n_layer).map(|layer| Block::new(config, layer, device).map(Arc::new));
        let lm_head = LmHead::new(&wte, config.tie_word_embeddings, config.init(), device)?;
        Ok(Self {
            transformer: Transformer {
                wpe: embedding(config.n_positions)?,
                drop: Dropout::new(config.embd_pdrop)?,
                h: blocks.collect::<Result<_>>()?,
                ln_f: LayerNormConfig::new([config.n_embd])
                    .eps(config.layer_norm_epsilon)
                    .build(device)?,
                wte,
            },
            lm_head,
            config: config.clone(),
            checkpointing: AtomicBool::new(false),
        })
    }

    /// The config.
    pub fn config(&self) -> &Gpt2Config {
        &self.config
    }

    /// Whether the backward pass computes each block again instead of keeping what it needs. Default: false.
    pub fn set_gradient_checkpointing(&self, on: bool) {
        self.checkpointing.store(on, Ordering::Relaxed);
    }

    /// The logits `[N, S, vocab_size]` of the token after each of `ids [N, S]` (i64).
    ///
    /// # Errors
    /// When a sequence is longer than `n_positions`, or a token is outside the vocabulary.
    pub fn forward(&self, ids: &Tensor<B>) -> Result<Tensor<B>> {
        watch::layer(self, ids, || {
            let (n, length) = sized(NAME, ids, 0, self.config.n_positions)?;
            let places = Places::new(NAME, (n, 0, length), None, &ids.device())?;
            let mut x = self.embed(ids, &places)?;
            for block in &self.transformer.h {
                x = if self.checkpointing.load(Ordering::Relaxed) {
                    let block = Arc::clone(block);
                    checkpoint(move |x| block.forward(&x[0], None, None), &[&x])?
                } else {
                    block.forward(&x, None, None)?
                };
            }
            self.logits(&x)
        })
    }

    /// An empty cache for [`Gpt2::forward_cached`].
    pub fn new_cache(&self) -> CausalLmCache<B> {
        CausalLmCache::new(self.transformer.h.len())
    }

    /// [`Gpt2::forward`] for further tokens of sequences whose first ones the cache holds.
    ///
    /// # Errors
    /// As [`Gpt2::forward`], and when the cache is of another model or batch.
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
        let blocks = &self.transformer.h;
        let size = sized(NAME, ids, cache.len(), self.config.n_positions)?;
        cache.extend(NAME, blocks.len(), size, &ids.device(), |layers, places| {
            let mut x = self.embed(ids, &places)?;
            for (block, cache) in blocks.iter().zip(layers) {
                x = block.forward(&x, Some(cache), places.mask.as_ref())?;
            }
            head(&x)
        })
    }

    fn embed(&self, ids: &Tensor<B>, places: &Places<B>) -> Result<Tensor<B>> {
        let tokens = self.transformer.wte.forward(ids)?;
        let positions = self.transformer.wpe.forward(&places.positions)?;
        self.transformer.drop.forward(&tokens.add(&positions)?)
    }

    fn logits(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let x = self.transformer.ln_f.forward(x)?;
        self.lm_head.forward(&x)
    }
}

impl<B: Backend> CausalLm<B> for Gpt2<B> {
    fn name(&self) -> &'static str {
        NAME
    }

    fn vocab_size(&self) -> usize {
        self.config.vocab_size
    }

    fn num_positions(&self) -> usize {
        self.config.n_positions
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
