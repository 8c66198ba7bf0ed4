//! Language models of a kind that is known at run time.

use std::collections::BTreeMap;

use polygrad_nn::models::{CausalLm, CausalLmCache, Gpt2, Gpt2Config, Llama, LlamaConfig};
use polygrad_nn::{Linear, Module, Slot, StateDict, skip_init};
use polygrad_tensor::{AnyBackend, BlockScheme, Device, Result, Tensor};

/// A language model that a file or a folder describes, on a backend of run time. Its parameters have the names of the
/// model inside.
///
/// None of this is generic, so it is compiled with this crate: a program that is not optimized, such as the command
/// line, computes tokens as fast as one that is.
#[derive(Debug, Module)]
pub enum LanguageModel {
    /// A Llama, Mistral or Qwen2.
    Llama(Box<Llama>),
    /// A GPT-2.
    Gpt2(Box<Gpt2>),
}

impl LanguageModel {
    /// A Llama, Mistral or Qwen2 with random weights.
    ///
    /// # Errors
    /// As [`Llama::new`].
    pub fn llama(config: &LlamaConfig, device: &Device) -> Result<Self> {
        Llama::new(config, device).map(|model| Self::Llama(Box::new(model)))
    }

    /// A GPT-2 with random weights.
    ///
    /// # Errors
    /// As [`Gpt2::new`].
    pub fn gpt2(config: &Gpt2Config, device: &Device) -> Result<Self> {
        Gpt2::new(config, device).map(|model| Self::Gpt2(Box::new(model)))
    }

    /// A Llama of a GGUF file, as [`llama_from_gguf_packed`](polygrad_nn::models::llama_from_gguf_packed) reads it: the
    /// weights at the paths in `schemes` stay packed.
    ///
    /// # Errors
    /// As [`Llama::new`], and when the state dict does not fit the config.
    pub fn packed(
        config: &LlamaConfig,
        state: &StateDict,
        schemes: &BTreeMap<String, BlockScheme>,
        device: &Device,
    ) -> Result<Self> {
        let mut model = skip_init(|| Llama::new(config, device))?;
        model.pack(state, schemes)?;
        model.load_state_dict(state, true)?;
        Ok(Self::Llama(Box::new(model)))
    }

    /// The vectors `[N, S, width]` of `ids [N, S]` (i64) that the head takes. For rows that contain several sequences,
    /// `starts [N, S]` (i64) has, for each token, the place of the first token of its sequence.
    ///
    /// # Errors
    /// When a sequence is longer than there are positions, a token is outside the vocabulary, or there is not exactly
    /// one start for each token.
    pub fn hidden(&self, ids: &Tensor, starts: Option<&Tensor>) -> Result<Tensor> {
        match (self, starts) {
            (Self::Llama(own), None) => own.model.forward(ids),
            (Self::Llama(own), Some(starts)) => own.model.forward_packed(ids, starts),
            (Self::Gpt2(own), None) => own.transformer.forward(ids),
            (Self::Gpt2(own), Some(starts)) => own.transformer.forward_packed(ids, starts),
        }
    }

    /// The projection to the vocabulary's logits.
    pub fn head(&self) -> &Slot<Linear> {
        match self {
            Self::Llama(own) => &own.lm_head,
            Self::Gpt2(own) => &own.lm_head,
        }
    }
}

/// Calls a method of either kind of model.
macro_rules! either {
    ($lm:expr, $method:ident($($argument:expr),*)) => {
        match $lm {
            Self::Llama(model) => CausalLm::$method(&**model $(, $argument)*),
            Self::Gpt2(model) => CausalLm::$method(&**model $(, $argument)*),
        }
    };
}

impl CausalLm<AnyBackend> for LanguageModel {
    fn name(&self) -> &'static str {
        either!(self, name())
    }

    fn vocab_size(&self) -> usize {
        either!(self, vocab_size())
    }

    fn num_positions(&self) -> usize {
        either!(self, num_positions())
    }

    fn new_cache(&self) -> CausalLmCache<AnyBackend> {
        either!(self, new_cache())
    }

    fn forward_cached(&self, ids: &Tensor, cache: &mut CausalLmCache<AnyBackend>) -> Result<Tensor> {
        either!(self, forward_cached(ids, cache))
    }

    fn next_logits(&self, ids: &Tensor, cache: &mut CausalLmCache<AnyBackend>) -> Result<Tensor> {
        either!(self, next_logits(ids, cache))
    }

    fn next_logits_each(
        &self,
        ids: &Tensor,
        lengths: &[usize],
        caches: &mut [&mut CausalLmCache<AnyBackend>],
    ) -> Result<Tensor> {
        either!(self, next_logits_each(ids, lengths, caches))
    }
}
