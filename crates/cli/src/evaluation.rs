//! Evaluation of a model on a split.

use std::fmt::Write;

use polygrad::data::DataLoader;
use polygrad::nn::{Module, loss::cross_entropy};
use polygrad::{Tensor, no_grad};

use crate::failure::Result;
use crate::progress::{grouped, say};
use crate::task::Batch;

/// With more classes than this the confusion matrix is wider than a terminal.
const WIDEST: usize = 16;

/// The loss and the answers of a model on a whole split.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Evaluation {
    /// Mean cross-entropy in nats.
    pub(crate) loss: f64,
    /// How often each class (row) was predicted as each class (column).
    pub(crate) confusion: Vec<Vec<u64>>,
}

impl Evaluation {
    /// The share of correct answers, 0 to 1.
    pub(crate) fn accuracy(&self) -> f64 {
        let right: u64 = self
            .confusion
            .iter()
            .enumerate()
            .filter_map(|(class, row)| row.get(class))
            .sum();
        right as f64 / self.confusion.iter().flatten().sum::<u64>().max(1) as f64
    }

    /// Prints all results. `classes` are the names of the classes, and `examples` is the word for the examples.
    pub(crate) fn say(&self, classes: &[String], examples: &str) {
        say(&format!(
            "loss {:.4}  accuracy {:.2} %",
            self.loss,
            100.0 * self.accuracy()
        ));
        say(&per_class(classes, self, examples));
        if classes.len() <= WIDEST {
            say(&confusions(classes, self));
        }
    }
}

/// Evaluates the `logits` `[N, classes]` of `model`, in evaluation mode, on all batches of `loader`, whose labels are
/// below `classes`.
///
/// # Errors
/// Errors of the device.
pub(crate) fn evaluate<M: Module>(
    model: &M,
    logits: impl Fn(&M, &Tensor) -> polygrad::Result<Tensor>,
    loader: &DataLoader<Batch>,
    classes: usize,
) -> Result<Evaluation> {
    model.eval();
    let mut loss = 0.0;
    let mut confusion = vec![vec![0; classes]; classes];
    for batch in loader {
        let (inputs, labels) = batch?;
        let (mean, answers) = no_grad(|| -> Result<_> {
            let logits = logits(model, &inputs)?;
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

fn width(classes: &[String]) -> usize {
    let widths = classes.iter().map(|class| class.chars().count());
    widths.max().unwrap_or(0).max(5)
}

/// For each class, how many examples were predicted correctly, and the most frequent wrong prediction.
fn per_class(classes: &[String], result: &Evaluation, examples: &str) -> String {
    let width = width(classes);
    let mut text = format!("\n{:width$}  {examples:>6}  accuracy  most often mistaken for", "class");
    for (class, (called, row)) in classes.iter().zip(&result.confusion).enumerate() {
        let total: u64 = row.iter().sum();
        let percent = |n: u64| 100.0 * n as f64 / total.max(1) as f64;
        let _ = write!(text, "\n{called:width$}  {:>6}", grouped(total));
        if total == 0 {
            continue;
        }
        let _ = write!(text, "  {:>6.1} %", percent(row[class]));
        let mistakes = row.iter().enumerate().filter(|&(other, &n)| other != class && n > 0);
        // If equal, the first.
        if let Some((other, &n)) = mistakes.rev().max_by_key(|(_, n)| **n) {
            let _ = write!(text, "  {} ({:.1} %)", classes[other], percent(n));
        }
    }
    text
}

/// The whole confusion matrix: a row for each class, a column for each answer.
fn confusions(classes: &[String], result: &Evaluation) -> String {
    let width = width(classes);
    let largest = result.confusion.iter().flatten().max().copied().unwrap_or(0);
    let cell = (largest.to_string().len() + 2).max(6);
    let mut text = format!("\n{:width$}", "taken for");
    for class in classes {
        let short: String = class.chars().take(cell - 1).collect();
        let _ = write!(text, "{short:>cell$}");
    }
    for (class, row) in classes.iter().zip(&result.confusion) {
        let _ = write!(text, "\n{class:width$}");
        for n in row {
            let _ = write!(text, "{n:>cell$}");
        }
    }
    text
}
