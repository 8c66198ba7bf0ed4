//! Loss and metrics over several batches.

use polygrad_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use super::Step;
use crate::Metric;
use crate::driver::Figures;

/// The mean loss so far, and the metrics.
#[derive(Clone)]
pub(super) struct Tally {
    loss: f64,
    examples: u64,
    steps: u64,
    metrics: Vec<Box<dyn Metric>>,
}

/// The part of a tally that a checkpoint keeps.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct TallyState {
    loss: f64,
    examples: u64,
    steps: u64,
    metrics: Vec<Vec<f64>>,
}

impl Tally {
    pub(super) fn new(metrics: Vec<Box<dyn Metric>>) -> Self {
        Self {
            loss: 0.0,
            examples: 0,
            steps: 0,
            metrics,
        }
    }

    /// Adds the mean loss of `examples` examples.
    pub(super) fn add_loss(&mut self, loss: f64, examples: u64) {
        self.loss += loss * examples as f64;
        self.examples += examples;
    }

    /// Adds the outputs that the metrics compare.
    pub(super) fn add_outputs(&mut self, step: &Step) -> Result<()> {
        match &step.outputs {
            Some((predictions, targets)) => {
                let mut metrics = self.metrics.iter_mut();
                metrics.try_for_each(|metric| metric.update(predictions, targets))
            }
            None if self.metrics.is_empty() => Ok(()),
            None => Err(
                Error::invalid("there are metrics, and the step gives them nothing to compare")
                    .with_hint("Step::new(loss).outputs(predictions, targets)"),
            ),
        }
    }

    pub(super) fn reset(&mut self) {
        (self.loss, self.examples, self.steps) = (0.0, 0, 0);
        self.reset_metrics();
    }

    /// Resets the metrics.
    pub(super) fn reset_metrics(&mut self) {
        self.metrics.iter_mut().for_each(|metric| metric.reset());
    }

    pub(super) fn metrics_mut(&mut self) -> &mut [Box<dyn Metric>] {
        &mut self.metrics
    }

    /// The sum of the losses, and the number of examples.
    pub(super) fn sums(&self) -> (f64, u64) {
        (self.loss, self.examples)
    }

    /// Takes over another rank's counts, except for those of the metrics.
    pub(super) fn adopt(&mut self, state: &TallyState) {
        (self.loss, self.examples, self.steps) = (state.loss, state.examples, state.steps);
    }

    /// Counts an optimizer step.
    pub(super) fn count_step(&mut self) {
        self.steps += 1;
    }

    /// Optimizer steps since the last reset.
    pub(super) fn steps(&self) -> u64 {
        self.steps
    }

    pub(super) fn state(&self) -> TallyState {
        TallyState {
            loss: self.loss,
            examples: self.examples,
            steps: self.steps,
            metrics: self.metrics.iter().map(|metric| metric.state()).collect(),
        }
    }

    pub(super) fn load_state(&mut self, state: &TallyState) -> Result<()> {
        if state.metrics.len() != self.metrics.len() {
            return Err(Error::new(
                ErrorKind::StateDict,
                format!(
                    "the checkpoint has {} metrics, the trainer {}",
                    state.metrics.len(),
                    self.metrics.len()
                ),
            )
            .with_hint("give the trainer the metrics that the run began with"));
        }
        (self.loss, self.examples, self.steps) = (state.loss, state.examples, state.steps);
        let mut pairs = self.metrics.iter_mut().zip(&state.metrics);
        pairs.try_for_each(|(metric, state)| metric.load_state(state))
    }
}

impl Figures for Tally {
    /// NaN without examples.
    fn loss(&self) -> f64 {
        self.loss / self.examples as f64
    }

    fn values(&self) -> Vec<f64> {
        self.metrics.iter().map(|metric| metric.value()).collect()
    }

    fn shown(&self, metric: usize, value: f64) -> Option<String> {
        let metric = self.metrics.get(metric)?;
        Some(format!("{} {}", metric.name(), metric.shown(value)))
    }
}

impl std::fmt::Debug for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tally")
            .field("loss", &self.loss)
            .field("examples", &self.examples)
            .field("steps", &self.steps)
            .field("metrics", &self.values())
            .finish()
    }
}
