//! How the next token is chosen.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use crate::options::options;
use polygrad_tensor::{Error, Result};

/// The temperature at which only the likeliest token remains.
const GREEDY: f64 = 0.0;

options! {
    /// How the next token is chosen, and when a sequence ends.
    #[derive(Clone, Debug, PartialEq)]
    pub struct GenerateConfig {
        /// Always takes the likeliest token; the first of several equally likely ones.
        pub const fn greedy(; stop_sequences: Vec<Vec<i64>> = Vec::new(), suppressed: Vec<i64> = Vec::new());
        /// Divisor of the logits: below 1 likely tokens become likelier; 0 is greedy.
        temperature: f64 = GREEDY;
        /// Chooses only among the `k` likeliest tokens, at least 1. Default: all.
        top_k: Option<usize> = None, from |k: usize| Some(k);
        /// Chooses only among the likeliest tokens that together have probability `p` in `(0, 1]`.
        ///
        /// Source: Holtzman et al., "The curious case of neural text degeneration" (2019).
        ///
        top_p: f64 = 1.0;
        /// Chooses only among tokens at least `min_p` times as likely as the likeliest one, in `[0, 1]`.
        ///
        /// Source: Nguyen et al., "Turning up the heat: min-p sampling for creative and coherent LLM outputs" (2024).
        ///
        min_p: f64 = 0.0;
        /// Divisor (factor if the logit is negative) of the logits of tokens that already occur in the sequence, prompt
        /// included: above 1 such tokens become rarer.
        ///
        /// Source: Keskar et al., "CTRL: a conditional transformer language model for controllable generation" (2019).
        ///
        repetition_penalty: f64 = 1.0;
        /// The token that ends a sequence; it becomes the sequence's last token. Default: none.
        eos_token_id: Option<i64> = None, from |id: i64| Some(id);
        /// The token with which [`CausalLm::generate`](super::CausalLm::generate) fills sequences that end before
        /// others. Default: the `eos_token_id`.
        pad_token_id: Option<i64> = None, from |id: i64| Some(id);
    }
}

impl GenerateConfig {
    /// Draws tokens with the model's probabilities, from the thread's generator
    /// ([`manual_seed`](polygrad_tensor::manual_seed)).
    pub const fn sample() -> Self {
        let mut config = Self::greedy();
        config.temperature = 1.0;
        config
    }

    /// Ends a sequence when these tokens have been generated in this order; the sequence keeps them. May be called
    /// several times.
    #[must_use]
    pub fn stop_sequence(mut self, tokens: impl Into<Vec<i64>>) -> Self {
        self.stop_sequences.push(tokens.into());
        self
    }

    /// Never chooses these tokens, such as those that a model has and its tokenizer has not. May be called several
    /// times.
    #[must_use]
    pub fn suppress_tokens(mut self, tokens: &[i64]) -> Self {
        self.suppressed.extend_from_slice(tokens);
        self
    }

    pub(super) fn check(&self) -> Result<()> {
        let fail = |text: String| Err(Error::invalid(text).with_op("generate"));
        if !(self.temperature >= 0.0 && self.temperature.is_finite()) {
            return fail(format!(
                "temperature = {:?} is not a number from 0 on",
                self.temperature
            ));
        }
        if self.top_k == Some(0) {
            return fail("top_k = 0 leaves no token".to_owned());
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return fail(format!("top_p = {:?} is outside (0, 1]", self.top_p));
        }
        if !(0.0..=1.0).contains(&self.min_p) {
            return fail(format!("min_p = {:?} is outside [0, 1]", self.min_p));
        }
        if !(self.repetition_penalty > 0.0 && self.repetition_penalty.is_finite()) {
            return fail(format!(
                "repetition_penalty = {:?} is not above 0",
                self.repetition_penalty
            ));
        }
        if self.stop_sequences.iter().any(Vec::is_empty) {
            return fail("a stop sequence without tokens".to_owned());
        }
        Ok(())
    }

    /// The token that fills sequences that ended before others.
    pub(super) fn fill(&self, sequences: usize) -> Result<i64> {
        match self.pad_token_id.or(self.eos_token_id) {
            Some(id) => Ok(id),
            None if sequences == 1 || self.stop_sequences.is_empty() => Ok(0),
            None => Err(Error::invalid(
                "sequences may end at different lengths, and there is no token to fill them with",
            )
            .with_op("generate")
            .with_hint("set pad_token_id, or take generate_batch, which does not fill")),
        }
    }

    pub(super) const fn is_random(&self) -> bool {
        self.temperature > GREEDY
    }

    /// Whether a sequence ends with these new tokens.
    pub(super) fn ends(&self, new: &[i64]) -> bool {
        let last = new.last().copied();
        last.is_some() && last == self.eos_token_id || self.stop_sequences.iter().any(|stop| new.ends_with(stop))
    }

    /// The probability of each token to be the next one. `logits` are the model's, and `seen` is the sequence so far.
    /// The options are applied in the order of transformers: the repetition penalty, the temperature, `top_k`, `top_p`,
    /// `min_p`.
    ///
    /// # Errors
    /// When an option is out of range, a logit is NaN, or there are no logits.
    pub fn probabilities(&self, logits: &[f64], seen: &[i64]) -> Result<Vec<f64>> {
        self.check()?;
        let (mut logits, mut chances) = (logits.to_vec(), vec![0.0; logits.len()]);
        let (tokens, weights, total) = self.candidates(&mut logits, seen, None)?;
        for (token, weight) in tokens.into_iter().zip(weights) {
            chances[token] = weight / total;
        }
        Ok(chances)
    }

    /// Chooses a token from a row of logits, after the tokens `seen`; `draw` is uniform on `[0, 1)`.
    pub(super) fn choose(&self, logits: &mut [f64], seen: &[i64], draw: f64) -> Result<usize> {
        let (tokens, weights, total) = self.candidates(logits, seen, Some(draw))?;
        let mut left = draw * total;
        for (&token, weight) in tokens.iter().zip(&weights) {
            left -= weight;
            if left < 0.0 {
                return Ok(token);
            }
        }
        // Rounding may leave the draw beyond the last token.
        Ok(tokens[tokens.len() - 1])
    }

    /// The candidate tokens, at least one, their probabilities relative to the likeliest, and the sum of these. For a
    /// draw, tokens are in descending order, and those that it cannot reach are left out.
    fn candidates(&self, logits: &mut [f64], seen: &[i64], draw: Option<f64>) -> Result<(Vec<usize>, Vec<f64>, f64)> {
        if let Some(place) = logits.iter().position(|x| x.is_nan()) {
            return Err(Error::invalid(format!("the logit of token {place} is NaN")).with_op("generate"));
        }
        self.penalize(logits, seen);
        for &token in &self.suppressed {
            if let Some(logit) = usize::try_from(token).ok().and_then(|token| logits.get_mut(token)) {
                *logit = f64::NEG_INFINITY;
            }
        }
        let best = greatest(logits).ok_or_else(|| Error::shape("there are no tokens").with_op("generate"))?;
        // Beside an infinite logit all others have no probability.
        if !self.is_random() || logits[best].is_infinite() {
            return Ok((vec![best], vec![1.0], 1.0));
        }
        let likelier = |&a: &usize, &b: &usize| logits[b].total_cmp(&logits[a]).then(a.cmp(&b));
        let mut order: Vec<usize> = (0..logits.len()).collect();
        if let Some(k) = self.top_k.filter(|&k| k < order.len()) {
            order.select_nth_unstable_by(k, likelier);
            order.truncate(k);
        }
        let weight = |token: usize| ((logits[token] - logits[best]) / self.temperature).exp();
        if self.top_p < 1.0 {
            let most = self.top_p * order.iter().map(|&token| weight(token)).sum::<f64>();
            let mut weights = ranked(&mut order, likelier, weight, |sum| sum >= most);
            weights.truncate(weights.partition_point(|&weight| weight >= self.min_p).max(1));
            order.truncate(weights.len());
            let total = weights.iter().sum();
            return Ok((order, weights, total));
        }
        if self.min_p > 0.0 {
            order.retain(|&token| token == best || weight(token) >= self.min_p);
        }
        let total: f64 = order.iter().map(|&token| weight(token)).sum();
        let weights = match draw {
            Some(draw) => ranked(&mut order, likelier, weight, |sum| sum > draw * total),
            None => order.iter().map(|&token| weight(token)).collect(),
        };
        order.truncate(weights.len());
        Ok((order, weights, total))
    }

    fn penalize(&self, logits: &mut [f64], seen: &[i64]) {
        if self.repetition_penalty == 1.0 {
            return;
        }
        let seen: BTreeSet<usize> = seen.iter().filter_map(|&token| usize::try_from(token).ok()).collect();
        for token in seen {
            if let Some(logit) = logits.get_mut(token) {
                if *logit < 0.0 {
                    *logit *= self.repetition_penalty;
                } else {
                    *logit /= self.repetition_penalty;
                }
            }
        }
    }
}

/// Sorts tokens until the sum of their weights is enough, and returns these weights. Sorting all 49,152 tokens of a
/// vocabulary takes milliseconds.
fn ranked(
    order: &mut [usize],
    likelier: impl Fn(&usize, &usize) -> Ordering + Copy,
    weight: impl Fn(usize) -> f64,
    is_enough: impl Fn(f64) -> bool,
) -> Vec<f64> {
    let (mut weights, mut sum) = (Vec::new(), 0.0);
    while weights.len() < order.len() {
        let rest = &mut order[weights.len()..];
        let count = (256 + 3 * weights.len()).min(rest.len());
        if count < rest.len() {
            rest.select_nth_unstable_by(count, likelier);
        }
        rest[..count].sort_unstable_by(likelier);
        for &token in &rest[..count] {
            weights.push(weight(token));
            sum += weight(token);
            if is_enough(sum) {
                return weights;
            }
        }
    }
    weights
}

/// The place of the greatest number, the first of equal ones; `None` if there are no numbers. None may be NaN.
fn greatest(numbers: &[f64]) -> Option<usize> {
    // Eight at a time, so that comparisons become vector code: a vocabulary has tens of thousands.
    let (eights, rest) = numbers.as_chunks::<8>();
    let mut most = [f64::NEG_INFINITY; 8];
    for eight in eights {
        for (most, &x) in most.iter_mut().zip(eight) {
            *most = if x > *most { x } else { *most };
        }
    }
    let most = most.iter().chain(rest).copied().fold(f64::NEG_INFINITY, f64::max);
    numbers.iter().position(|&x| x == most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_the_greatest_is_found() {
        let least = f64::NEG_INFINITY;
        for (numbers, wanted) in [
            (vec![], None),
            (vec![least; 9], Some(0)),
            (vec![-2.0, -1.0, -1.0], Some(1)),
        ] {
            assert_eq!(greatest(&numbers), wanted, "{numbers:?}");
        }
        for place in 0..40 {
            let mut numbers: Vec<f64> = (0..40).map(|i| f64::from(i % 7)).collect();
            numbers[place] = 7.0;
            numbers[39] = 7.0;
            assert_eq!(greatest(&numbers), Some(place));
        }
    }

    #[test]
    fn a_draw_is_looked_up_among_all_candidates_in_descending_order() {
        let logits: Vec<f64> = (0..5000).map(|i| f64::from(i * 7919 % 5000) / 600.0).collect();
        for config in [
            GenerateConfig::sample(),
            GenerateConfig::sample().temperature(0.5).top_k(700),
            GenerateConfig::sample().top_p(0.9),
            GenerateConfig::sample().top_p(0.9).min_p(0.3),
            GenerateConfig::sample().min_p(0.1),
        ] {
            let chances = config.probabilities(&logits, &[]).unwrap();
            assert!((chances.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            let mut order: Vec<usize> = (0..logits.len()).collect();
            order.sort_by(|&a, &b| chances[b].total_cmp(&chances[a]).then(a.cmp(&b)));
            let (mut passed, mut places) = (0.0, order.iter());
            for step in 0..999 {
                let draw = (f64::from(step) + 0.5) / 999.0;
                let mut found = usize::MAX;
                while passed <= draw {
                    found = *places.next().unwrap();
                    passed += chances[found];
                }
                let chosen = config.choose(&mut logits.clone(), &[], draw).unwrap();
                if found != usize::MAX {
                    assert_eq!(chosen, found, "{draw} {config:?}");
                }
                assert!(chances[chosen] > 0.0);
            }
        }
        let infinite = [0.0, f64::INFINITY, 1.0];
        assert_eq!(
            GenerateConfig::sample()
                .choose(&mut infinite.to_vec(), &[], 0.9)
                .unwrap(),
            1
        );
        assert_eq!(
            GenerateConfig::sample().probabilities(&infinite, &[]).unwrap(),
            [0.0, 1.0, 0.0]
        );
    }
}
