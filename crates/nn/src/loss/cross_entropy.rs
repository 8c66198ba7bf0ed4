//! Cross entropy.

use polygrad_tensor::{AnyBackend, Backend, CrossEntropyParams, Error, Result, Tensor};

use super::Reduction;
use super::nll::{Rows, Weights, check_class_weight, classes_last, mismatch};

/// Cross entropy of logits `[N, C]`, `[N, C, …]` or `[C]` against i64 class indices `[N]`, `[N, …]` or `[]`, or against probabilities of
/// the logits' shape and a float dtype. As PyTorch's: the mean over class indices is weighted by the targets' class weights and leaves
/// ignored targets out, the mean over probabilities is over all positions.
///
/// Source for label smoothing: Szegedy et al., "Rethinking the Inception architecture for computer vision" (2015).
pub struct CrossEntropyLoss<B: Backend = AnyBackend> {
    weight: Option<Tensor<B>>,
    ignore_index: i64,
    label_smoothing: f64,
    reduction: Reduction,
}

impl<B: Backend> CrossEntropyLoss<B> {
    /// Without weights and smoothing, ignoring targets of −100, the mean.
    pub const fn new() -> Self {
        Self {
            weight: None,
            ignore_index: -100,
            label_smoothing: 0.0,
            reduction: Reduction::Mean,
        }
    }

    /// A weight for each class, `[C]`.
    #[must_use]
    pub fn weight(mut self, weight: Tensor<B>) -> Self {
        self.weight = Some(weight);
        self
    }

    /// Class indices that count for nothing. Default: −100.
    #[must_use]
    pub fn ignore_index(mut self, index: i64) -> Self {
        self.ignore_index = index;
        self
    }

    /// Share of the target that is spread evenly over all classes, in `[0, 1]`. Default: 0.
    #[must_use]
    pub fn label_smoothing(mut self, share: f64) -> Self {
        self.label_smoothing = share;
        self
    }

    /// What becomes of the losses. Default: the mean.
    #[must_use]
    pub fn reduction(mut self, reduction: Reduction) -> Self {
        self.reduction = reduction;
        self
    }

    /// The loss of logits against class indices or probabilities.
    ///
    /// # Errors
    /// When shapes or dtypes do not fit, a class index is out of range, or the smoothing is outside `[0, 1]`.
    pub fn forward(&self, input: &Tensor<B>, target: &Tensor<B>) -> Result<Tensor<B>> {
        if !(0.0..=1.0).contains(&self.label_smoothing) {
            return Err(
                Error::invalid(format!("label_smoothing = {} is outside 0..=1", self.label_smoothing))
                    .with_op("cross_entropy"),
            );
        }
        let (weight, of_classes) = (self.weight.as_ref(), !target.dtype().is_float());
        if of_classes && weight.is_none() && self.reduction != Reduction::Sum {
            // One op.
            return self.against_classes(&Rows::new("cross_entropy", input, target)?);
        }
        let operands = [input, target, weight.unwrap_or(target)];
        Tensor::in_wide(operands, |[input, target, weight_of]| {
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
            // The even part is weighted by each class's own weight; an ignored row has none.
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

impl<B: Backend> Default for CrossEntropyLoss<B> {
    fn default() -> Self {
        Self::new()
    }
}

/// The mean cross entropy of logits against class indices or probabilities: [`CrossEntropyLoss`] without options.
///
/// # Errors
/// As [`CrossEntropyLoss::forward`].
pub fn cross_entropy<B: Backend>(input: &Tensor<B>, target: &Tensor<B>) -> Result<Tensor<B>> {
    CrossEntropyLoss::new().forward(input, target)
}
