//! Generating text, or whatever the tokens stand for.

use polygrad_tensor::{Backend, DType, Error, Result, Tensor, no_grad};

use super::super::config::token_shape;
use super::{Gpt2, NAME};

/// How the next token is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GenerateConfig {
    temperature: f64,
    top_k: Option<usize>,
    top_p: f64,
    eos_token_id: Option<i64>,
}

impl GenerateConfig {
    /// Always the likeliest token; the first of several that are equally likely.
    pub const fn greedy() -> Self {
        Self {
            temperature: 0.0,
            top_k: None,
            top_p: 1.0,
            eos_token_id: None,
        }
    }

    /// At random, by the model's probabilities, from the thread's generator ([`manual_seed`](polygrad_tensor::manual_seed)).
    pub const fn sample() -> Self {
        Self {
            temperature: 1.0,
            ..Self::greedy()
        }
    }

    /// What logits are divided by: below 1 likely tokens become likelier; 0 is greedy.
    #[must_use]
    pub const fn temperature(mut self, temperature: f64) -> Self {
        self.temperature = temperature;
        self
    }

    /// Only of the `k` likeliest tokens, at least 1. Default: of all.
    #[must_use]
    pub const fn top_k(mut self, k: usize) -> Self {
        self.top_k = Some(k);
        self
    }

    /// Only of the likeliest tokens that together have probability `p` in `(0, 1]`. Default: 1.
    ///
    /// Source: Holtzman et al., "The curious case of neural text degeneration" (2019).
    #[must_use]
    pub const fn top_p(mut self, p: f64) -> Self {
        self.top_p = p;
        self
    }

    /// The token that ends a sequence: after it the sequence is filled with it, and all is done when all sequences have it.
    #[must_use]
    pub const fn eos_token_id(mut self, id: i64) -> Self {
        self.eos_token_id = Some(id);
        self
    }

    fn check(&self) -> Result<()> {
        let fail = |text: String| Err(Error::invalid(text).with_op("generate"));
        if !(self.temperature >= 0.0 && self.temperature.is_finite()) {
            return fail(format!("temperature = {} is not a number from 0 on", self.temperature));
        }
        if self.top_k == Some(0) {
            return fail("top_k = 0 leaves no token".to_owned());
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return fail(format!("top_p = {} is outside (0, 1]", self.top_p));
        }
        Ok(())
    }

    /// A token for a row of logits; `draw` is uniform on `[0, 1)`.
    fn choose(&self, logits: &[f64], draw: f64) -> Result<usize> {
        if let Some(place) = logits.iter().position(|x| x.is_nan()) {
            return Err(Error::invalid(format!("the logit of token {place} is NaN")).with_op("generate"));
        }
        let mut order: Vec<usize> = (0..logits.len()).collect();
        order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
        let &best = order
            .first()
            .ok_or_else(|| Error::shape("there are no tokens").with_op("generate"))?;
        if self.temperature == 0.0 {
            return Ok(best);
        }
        order.truncate(self.top_k.unwrap_or(usize::MAX));
        let weights: Vec<f64> = order
            .iter()
            .map(|&i| ((logits[i] - logits[best]) / self.temperature).exp())
            .collect();
        let total: f64 = weights.iter().sum();
        let mut kept = 0.0;
        let mut last = 0;
        for (i, weight) in weights.iter().enumerate() {
            (kept, last) = (kept + weight, i);
            if kept >= self.top_p * total {
                break;
            }
        }
        let mut left = draw * kept;
        for (&token, weight) in order.iter().zip(&weights).take(last + 1) {
            left -= weight;
            if left < 0.0 {
                return Ok(token);
            }
        }
        // Rounding may leave a rest beyond the last one.
        Ok(order[last])
    }
}

impl<B: Backend> Gpt2<B> {
    /// `prompt [N, S]` (i64, S at least 1) with up to `count` further tokens for each sequence: fewer only where all have ended. Works with
    /// the cache, without gradients, and in the mode that the model has: call [`eval`](crate::Module::eval) first.
    ///
    /// # Errors
    /// When the options are out of range, there are not enough positions, or the prompt is empty or has a token outside the vocabulary.
    pub fn generate(&self, prompt: &Tensor<B>, count: usize, config: &GenerateConfig) -> Result<Tensor<B>> {
        config.check()?;
        let (n, length) = token_shape(NAME, prompt)?;
        if length == 0 || n == 0 {
            return Err(Error::shape("there is no prompt to go on from")
                .with_op("generate")
                .with_operands([(prompt.shape(), prompt.dtype())]));
        }
        if length.saturating_add(count) > self.config().n_positions {
            return Err(Error::out_of_range(format!(
                "{length} tokens and {count} more, but there are {} positions",
                self.config().n_positions
            ))
            .with_op("generate"));
        }
        no_grad(|| self.extend(prompt.to_dtype(DType::I64)?, n, count, config))
    }

    fn extend(&self, mut all: Tensor<B>, n: usize, count: usize, config: &GenerateConfig) -> Result<Tensor<B>> {
        let device = all.device();
        let mut cache = self.new_cache();
        let mut next = all.clone();
        let mut ended = vec![false; n];
        for _ in 0..count {
            let logits = self.forward_cached(&next, &mut cache)?.select(1, -1)?.to_f64_vec()?;
            let draws = match config.temperature {
                0.0 => vec![0.0; n],
                _ => Tensor::<B>::rand([n], &device)?.to_f64_vec()?,
            };
            let mut tokens = Vec::with_capacity(n);
            let rows = logits.chunks_exact(logits.len() / n);
            for ((row, draw), ended) in rows.zip(draws).zip(&mut ended) {
                let token = match config.eos_token_id.filter(|_| *ended) {
                    Some(eos) => eos,
                    None => config.choose(row, draw)? as i64,
                };
                *ended |= config.eos_token_id == Some(token);
                tokens.push(token);
            }
            next = Tensor::from_vec(tokens, [n, 1], &device)?;
            all = Tensor::cat(&[&all, &next], 1)?;
            if ended.iter().all(|&ended| ended) {
                break;
            }
        }
        Ok(all)
    }
}
