//! Cross entropy.

mod chunked;

use polygrad_tensor::{Backend, CrossEntropyParams, Result, Tensor};

use super::Reduction;
use super::common::{check_option, loss};
use super::nll::{Rows, Weights, check_class_weight, classes_last, mismatch};

loss! {
    /// Cross entropy of logits `[N, C]`, `[N, C, …]` or `[C]` against i64 class indices `[N]`, `[N, …]` or `[]`, or
    /// against probabilities of the logits' shape and a float dtype. As in PyTorch, the mean over class indices is
    /// weighted by the targets' class weights and excludes ignored targets, and the mean over probabilities is over all
    /// positions.
    ///
    /// Source for label smoothing: Szegedy et al., "Rethinking the Inception architecture for computer vision" (2015).
    CrossEntropyLoss<B> {
        /// A weight for each class, `[C]`.
        weight,
    }, cross_entropy(input, target);
    /// The class index of targets to ignore.
    ignore_index: i64 = -100;
    /// Share of the target that is spread evenly over all classes, in `[0, 1]`.
    label_smoothing: f64 = 0.0;
}

impl<B: Backend> CrossEntropyLoss<B> {
    /// The loss of logits against class indices or probabilities.
    ///
    /// # Errors
    /// When shapes or dtypes do not fit, a class index is out of range, or the smoothing is outside `[0, 1]`.
    pub fn forward(&self, input: &Tensor<B>, target: &Tensor<B>) -> Result<Tensor<B>> {
        let share = self.label_smoothing;
        check_option(
            "cross_entropy",
            ("label_smoothing", share),
            (0.0..=1.0).contains(&share),
            "in 0..=1",
        )?;
        let (weight, of_classes) = (self.weight.as_ref(), !target.dtype().is_float());
        if of_classes && weight.is_none() && self.reduction != Reduction::Sum {
            // The case of the fused op.
            return self.against_classes(&Rows::new("cross_entropy", input, target)?);
        }
        let operands = [input, target, weight.unwrap_or(target)];
        Tensor::in_full(operands, |[input, target, weight_of]| {
            let weight = weight.and(Some(weight_of));
            if !of_classes {
                return self.against_probabilities(input, target, weight);
            }
            let rows = Rows::new("cross_entropy", input, target)?;
            match weight {
                None => self.against_classes(&rows),
                Some(weight) => self.weighted(&rows, weight),
            }
        })
    }

    /// The fused op.
    fn against_classes(&self, rows: &Rows<B>) -> Result<Tensor<B>> {
        let params = CrossEntropyParams {
            ignore_index: self.ignore_index,
            label_smoothing: self.label_smoothing,
            mean: false,
        };
        match self.reduction {
            Reduction::None => rows.unflatten(&rows.input.cross_entropy(&rows.target, &params)?),
            Reduction::Sum => rows.input.cross_entropy(&rows.target, &params)?.sum_all(),
            Reduction::Mean => rows.input.cross_entropy_mean(&rows.target, &params),
        }
    }

    fn weighted(&self, rows: &Rows<B>, weight: &Tensor<B>) -> Result<Tensor<B>> {
        let weights = Weights::new("cross_entropy", rows, Some(weight), self.ignore_index)?;
        let log_p = rows.input.log_softmax(1)?;
        let mut losses = weights.of_picked(rows, &log_p)?;
        if self.label_smoothing > 0.0 {
            // The even part is weighted by each class's own weight; ignored rows have none.
            let even = log_p.mul(weight)?.mean(1)?.neg()?;
            let even = even.masked_fill(&weights.ignored, 0.0)?;
            losses = ((losses * (1.0 - self.label_smoothing))? + (even * self.label_smoothing)?)?;
        }
        weights.reduce(losses, rows, self.reduction)
    }

    fn against_probabilities(
        &self,
        input: &Tensor<B>,
        target: &Tensor<B>,
        weight: Option<&Tensor<B>>,
    ) -> Result<Tensor<B>> {
        if input.shape() != target.shape() || input.rank() == 0 {
            return Err(mismatch("cross_entropy", input, target));
        }
        let axis = if input.rank() == 1 { 0 } else { 1 };
        let mut shape = input.dims();
        let classes = shape.remove(axis);
        let (logits, mut target) = (classes_last(input)?, classes_last(target)?);
        if self.label_smoothing > 0.0 {
            let even = self.label_smoothing / classes as f64;
            target = ((target * (1.0 - self.label_smoothing))? + even)?;
        }
        let mut terms = logits.log_softmax(1)?.mul(&target)?;
        if let Some(weight) = weight {
            check_class_weight("cross_entropy", weight, classes)?;
            terms = terms.mul(weight)?;
        }
        let losses = terms.sum(1)?.neg()?.reshape(shape)?;
        self.reduction.apply(losses)
    }
}
