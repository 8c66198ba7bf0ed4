//! Gradients of several batches accumulated into one.

use polygrad_core::Result;
use polygrad_tensor::{Gradients, no_grad};

/// A sum of the gradients of batches, each the mean over its examples. A batch is weighted by its number of examples
/// relative to the first batch, so that batches of equal size have weight 1.
#[derive(Default)]
pub(super) struct Accumulated {
    gradients: Gradients,
    batches: u64,
    /// Examples of the first batch, and of all batches.
    first: u64,
    examples: u64,
}

impl Accumulated {
    /// Announces a batch of `examples` examples over all ranks; returns its weight.
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

    /// Factor that turns a sum over batches, each weighted by [`Accumulated::enter`], into the mean over all examples.
    pub(super) fn unit(&self) -> f64 {
        self.first as f64 / self.examples.max(1) as f64
    }

    /// Sets the sum, as accumulated over all ranks.
    pub(super) fn set(&mut self, gradients: Gradients) {
        self.gradients = gradients;
    }

    /// Adds the gradients of the last announced batch with its weight.
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
