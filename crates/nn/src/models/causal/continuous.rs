//! Continuous batching: sequences join and leave a batch while others go on.

use std::fmt;

use polygrad_core::Rng;
use polygrad_tensor::{Backend, Device, Error, Result, Tensor, no_grad};

use super::{CausalLm, CausalLmCache, GenerateConfig, check_prompt, device_of};

/// Sequences that a model continues together although each begins and ends at its own time, as a server with many
/// clients needs. Each step multiplies the tokens of all sequences by the weights at once. Attention is separate for
/// each sequence, so the sequences do not influence each other, except that the rounding of products depends on their
/// number of rows.
///
/// Source: Yu et al., "Orca: a distributed serving system for transformer-based generative models" (2022).
///
/// ```
/// use polygrad_nn::Module;
/// use polygrad_nn::models::{ContinuousBatch, GenerateConfig, Gpt2, Gpt2Config};
/// # use polygrad_reference::Reference;
/// # use polygrad_tensor::{Device, Result};
/// # fn main() -> Result<()> {
/// # let device = Device::<Reference>::default();
/// # let (n_layer, n_head) = (2, 2);
/// # let config = Gpt2Config { vocab_size: 11, n_positions: 16, n_embd: 8, n_layer, n_head, ..Gpt2Config::default() };
/// let model = Gpt2::new(&config, &device)?;
/// model.eval();
/// let mut batch = ContinuousBatch::new(&model)?;
/// let first = batch.join(&[1, 5, 2], 4, &GenerateConfig::greedy(), 0)?;
/// batch.step(64)?;
/// let second = batch.join(&[7], 2, &GenerateConfig::sample(), 3)?;
/// let step = batch.step(64)?;
/// assert_eq!(step.iter().map(|(sequence, _)| *sequence).collect::<Vec<_>>(), [first, second]);
/// # Ok(())
/// # }
/// ```
pub struct ContinuousBatch<'a, B: Backend, M: ?Sized> {
    model: &'a M,
    device: Device<B>,
    rows: Vec<Row<B>>,
    /// Number of sequences that have joined so far.
    joined: usize,
}

/// The next token of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextToken {
    /// The token.
    pub token: i64,
    /// Whether it ends the sequence according to the options ([`GenerateConfig::eos_token_id`] or a stop sequence).
    pub is_end: bool,
    /// Whether the sequence has left the batch with this token, since it has ended or has all requested tokens.
    pub is_last: bool,
}

struct Row<B: Backend> {
    sequence: usize,
    /// The prompt and the generated tokens.
    tokens: Vec<i64>,
    prompt: usize,
    /// Number of tokens in the cache.
    read: usize,
    count: usize,
    config: GenerateConfig,
    draws: Rng,
    cache: CausalLmCache<B>,
}

impl<'a, B: Backend, M: CausalLm<B> + ?Sized> ContinuousBatch<'a, B, M> {
    /// An empty batch.
    ///
    /// # Errors
    /// When the model has no parameters.
    pub fn new(model: &'a M) -> Result<Self> {
        Ok(Self {
            device: device_of(model)?,
            model,
            rows: Vec::new(),
            joined: 0,
        })
    }

    /// Adds a sequence that gets up to `count` tokens in the following steps, and returns its number. Random tokens
    /// depend on `seed` and on this sequence, not on others.
    ///
    /// # Errors
    /// When the options are out of range, there are not enough positions, or the prompt is empty or contains a token
    /// outside the vocabulary.
    pub fn join(&mut self, prompt: &[i64], count: usize, config: &GenerateConfig, seed: u64) -> Result<usize> {
        config.check()?;
        check_prompt(self.model, prompt, count)?;
        if count == 0 {
            return Err(Error::invalid("a sequence that is to get no tokens")
                .with_op("generate")
                .with_hint("ask for at least one"));
        }
        let mut cache = self.model.new_cache();
        // The last token is never fed to the model.
        cache.reserve(prompt.len() + count - 1);
        self.rows.push(Row {
            sequence: self.joined,
            tokens: prompt.to_vec(),
            prompt: prompt.len(),
            read: 0,
            count,
            config: config.clone(),
            draws: Rng::new(seed),
            cache,
        });
        self.joined += 1;
        Ok(self.joined - 1)
    }

    /// Removes a sequence and frees its memory; does nothing if it has already left.
    pub fn leave(&mut self, sequence: usize) {
        self.rows.retain(|row| row.sequence != sequence);
    }

    /// Number of sequences in the batch.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether the batch is empty.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The next token of each sequence whose prompt has been read, with the sequence's number, in the order in which
    /// they joined. Prompts are read in parts, oldest first: at most `prompt_tokens` in one step, so that a long prompt
    /// does not delay the other sequences.
    ///
    /// A sequence whose token cannot be chosen because its logits are NaN gets the error and leaves.
    ///
    /// # Errors
    /// Those of the model; the sequences are then as they were before.
    pub fn step(&mut self, prompt_tokens: usize) -> Result<Vec<(usize, Result<NextToken>)>> {
        let mut room = prompt_tokens.max(1);
        let (mut ids, mut lengths, mut caches) = (Vec::new(), Vec::new(), Vec::new());
        for row in &mut self.rows {
            let unread = &row.tokens[row.read..];
            let part = match unread.len() {
                1 => 1,
                length => {
                    let part = length.min(room);
                    room -= part;
                    part
                }
            };
            ids.extend_from_slice(&unread[..part]);
            lengths.push(part);
            if part > 0 {
                caches.push(&mut row.cache);
            }
        }
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let total = ids.len();
        let ids = Tensor::from_vec(ids, [1, total], &self.device)?;
        let read: Vec<usize> = lengths.iter().copied().filter(|&length| length > 0).collect();
        let logits = no_grad(|| self.model.next_logits_each(&ids, &read, &mut caches)?.to_f64_vec())?;
        let vocabulary = self.model.vocab_size();
        if vocabulary == 0 || logits.len() != read.len() * vocabulary {
            let text = format!(
                "{} logits for {} sequences and {vocabulary} tokens",
                logits.len(),
                read.len()
            );
            return Err(Error::shape(text).with_op("generate"));
        }
        Ok(self.choose(&lengths, logits, vocabulary))
    }

    /// Chooses the next token for each row whose tokens have all been read.
    fn choose(
        &mut self,
        lengths: &[usize],
        mut logits: Vec<f64>,
        vocabulary: usize,
    ) -> Vec<(usize, Result<NextToken>)> {
        let mut chosen = Vec::with_capacity(self.rows.len());
        let mut logits = logits.chunks_exact_mut(vocabulary);
        let mut lengths = lengths.iter();
        self.rows.retain_mut(|row| {
            let length = lengths.next().copied().unwrap_or(0);
            if length == 0 {
                return true;
            }
            let Some(logits) = logits.next() else { return true };
            row.read += length;
            if row.read < row.tokens.len() {
                return true;
            }
            let next = row.next(logits);
            let stays = matches!(next, Ok(NextToken { is_last: false, .. }));
            chosen.push((row.sequence, next));
            stays
        });
        chosen
    }
}

impl<B: Backend> Row<B> {
    fn next(&mut self, logits: &mut [f64]) -> Result<NextToken> {
        let draw = match self.config.is_random() {
            true => self.draws.uniform(),
            false => 0.0,
        };
        let token = self.config.choose(logits, &self.tokens, draw)? as i64;
        self.tokens.push(token);
        let new = &self.tokens[self.prompt..];
        let is_end = self.config.ends(new);
        Ok(NextToken {
            token,
            is_end,
            is_last: is_end || new.len() >= self.count,
        })
    }
}

impl<B: Backend, M: ?Sized> fmt::Debug for ContinuousBatch<'_, B, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "ContinuousBatch({} sequences, {} joined)",
            self.rows.len(),
            self.joined
        )
    }
}
