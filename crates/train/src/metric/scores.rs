//! Metrics of scores and probabilities.

use polygrad_core::{DType, Result};
use polygrad_nn::loss::cross_entropy;
use polygrad_tensor::{Tensor, no_grad};

use super::{Metric, foreign, unfit};

/// The area under the curve of the true positive rate over the false positive rate: the probability that a positive
/// example has a higher score than a negative one. Predictions are a score for each target of 0 or 1, or two logits
/// `[N, 2]`. All scores are kept in memory.
///
/// Source: Hanley and McNeil, "The meaning and use of the area under a receiver operating characteristic
/// (ROC) curve" (1982).
#[derive(Clone, Debug, Default)]
pub struct Auroc {
    /// Scores, each followed by its target, 1 or 0.
    scores: Vec<f64>,
}

impl Auroc {
    /// The metric, without predictions yet.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Metric for Auroc {
    fn name(&self) -> &str {
        "auroc"
    }

    fn update(&mut self, predictions: &Tensor, targets: &Tensor) -> Result<()> {
        let mut scores = predictions.to_f64_vec()?;
        let targets_of = targets.to_f64_vec()?;
        if predictions.rank() == 2 && predictions.dims()[1] == 2 && targets.rank() == 1 {
            scores = scores.chunks_exact(2).map(|logits| logits[1] - logits[0]).collect();
        }
        if scores.len() != targets_of.len() || targets_of.iter().any(|&target| target != 0.0 && target != 1.0) {
            return Err(unfit(
                "auroc",
                predictions,
                targets,
                "give a score for each target of 0 or 1",
            ));
        }
        self.scores.extend(
            scores
                .into_iter()
                .zip(targets_of)
                .flat_map(|(score, target)| [score, target]),
        );
        Ok(())
    }

    fn value(&self) -> f64 {
        let mut pairs: Vec<(f64, f64)> = self.scores.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
        pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
        let positives: f64 = pairs.iter().map(|pair| pair.1).sum();
        let negatives = pairs.len() as f64 - positives;
        // The sum of the positives' ranks; equal scores share their mean rank.
        let (mut ranks, mut below) = (0.0, 0.0);
        for equal in pairs.chunk_by(|a, b| a.0 == b.0) {
            let count = equal.len() as f64;
            let rank = below + (count + 1.0) / 2.0;
            ranks += rank * equal.iter().map(|pair| pair.1).sum::<f64>();
            below += count;
        }
        (ranks - positives * (positives + 1.0) / 2.0) / (positives * negatives)
    }

    fn reset(&mut self) {
        self.scores.clear();
    }

    fn higher_is_better(&self) -> bool {
        true
    }

    fn state(&self) -> Vec<f64> {
        self.scores.clone()
    }

    fn load_state(&mut self, state: &[f64]) -> Result<()> {
        if !state.len().is_multiple_of(2) {
            return Err(foreign("auroc", state));
        }
        self.scores = state.to_vec();
        Ok(())
    }

    fn merge(&mut self, state: &[f64]) -> Result<()> {
        let mut other = Self::new();
        other.load_state(state)?;
        self.scores.extend(other.scores);
        Ok(())
    }
}

/// e to the mean cross entropy: the number of equally likely tokens among which the model seems to choose. Predictions
/// are logits `[N, C]` (or `[N, C, …]`) for targets `[N]` (or `[N, …]`), or each target's cross entropy in the shape of
/// the targets; targets of -100 are ignored.
#[derive(Clone, Copy, Debug, Default)]
pub struct Perplexity {
    sum: f64,
    count: f64,
}

impl Perplexity {
    /// The metric, without predictions yet.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Metric for Perplexity {
    fn name(&self) -> &str {
        "perplexity"
    }

    fn update(&mut self, predictions: &Tensor, targets: &Tensor) -> Result<()> {
        let count = targets.ne(-100)?.to_dtype(DType::I64)?.sum(())?.item()?;
        if count > 0.0 {
            self.sum += match predictions.dims() == targets.dims() {
                true => predictions.masked_fill(&targets.eq(-100)?, 0.0)?.sum_all()?.item()?,
                false => count * no_grad(|| cross_entropy(predictions, targets))?.item()?,
            };
            self.count += count;
        }
        Ok(())
    }

    fn value(&self) -> f64 {
        (self.sum / self.count).exp()
    }

    fn reset(&mut self) {
        *self = Self::default();
    }

    fn higher_is_better(&self) -> bool {
        false
    }

    fn state(&self) -> Vec<f64> {
        vec![self.sum, self.count]
    }

    fn load_state(&mut self, state: &[f64]) -> Result<()> {
        let &[sum, count] = state else {
            return Err(foreign("perplexity", state));
        };
        *self = Self { sum, count };
        Ok(())
    }

    fn merge(&mut self, state: &[f64]) -> Result<()> {
        let mut other = Self::new();
        other.load_state(state)?;
        self.sum += other.sum;
        self.count += other.count;
        Ok(())
    }
}
