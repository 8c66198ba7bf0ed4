//! Gradients of several batches as those of one.

use polygrad_core::Result;
use polygrad_tensor::{Gradients, no_grad};

/// A sum of the gradients of batches, each the mean over its examples. A batch counts by its examples, in units of
/// those of the first one: of batches of one size each counts once.
#[derive(Default)]
pub(super) struct Accumulated {
    gradients: Gradients,
    batches: u64,
    /// Of the first batch, and of all.
    first: u64,
    examples: u64,
}

impl Accumulated {
    /// Says that a batch of so many examples, all ranks' together, comes next; gives how much it counts.
    pub(super) fn enter(&mut self, examples: u64) -> f64 {
        if self.batches == 0 {
            self.first = examples.max(1);
        }
        self.batches += 1;
        self.examples += examples;
        examples as f64 / self.first as f64
    }

    pub(super) fn is_empty(&self) -> bool {
        self.batches == 0
    }

    pub(super) fn batches(&self) -> u64 {
        self.batches
    }

    pub(super) fn examples(&self) -> u64 {
        self.examples
    }

    /// What makes the mean over all examples of a sum over batches, each counted as [`Accumulated::enter`] says.
    pub(super) fn unit(&self) -> f64 {
        self.first as f64 / self.examples.max(1) as f64
    }

    /// Takes what others have added up.
    pub(super) fn set(&mut self, gradients: Gradients) {
        self.gradients = gradients;
    }

    /// Adds the gradients of the batch that was entered last, which counts so much.
    pub(super) fn add(&mut self, mut gradients: Gradients, weight: f64) -> Result<()> {
        if self.batches == 1 {
            self.gradients = gradients;
            return Ok(());
        }
        scale(&mut gradients, weight)?;
        self.gradients.accumulate(gradients)
    }

    /// The mean over all examples.
    pub(super) fn mean(mut self) -> Result<Gradients> {
        let unit = self.unit();
        scale(&mut self.gradients, unit)?;
        Ok(self.gradients)
    }
}

fn scale(gradients: &mut Gradients, factor: f64) -> Result<()> {
    if factor == 1.0 {
        return Ok(());
    }
    for gradient in gradients.iter_mut() {
        *gradient = no_grad(|| &*gradient * factor)?;
    }
    Ok(())
}
