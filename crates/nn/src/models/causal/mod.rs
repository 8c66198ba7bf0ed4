//! Language models that predict the next token, and text generation with them.

mod cache;
mod config;
mod continuous;
mod generation;
mod past;
mod with_head;

use polygrad_tensor::{Backend, DType, Device, Error, Result, Tensor};

pub use cache::CausalLmCache;
pub(super) use cache::{Places, Ragged};
pub use config::GenerateConfig;
pub use continuous::{ContinuousBatch, NextToken};
pub use generation::Generation;
pub(super) use past::Past;
pub(super) use with_head::with_head;

use super::config::token_shape;
use crate::layers::all_or_nothing;
use crate::{Embedding, Init, Linear, Module};

/// A model that predicts the next token from those before it: the interface that generation uses.
///
/// Generation uses the cache, computes no gradients, and keeps the model's mode: call [`eval`](Module::eval) first.
///
/// ```
/// use polygrad_nn::Module;
/// use polygrad_nn::models::{CausalLm, GenerateConfig, Gpt2, Gpt2Config};
/// # use polygrad_reference::Reference;
/// # use polygrad_tensor::{Device, Result};
/// # fn main() -> Result<()> {
/// # let device = Device::<Reference>::default();
/// let (n_layer, n_head) = (2, 2);
/// let config = Gpt2Config { vocab_size: 11, n_positions: 16, n_embd: 8, n_layer, n_head, ..Gpt2Config::default() };
/// let model = Gpt2::new(&config, &device)?;
/// model.eval();
///
/// // Prompts of different lengths; each is continued as if it were alone.
/// let options = GenerateConfig::greedy().repetition_penalty(1.2).stop_sequence([3, 4]);
/// let rows = model.generate_batch(&[vec![1, 5, 2], vec![7]], 4, &options)?;
/// assert_eq!(rows[1][0], 7);
///
/// // Step by step, as the tokens come.
/// for step in model.stream(&[vec![1, 5, 2]], 4, &options)? {
///     print!("{:?} ", step?[0]);
/// }
/// # Ok(())
/// # }
/// ```
pub trait CausalLm<B: Backend>: Module<B> {
    /// The model's name in errors.
    fn name(&self) -> &'static str;

    /// Size of the vocabulary.
    fn vocab_size(&self) -> usize;

    /// Length of the longest sequence.
    fn num_positions(&self) -> usize;

    /// An empty cache for [`CausalLm::forward_cached`].
    fn new_cache(&self) -> CausalLmCache<B>;

    /// The logits `[N, S, vocab_size]` of the token after each of `ids [N, S]` (i64), which follow the cached tokens;
    /// the cache then holds them, too.
    ///
    /// # Errors
    /// When a sequence is longer than there are positions, a token is outside the vocabulary, or the cache is from
    /// another model or batch.
    fn forward_cached(&self, ids: &Tensor<B>, cache: &mut CausalLmCache<B>) -> Result<Tensor<B>>;

    /// [`CausalLm::forward_cached`] that returns only the logits `[N, vocab_size]` after the last token.
    ///
    /// # Errors
    /// As [`CausalLm::forward_cached`].
    fn next_logits(&self, ids: &Tensor<B>, cache: &mut CausalLmCache<B>) -> Result<Tensor<B>> {
        self.forward_cached(ids, cache)?.select(1, -1)
    }

    /// The logits `[N, vocab_size]` after the last token of each of N sequences that may differ in length. `ids [1, T]`
    /// (i64) has `lengths` further tokens of each sequence, concatenated. Each sequence has a cache of its own, made by
    /// [`CausalLm::new_cache`], which then holds them, too. The speed of batches that sequences join depends on this
    /// method: linear layers should see all tokens at once. [`CausalLm::next_logits_in_turn`] is a correct but slow
    /// implementation for models without a better one.
    ///
    /// # Errors
    /// As [`CausalLm::forward_cached`], and when the numbers of tokens, lengths and caches do not match. The caches are
    /// then as they were before.
    fn next_logits_each(
        &self,
        ids: &Tensor<B>,
        lengths: &[usize],
        caches: &mut [&mut CausalLmCache<B>],
    ) -> Result<Tensor<B>>;

    /// [`CausalLm::next_logits_each`] by calling [`CausalLm::next_logits`] for one sequence after another.
    ///
    /// # Errors
    /// As [`CausalLm::next_logits_each`].
    fn next_logits_in_turn(
        &self,
        ids: &Tensor<B>,
        lengths: &[usize],
        caches: &mut [&mut CausalLmCache<B>],
    ) -> Result<Tensor<B>> {
        if lengths.len() != caches.len() {
            let text = format!("{} lengths and {} caches", lengths.len(), caches.len());
            return Err(Error::shape(text)
                .with_op(self.name())
                .with_hint("give each sequence its length and its cache"));
        }
        all_or_nothing(caches, |caches| {
            let (mut rows, mut start) = (Vec::with_capacity(lengths.len()), 0);
            for (cache, &length) in caches.iter_mut().zip(lengths) {
                rows.push(self.next_logits(&ids.narrow(1, start, length)?, cache)?);
                start += length;
            }
            Tensor::cat(&rows.iter().collect::<Vec<_>>(), 0)
        })
    }

    /// Continues each prompt by up to `count` tokens. A sequence ends with [`GenerateConfig::eos_token_id`], after a
    /// stop sequence, or when it has them all. Each prompt is continued as if it were alone.
    ///
    /// # Errors
    /// When the options are out of range, there are not enough positions, or a prompt is empty or contains a token
    /// outside the vocabulary.
    fn generate_batch(&self, prompts: &[Vec<i64>], count: usize, config: &GenerateConfig) -> Result<Vec<Vec<i64>>> {
        let mut generation = self.stream(prompts, count, config)?;
        generation.by_ref().try_for_each(|step| step.map(drop))?;
        Ok(generation.into_rows())
    }

    /// `prompt [N, S]` (i64, S at least 1) with up to `count` further tokens for each sequence: fewer only if all have
    /// ended. Sequences that end earlier are filled with [`GenerateConfig::pad_token_id`].
    ///
    /// # Errors
    /// As [`CausalLm::generate_batch`], and when sequences may end at different lengths and there is no token to fill
    /// them with.
    fn generate(&self, prompt: &Tensor<B>, count: usize, config: &GenerateConfig) -> Result<Tensor<B>> {
        let (n, length) = token_shape(self.name(), prompt)?;
        if length == 0 || n == 0 {
            return Err(Error::shape("there is no prompt to go on from")
                .with_op("generate")
                .with_operands([(prompt.shape(), prompt.dtype())]));
        }
        let fill = config.fill(n)?;
        let prompts = prompt.to_dtype(DType::I64)?.to_vec::<i64>()?;
        let prompts: Vec<Vec<i64>> = prompts.chunks_exact(length).map(<[i64]>::to_vec).collect();
        let mut rows = self.generate_batch(&prompts, count, config)?;
        let longest = rows.iter().map(Vec::len).max().unwrap_or(0);
        rows.iter_mut().for_each(|row| row.resize(longest, fill));
        Tensor::from_vec(rows.concat(), [n, longest], &prompt.device())
    }

    /// Streams the tokens as they are generated: see [`Generation`].
    ///
    /// # Errors
    /// As [`CausalLm::generate_batch`]; the model's errors come with the steps.
    fn stream(&self, prompts: &[Vec<i64>], count: usize, config: &GenerateConfig) -> Result<Generation<'_, B, Self>> {
        Generation::new(self, prompts, count, config)
    }
}

/// The projection of vectors to the vocabulary's logits: tied to the token embedding, whose weight it shares, or with a
/// weight of its own.
pub(super) fn lm_head<B: Backend>(
    words: &Embedding<B>,
    tied: bool,
    init: Init,
    device: &Device<B>,
) -> Result<Linear<B>> {
    let weight = match tied {
        true => words.weight.clone(),
        false => init.param(words.weight.shape(), device)?,
    };
    Ok(Linear::of(weight, None))
}

/// The number of sequences in `ids` and their length; fails if they exceed the positions left after `start` tokens.
pub(super) fn sized<B: Backend>(
    model: &'static str,
    ids: &Tensor<B>,
    start: usize,
    positions: usize,
) -> Result<(usize, usize)> {
    let (n, length) = token_shape(model, ids)?;
    fits(model, start.saturating_add(length), positions)?;
    Ok((n, length))
}

fn fits(model: &'static str, end: usize, positions: usize) -> Result<()> {
    if end <= positions {
        return Ok(());
    }
    Err(
        Error::out_of_range(format!("{end} tokens, but there are {positions} positions"))
            .with_op(model)
            .with_hint("cut the sequence, or build the model with more positions"),
    )
}

/// Fails unless a model can continue this prompt by `count` tokens.
fn check_prompt<B: Backend, M: CausalLm<B> + ?Sized>(model: &M, prompt: &[i64], count: usize) -> Result<()> {
    if prompt.is_empty() {
        return Err(Error::shape("there is no prompt to go on from")
            .with_op("generate")
            .with_hint("begin with a token, such as the one for the beginning of a text"));
    }
    let (length, positions) = (prompt.len(), model.num_positions());
    if length.saturating_add(count) > positions {
        let text = format!("{length} tokens and {count} more, but there are {positions} positions");
        return Err(Error::out_of_range(text)
            .with_op("generate")
            .with_hint("ask for fewer tokens, or cut the prompt"));
    }
    for &token in prompt {
        if usize::try_from(token).map_or(true, |token| token >= model.vocab_size()) {
            let text = format!("token {token} is outside the vocabulary of {}", model.vocab_size());
            return Err(Error::out_of_range(text)
                .with_op("generate")
                .with_hint("encode the prompt with the model's own tokenizer"));
        }
    }
    Ok(())
}

/// The device of a model's parameters.
fn device_of<B: Backend, M: CausalLm<B> + ?Sized>(model: &M) -> Result<Device<B>> {
    match model.parameters().first() {
        Some(param) => Ok(param.device()),
        None => Err(Error::invalid("a model without parameters").with_op("generate")),
    }
}
