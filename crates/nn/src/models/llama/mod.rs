//! Llama, and its building blocks for models of your own.

mod config;
mod gguf;
mod layer;
mod pack;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use polygrad_tensor::{AnyBackend, Backend, Device, Result, Tensor, checkpoint};

pub use config::{LlamaConfig, RopeScaling};
pub use gguf::{GgufTensor, GgufValue, llama_config_from_gguf, llama_from_gguf, llama_from_gguf_packed, llama_to_gguf};

use super::causal::{CausalLmCache, Past, Places, with_head};
use super::config::layers;
use crate::{Embedding, EmbeddingConfig, Linear, Module, RMSNorm, Slot, watch};
pub use layer::{Attention, DecoderLayer, Mlp};
use layer::{Turns, norm};

const NAME: &str = "LlamaModel";

/// A decoder that predicts the next token, with rotary positions, RMS norms, gated linear layers and query heads that
/// share keys and values (grouped-query attention), and with the parameter names of Hugging Face's `LlamaForCausalLM`.
/// Mistral and Qwen2 are the same model: see [`LlamaConfig`].
///
/// Sources: Touvron et al., "LLaMA: open and efficient foundation language models" (2023); Ainslie et al., "GQA:
/// training generalized multi-query transformer models from multi-head checkpoints" (2023); Shazeer, "GLU variants
/// improve transformer" (2020).
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
    /// The model below the head.
    pub model: LlamaModel<B>,
    /// The projection to the vocabulary.
    pub lm_head: Slot<Linear<B>, B>,
}

/// Llama without a head: a vector for each token, with the names of Hugging Face's `LlamaModel`. A classifier with the
/// names of `LlamaForSequenceClassification` is this and a linear layer:
///
/// ```
/// use polygrad_nn::models::{LlamaConfig, LlamaModel};
/// use polygrad_nn::{Linear, LinearConfig, Module};
/// # use polygrad_reference::Reference;
/// use polygrad_tensor::{Device, Result, Tensor};
///
/// #[derive(Module)]
/// struct Classifier {
///     model: LlamaModel,
///     score: Linear,
/// }
///
/// impl Classifier {
///     /// Logits `[N, classes]` of texts `[N, S]` that are filled up on the right, by the vector of each one's last
///     /// token, which is at `last [N]`.
///     fn forward(&self, ids: &Tensor, last: &Tensor) -> Result<Tensor> {
///         let x = self.model.forward(ids)?;
///         let at = last.reshape((-1, 1, 1))?.expand([x.dims()[0], 1, x.dims()[2]])?;
///         self.score.forward(&x.gather(1, &at)?.squeeze(1)?)
///     }
/// }
///
/// # fn main() -> Result<()> {
/// # let device = Device::<Reference>::default().into_any();
/// # let config = LlamaConfig {
/// #     vocab_size: 11,
/// #     hidden_size: 8,
/// #     intermediate_size: 12,
/// #     num_hidden_layers: 2,
/// #     num_attention_heads: 4,
/// #     ..LlamaConfig::default()
/// # };
/// let score = LinearConfig::new(config.hidden_size, 3).bias(false).build(&device)?;
/// let classifier = Classifier { model: LlamaModel::new(&config, &device)?, score };
/// let ids = Tensor::new([[1i64, 5, 2], [4, 3, 0]], &device)?;
/// let logits = classifier.forward(&ids, &Tensor::new([2i64, 1], &device)?)?;
/// assert_eq!(logits.dims(), [2, 3]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Module)]
#[module(unused = "rotary_emb.inv_freq")]
pub struct LlamaModel<B: Backend = AnyBackend> {
    /// The vectors of tokens.
    pub embed_tokens: Slot<Embedding<B>, B>,
    /// The blocks.
    pub layers: Vec<DecoderLayer<B>>,
    /// The norm after the last block.
    pub norm: Slot<RMSNorm<B>, B>,
    #[module(skip)]
    config: LlamaConfig,
    #[module(skip)]
    checkpointing: AtomicBool,
}

impl<B: Backend> LlamaModel<B> {
    fn words(config: &LlamaConfig, device: &Device<B>) -> Result<Embedding<B>> {
        config.check()?;
        EmbeddingConfig::new(config.vocab_size, config.hidden_size)
            .init(config.init())
            .build(device)
    }

    fn with_words(config: &LlamaConfig, words: Embedding<B>, device: &Device<B>) -> Result<Self> {
        let layers = layers("Llama", config.num_hidden_layers)?.map(|_| DecoderLayer::new(config, device));
        Ok(Self {
            layers: layers.collect::<Result<_>>()?,
            norm: norm(config, device)?,
            embed_tokens: words.into(),
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
        let Places { positions, mask } = Places::first(NAME, ids, starts, self.config.max_position_embeddings)?;
        let mut x = self.embed_tokens.forward(ids)?;
        let turns = Arc::new(Turns::new(&self.config, &positions, x.dtype())?);
        for layer in &self.layers {
            before(&x);
            x = if self.checkpointing.load(Ordering::Relaxed) {
                let (layer, turns, mask) = (layer.clone(), Arc::clone(&turns), mask.clone());
                checkpoint(
                    move |x| layer.forward(&x[0], &turns, Past::Nothing, mask.as_ref()),
                    &[&x],
                )?
            } else {
                layer.forward(&x, &turns, Past::Nothing, mask.as_ref())?
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
        let mut x = self.embed_tokens.forward(ids)?;
        let turns = Turns::new(&self.config, &places.positions, x.dtype())?;
        for (layer, past) in self.layers.iter().zip(pasts) {
            x = layer.forward(&x, &turns, past, places.mask.as_ref())?;
        }
        Ok(x)
    }
}

with_head!(Llama(model: LlamaModel), LlamaConfig, layers, norm, max_position_embeddings);
