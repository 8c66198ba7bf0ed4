//! Accuracy of a model's answers.

use polygrad::train::{Metric, R2Score};
use polygrad::{DType, Tensor};

use crate::failure::{Failure, Result};

/// The share of correct answers for classes, or of explained variance for numbers.
#[derive(Debug, Default)]
pub(super) struct Score {
    right: u64,
    total: u64,
    numbers: Option<R2Score>,
}

impl Score {
    /// Adds the answers to some rows: scores of classes along the last axis if the targets are integers (class
    /// numbers), otherwise numbers.
    ///
    /// # Errors
    /// Answers whose shape does not fit the targets.
    pub(super) fn update(&mut self, answers: &Tensor, targets: &Tensor) -> Result<()> {
        let (shape, wanted) = (answers.shape(), targets.shape());
        let unfit = |rule: &str| {
            Failure::new(format!("the targets are {wanted}, and the first output is {shape}"))
                .fix(format!("{rule}, or take the targets out to measure the error alone"))
        };
        if targets.dtype().is_float() {
            if shape.numel() != wanted.numel() {
                return Err(unfit("give a number for each that the model gives"));
            }
            let numbers = self.numbers.get_or_insert_with(R2Score::new);
            let answers = answers.to_dtype(targets.dtype())?.reshape(wanted)?;
            numbers.update(&answers, targets)?;
            self.total += wanted.numel() as u64;
            return Ok(());
        }
        // The answers may be class numbers already, as in files from scikit-learn.
        let (answers, classes) = match answers.dtype().is_float() {
            true if shape.rank() == wanted.rank() + 1 && shape.dims().starts_with(wanted.dims()) => {
                (answers.argmax(-1)?, shape.last().copied())
            }
            false if shape == wanted => (answers.to_dtype(DType::I64)?, None),
            _ => return Err(unfit("give the number of a class for each row")),
        };
        let answers = answers.to_host()?.to_f64_vec();
        let targets = targets.to_host()?.to_f64_vec();
        if let Some(classes) = classes
            && let Some(wrong) = targets.iter().find(|&&target| !(0.0..classes as f64).contains(&target))
        {
            return Err(Failure::new(format!(
                "the targets have the class {wrong}, and the first output is scores of {classes} classes"
            ))
            .fix("number classes from 0 on; give targets that are no classes as floats"));
        }
        self.right += answers.iter().zip(&targets).filter(|(a, b)| a == b).count() as u64;
        self.total += targets.len() as u64;
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// In points out of 100.
    pub(super) fn value(&self) -> f64 {
        100.0
            * match &self.numbers {
                Some(numbers) => numbers.value(),
                None => self.right as f64 / self.total as f64,
            }
    }

    /// The name of the measure.
    pub(super) fn title(&self) -> &'static str {
        match self.numbers {
            Some(_) => "100 R²",
            None => "accuracy in %",
        }
    }
}
