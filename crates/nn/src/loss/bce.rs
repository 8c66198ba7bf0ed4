//! Binary cross entropy.

use polygrad_tensor::{AnyBackend, Backend, Result, Tensor};

use super::{Reduction, check_same_shape};

/// Binary cross entropy of probabilities given as logits `x`, against targets `y` in `[0, 1]`:
/// `−w · (p · y · ln σ(x) + (1 − y) · ln(1 − σ(x)))` with an element's weight `w` and the positive class's weight `p`, computed without
/// overflow for any `x`.
pub struct BCEWithLogitsLoss<B: Backend = AnyBackend> {
    weight: Option<Tensor<B>>,
    pos_weight: Option<Tensor<B>>,
    reduction: Reduction,
}

impl<B: Backend> BCEWithLogitsLoss<B> {
    /// Without weights, the mean.
    pub const fn new() -> Self {
        Self {
            weight: None,
            pos_weight: None,
            reduction: Reduction::Mean,
        }
    }

    /// A weight for each element; broadcasts to the input.
    #[must_use]
    pub fn weight(mut self, weight: Tensor<B>) -> Self {
        self.weight = Some(weight);
        self
    }

    /// A weight for positive targets; broadcasts to the input.
    #[must_use]
    pub fn pos_weight(mut self, weight: Tensor<B>) -> Self {
        self.pos_weight = Some(weight);
        self
    }

    /// What becomes of the elements' losses. Default: the mean.
    #[must_use]
    pub fn reduction(mut self, reduction: Reduction) -> Self {
        self.reduction = reduction;
        self
    }

    /// The loss of logits against targets of the same shape.
    ///
    /// # Errors
    /// When shapes differ, or dtype or device do not fit.
    pub fn forward(&self, input: &Tensor<B>, target: &Tensor<B>) -> Result<Tensor<B>> {
        check_same_shape("bce_with_logits", input, target)?;
        // -ln σ(x) = softplus(-x), and -ln(1 - σ(x)) = x + softplus(-x). The threshold only keeps exp from overflowing: above it
        // softplus is exact in f64.
        let softplus = input.neg()?.softplus(1.0, 40.0)?;
        let negative = (1.0 - target)?;
        let from_softplus = match &self.pos_weight {
            None => softplus,
            Some(weight) => {
                let factor = ((weight - 1.0)?.mul(target)? + 1.0)?;
                softplus.mul(&factor)?
            }
        };
        let mut losses = negative.mul(input)?.add(&from_softplus)?;
        if let Some(weight) = &self.weight {
            losses = losses.mul(weight)?;
        }
        self.reduction.apply(losses)
    }
}

impl<B: Backend> Default for BCEWithLogitsLoss<B> {
    fn default() -> Self {
        Self::new()
    }
}

/// [`BCEWithLogitsLoss`] without weights.
///
/// # Errors
/// As [`BCEWithLogitsLoss::forward`].
pub fn bce_with_logits<B: Backend>(input: &Tensor<B>, target: &Tensor<B>, reduction: Reduction) -> Result<Tensor<B>> {
    BCEWithLogitsLoss::new().reduction(reduction).forward(input, target)
}
