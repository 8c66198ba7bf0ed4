//! Step-by-step generation of tokens.

use std::fmt;

use polygrad_tensor::{Backend, Device, Error, Result, Tensor, no_grad};

use super::{CausalLm, CausalLmCache, GenerateConfig, check_prompt, device_of};

/// Sequences that a model continues, one token per step. The iterator yields the new token of each sequence, `None` for
/// those that have ended. It finishes when every sequence has ended or has all requested tokens, or after an error.
///
/// Made by [`CausalLm::stream`].
pub struct Generation<'a, B: Backend, M: ?Sized> {
    model: &'a M,
    config: GenerateConfig,
    device: Device<B>,
    cache: CausalLmCache<B>,
    rows: Vec<Row>,
    /// Tokens that the model has not seen yet, `[N, S]`.
    next: Tensor<B>,
    left: usize,
}

struct Row {
    /// The prompt and the generated tokens.
    tokens: Vec<i64>,
    prompt: usize,
    ended: bool,
}

impl<'a, B: Backend, M: CausalLm<B> + ?Sized> Generation<'a, B, M> {
    pub(super) fn new(model: &'a M, prompts: &[Vec<i64>], count: usize, config: &GenerateConfig) -> Result<Self> {
        config.check()?;
        let longest: &[i64] = prompts
            .iter()
            .max_by_key(|prompt| prompt.len())
            .map_or(&[], Vec::as_slice);
        check_prompt(model, longest, count)?;
        prompts
            .iter()
            .try_for_each(|prompt| check_prompt(model, prompt, count))?;
        let device = device_of(model)?;
        let longest = longest.len();
        let padding: Vec<usize> = prompts.iter().map(|prompt| longest - prompt.len()).collect();
        let mut cache = model.new_cache().with_left_padding(&padding, &device)?;
        // The last token is never fed to the model.
        cache.reserve((longest + count).saturating_sub(1));
        let padded = prompts.iter().zip(&padding);
        let padded =
            padded.flat_map(|(prompt, &padding)| std::iter::repeat_n(0, padding).chain(prompt.iter().copied()));
        let next = Tensor::from_vec(padded.collect(), [prompts.len(), longest], &device)?;
        let rows = prompts.iter().map(|prompt| Row {
            tokens: prompt.clone(),
            prompt: prompt.len(),
            ended: false,
        });
        Ok(Self {
            model,
            config: config.clone(),
            cache,
            rows: rows.collect(),
            next,
            left: count,
            device,
        })
    }

    /// Ends a sequence here, on a condition that the options cannot express.
    ///
    /// # Errors
    /// When there is no such sequence.
    pub fn end(&mut self, sequence: usize) -> Result<()> {
        let count = self.rows.len();
        let row = self
            .rows
            .get_mut(sequence)
            .ok_or_else(|| Error::out_of_range(format!("sequence {sequence} of {count}")).with_op("generate"))?;
        row.ended = true;
        Ok(())
    }

    /// The tokens of each sequence so far: its prompt and the generated ones.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[i64]> {
        self.rows.iter().map(|row| row.tokens.as_slice())
    }

    /// Whether each sequence has ended; false if it merely has all requested tokens.
    pub fn ended(&self) -> impl ExactSizeIterator<Item = bool> {
        self.rows.iter().map(|row| row.ended)
    }

    /// [`Generation::rows`] by value.
    pub fn into_rows(self) -> Vec<Vec<i64>> {
        self.rows.into_iter().map(|row| row.tokens).collect()
    }

    fn step(&mut self) -> Result<Vec<Option<i64>>> {
        let n = self.rows.len();
        let mut logits = self.model.next_logits(&self.next, &mut self.cache)?.to_f64_vec()?;
        let vocabulary = self.model.vocab_size();
        if vocabulary == 0 || logits.len() != n * vocabulary {
            let text = format!("{} logits for {n} sequences and {vocabulary} tokens", logits.len());
            return Err(Error::shape(text).with_op("generate"));
        }
        let draws = if self.config.is_random() {
            Tensor::<B>::rand([n], &self.device)?.to_f64_vec()?
        } else {
            vec![0.0; n]
        };
        let mut new = Vec::with_capacity(n);
        for ((row, logits), draw) in self.rows.iter_mut().zip(logits.chunks_exact_mut(vocabulary)).zip(draws) {
            if row.ended {
                new.push(None);
                continue;
            }
            let token = self.config.choose(logits, &row.tokens, draw)? as i64;
            row.tokens.push(token);
            row.ended = self.config.ends(&row.tokens[row.prompt..]);
            new.push(Some(token));
        }
        // The token fed to an ended sequence does not matter, since its output is ignored.
        let fed = new.iter().map(|token| token.unwrap_or(0)).collect();
        self.next = Tensor::from_vec(fed, [n, 1], &self.device)?;
        Ok(new)
    }
}

impl<B: Backend, M: CausalLm<B> + ?Sized> Iterator for Generation<'_, B, M> {
    type Item = Result<Vec<Option<i64>>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rows.iter().all(|row| row.ended) {
            return None;
        }
        self.left = self.left.checked_sub(1)?;
        let step = no_grad(|| self.step());
        if step.is_err() {
            self.left = 0;
        }
        Some(step)
    }
}

impl<B: Backend, M: ?Sized> fmt::Debug for Generation<'_, B, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ended = self.rows.iter().filter(|row| row.ended).count();
        write!(
            f,
            "Generation({} sequences, {ended} ended, up to {} steps left)",
            self.rows.len(),
            self.left
        )
    }
}
