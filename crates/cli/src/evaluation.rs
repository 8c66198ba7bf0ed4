//! How well a model does on a split.

use polygrad::data::DataLoader;
use polygrad::nn::{Module, Sequential, loss::cross_entropy};
use polygrad::no_grad;

use crate::failure::Result;
use crate::loaders::Batch;

/// Loss and answers of a model on a whole split.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Evaluation {
    /// Mean cross-entropy in nats.
    pub(crate) loss: f64,
    /// How often each class (row) was taken for each class (column).
    pub(crate) confusion: Vec<Vec<u64>>,
}

impl Evaluation {
    /// The share of right answers, 0 to 1.
    pub(crate) fn accuracy(&self) -> f64 {
        let right: u64 = self
            .confusion
            .iter()
            .enumerate()
            .filter_map(|(class, row)| row.get(class))
            .sum();
        right as f64 / self.confusion.iter().flatten().sum::<u64>().max(1) as f64
    }
}

/// Runs `model` in evaluation mode over all batches of `loader`, whose labels are below `classes`.
///
/// # Errors
/// Those of the device.
pub(crate) fn evaluate(model: &Sequential, loader: &DataLoader<Batch>, classes: usize) -> Result<Evaluation> {
    model.eval();
    let mut loss = 0.0;
    let mut confusion = vec![vec![0; classes]; classes];
    for batch in loader {
        let (images, labels) = batch?;
        let (mean, answers) = no_grad(|| -> Result<_> {
            let logits = model.forward(&images)?;
            let mean = cross_entropy(&logits, &labels)?.item()?;
            Ok((mean, logits.argmax(1)?.to_vec::<i64>()?))
        })?;
        loss += mean * answers.len() as f64;
        for (label, answer) in labels.to_vec::<i64>()?.into_iter().zip(answers) {
            let row = confusion.get_mut(label as usize);
            if let Some(count) = row.and_then(|row| row.get_mut(answer as usize)) {
                *count += 1;
            }
        }
    }
    Ok(Evaluation {
        loss: loss / loader.examples().unwrap_or(0) as f64,
        confusion,
    })
}
