//! Binary cross entropy.

use polygrad_tensor::{Backend, CustomOp, Error, Result, Tensor, autocast_dtype};

use super::common::{check_same_shape, loss};

loss! {
    /// Binary cross entropy of probabilities given as logits `x`, against targets `y` in `[0, 1]`:
    /// `−w · (p · y · ln σ(x) + (1 − y) · ln(1 − σ(x)))` with an element's weight `w` and the positive class's weight
    /// `p`, computed without overflow for any `x`.
    BCEWithLogitsLoss<B> {
        /// A weight for each element; broadcasts to the input.
        weight,
        /// A weight for positive targets; broadcasts to the input.
        pos_weight,
    }, bce_with_logits(input, target);
}

impl<B: Backend> BCEWithLogitsLoss<B> {
    /// The loss of logits against targets of the same shape.
    ///
    /// # Errors
    /// When shapes differ, or dtype or device do not fit.
    pub fn forward(&self, input: &Tensor<B>, target: &Tensor<B>) -> Result<Tensor<B>> {
        check_same_shape("bce_with_logits", &[input, target])?;
        let (weight, pos_weight) = (self.weight.as_ref(), self.pos_weight.as_ref());
        let operands = [input, target, weight.unwrap_or(target), pos_weight.unwrap_or(target)];
        Tensor::in_full(operands, |[input, target, weight_of, pos_weight_of]| {
            self.of(
                input,
                target,
                weight.and(Some(weight_of)),
                pos_weight.and(Some(pos_weight_of)),
            )
        })
    }

    fn of(
        &self,
        input: &Tensor<B>,
        target: &Tensor<B>,
        weight: Option<&Tensor<B>>,
        pos_weight: Option<&Tensor<B>>,
    ) -> Result<Tensor<B>> {
        // -ln σ(x) = softplus(-x), and -ln(1 - σ(x)) = softplus(x). Each has its own gradient, so that a small gradient
        // is not the difference of large ones. The threshold only keeps exp from overflowing: above it softplus is
        // exact in f64.
        let mut positive = input.neg()?.softplus(1.0, 40.0)?.mul(target)?;
        if let Some(weight) = pos_weight {
            positive = positive.mul(weight)?;
        }
        let negative = input.softplus(1.0, 40.0)?.mul(&(1.0 - target)?)?;
        let mut losses = positive.add(&negative)?;
        if let Some(weight) = weight {
            losses = losses.mul(weight)?;
        }
        self.reduction.apply(losses)
    }
}

loss! {
    /// Binary cross entropy of probabilities `x` against targets `y`, both in `[0, 1]`: `−w · (y · ln x + (1 − y) ·
    /// ln(1 − x))` with an element's weight `w`. As in PyTorch, logarithms are limited to at least −100, and the
    /// gradient's denominator `x (1 − x)` to at least 1e-12. An `x` outside `[0, 1]` gives NaN (PyTorch: an error). If
    /// logits are available, [`BCEWithLogitsLoss`] is more precise.
    BCELoss<B> {
        /// A weight for each element; broadcasts to the input.
        weight,
    }, binary_cross_entropy(input, target);
}

impl<B: Backend> BCELoss<B> {
    /// The loss of probabilities against targets of the same shape.
    ///
    /// # Errors
    /// When shapes or dtypes differ, the dtype is not a float, or the devices differ.
    pub fn forward(&self, input: &Tensor<B>, target: &Tensor<B>) -> Result<Tensor<B>> {
        let op = "binary_cross_entropy";
        check_same_shape(op, &[input, target])?;
        let differ = target.dtype() != input.dtype() && autocast_dtype().is_none();
        if !input.dtype().is_float() || !target.dtype().is_float() || differ {
            return Err(Error::dtype("input and target must have one float dtype")
                .with_op(op)
                .with_operands([(input.shape(), input.dtype()), (target.shape(), target.dtype())])
                .with_hint("convert the target with to_dtype"));
        }
        // f16 can represent neither 1e-12 nor the slopes that result from it.
        let operands = [input, target, self.weight.as_ref().unwrap_or(target)];
        Tensor::in_full(operands, |[input, target, weight]| {
            let losses = Tensor::custom(BinaryCrossEntropy, &[input, target])?;
            self.reduction.apply(match self.weight {
                None => losses,
                Some(_) => losses.mul(weight)?,
            })
        })
    }
}

/// The losses of the elements. A separate op, because its gradient stays finite where that of the logarithm does not.
struct BinaryCrossEntropy;

impl<B: Backend> CustomOp<B> for BinaryCrossEntropy {
    fn name(&self) -> &str {
        "binary_cross_entropy"
    }

    fn forward(&self, inputs: &[Tensor<B>]) -> Result<Tensor<B>> {
        let [x, y] = inputs else {
            return Err(Error::invalid("takes an input and a target"));
        };
        let limited = |log: Tensor<B>| log.clamp(Some(-100.0), None);
        let (log, log_other) = (limited(x.log()?)?, limited(x.neg()?.log1p()?)?);
        (y - 1.0)?.mul(&log_other)?.sub(&y.mul(&log)?)
    }

    fn backward(&self, inputs: &[Tensor<B>], _: &Tensor<B>, grad: &Tensor<B>) -> Result<Vec<Option<Tensor<B>>>> {
        let [x, y] = inputs else {
            return Err(Error::invalid("takes an input and a target"));
        };
        // PyTorch's constant is an f32.
        let least = f64::from(1e-12f32);
        let slope = x.sub(y)?.div(&x.mul(&(1.0 - x)?)?.clamp(Some(least), None)?)?;
        // As in PyTorch, the logarithms are not limited here.
        let of_target = x.neg()?.log1p()?.sub(&x.log()?)?;
        Ok(vec![Some(grad.mul(&slope)?), Some(grad.mul(&of_target)?)])
    }
}
