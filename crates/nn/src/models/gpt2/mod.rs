//! GPT-2, and its building blocks for models of your own.

mod attention;
mod block;
mod config;

use std::sync::atomic::{AtomicBool, Ordering};

use polygrad_tensor::{AnyBackend, Backend, Device, Result, Tensor, checkpoint};

pub use config::Gpt2Config;

use super::causal::{CausalLmCache, Past, Places, with_head};
use super::config::{check_heads, layers, only};
use crate::{Dropout, Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, Module, Slot, watch};
pub use attention::Attention;
pub use block::{Block, Conv1D, Mlp};

const NAME: &str = "Gpt2Model";

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
/// let (n_layer, n_head) = (2, 2);
/// let config = Gpt2Config { vocab_size: 11, n_positions: 16, n_embd: 8, n_layer, n_head, ..Gpt2Config::default() };
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
    /// The model below the head.
    pub transformer: Gpt2Model<B>,
    /// The projection to the vocabulary.
    pub lm_head: Slot<Linear<B>, B>,
}

/// GPT-2 without a head: a vector for each token, with the names of Hugging Face's `GPT2Model`. The Hub's `gpt2` is a
/// file of this kind.
#[derive(Debug, Module)]
pub struct Gpt2Model<B: Backend = AnyBackend> {
    /// The vectors of tokens.
    pub wte: Slot<Embedding<B>, B>,
    /// The vectors of positions.
    pub wpe: Slot<Embedding<B>, B>,
    /// Dropout of their sum.
    pub drop: Dropout,
    /// The blocks.
    pub h: Vec<Block<B>>,
    /// The norm after the last block.
    pub ln_f: Slot<LayerNorm<B>, B>,
    #[module(skip)]
    config: Gpt2Config,
    #[module(skip)]
    checkpointing: AtomicBool,
}

impl<B: Backend> Gpt2Model<B> {
    fn words(config: &Gpt2Config, device: &Device<B>) -> Result<Embedding<B>> {
        check_heads(NAME, config.n_head, config.n_embd)?;
        only(NAME, "add_cross_attention", !config.add_cross_attention)?;
        EmbeddingConfig::new(config.vocab_size, config.n_embd)
            .init(config.init())
            .build(device)
    }

    fn with_words(config: &Gpt2Config, words: Embedding<B>, device: &Device<B>) -> Result<Self> {
        let blocks = layers(NAME, config.n_layer)?.map(|layer| Block::new(config, layer, device));
        Ok(Self {
            wpe: EmbeddingConfig::new(config.n_positions, config.n_embd)
                .init(config.init())
                .build(device)?
                .into(),
            drop: Dropout::new(config.embd_pdrop)?,
            h: blocks.collect::<Result<_>>()?,
            ln_f: LayerNormConfig::new([config.n_embd])
                .eps(config.layer_norm_epsilon)
                .build(device)?
                .into(),
            wte: words.into(),
            config: config.clone(),
            checkpointing: AtomicBool::new(false),
        })
    }

    /// The output of the last block; `before` is called with the input of each block.
    fn run(
        &self,
        ids: &Tensor<B>,
        starts: Option<&Tensor<B>>,
        mut before: impl FnMut(&Tensor<B>),
    ) -> Result<Tensor<B>> {
        let places = Places::first(NAME, ids, starts, self.config.n_positions)?;
        let mut x = self.embed(ids, &places)?;
        for block in &self.h {
            before(&x);
            x = if self.checkpointing.load(Ordering::Relaxed) {
                let (block, mask) = (block.clone(), places.mask.clone());
                checkpoint(move |x| block.forward(&x[0], Past::Nothing, mask.as_ref()), &[&x])?
            } else {
                block.forward(&x, Past::Nothing, places.mask.as_ref())?
            };
        }
        Ok(x)
    }

    /// The output of the last block for tokens that follow each block's cached ones.
    fn after<'a>(
        &self,
        ids: &Tensor<B>,
        places: &Places<B>,
        pasts: impl IntoIterator<Item = Past<'a, B>>,
    ) -> Result<Tensor<B>> {
        let mut x = self.embed(ids, places)?;
        for (block, past) in self.h.iter().zip(pasts) {
            x = block.forward(&x, past, places.mask.as_ref())?;
        }
        Ok(x)
    }

    fn embed(&self, ids: &Tensor<B>, places: &Places<B>) -> Result<Tensor<B>> {
        let positions = self.wpe.forward(&places.positions)?;
        self.drop.forward(&self.wte.forward(ids)?.add(&positions)?)
    }
}

with_head!(Gpt2(transformer: Gpt2Model), Gpt2Config, h, ln_f, n_positions);
