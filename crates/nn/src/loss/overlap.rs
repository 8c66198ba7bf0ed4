//! Losses based on the overlap of areas: Dice's, Jaccard's and Tversky's.

use polygrad_tensor::{Backend, DType, Error, Result, Tensor};

use super::common::{check_option, loss, misfit};

/// Defines a loss by the score of a class as a function of three sums: of probability times target, of probabilities,
/// and of targets.
macro_rules! overlap {
    (
        $(#[$doc:meta])*
        $name:ident, $function:ident;
        $($(#[$option_doc:meta])* $option:ident: $type:ty = $default:expr;)*
        |$loss:ident, $both:ident, $predicted:ident, $wanted:ident| $score:expr
    ) => {
        loss! {
            $(#[$doc])*
            ///
            /// `input` is logits. They are `[N, C, …]` against classes `[N, …]` (i64), with softmax over the classes,
            /// or of any shape `[N, C, …]` against targets between 0 and 1 of the same shape and of a float dtype, with
            /// a sigmoid each. The sums of a class are over the whole batch. A class without targets has a loss of 0.
            /// The reduction is over classes.
            ///
            /// Source of the formula, its `smooth` and its `eps`: `segmentation_models_pytorch.losses`, version 0.5.
            #[derive(Clone, Copy, Debug)]
            $name, $function(input, target);
            $($(#[$option_doc])* $option: $type = $default;)*
            /// Added to numerator and denominator.
            smooth: f64 = 0.0;
            /// Lower limit of the denominator.
            eps: f64 = 1e-7;
            /// Whether `input` is logits; probabilities otherwise.
            from_logits: bool = true;
            /// The class index of targets to ignore.
            ignore_index: i64 = -100;
        }

        impl $name {
            /// The loss of predictions against targets.
            ///
            /// # Errors
            /// When shapes or dtypes do not fit, a class is out of range, or an option is.
            pub fn forward<B: Backend>(&self, input: &Tensor<B>, target: &Tensor<B>) -> Result<Tensor<B>> {
                let op = stringify!($function);
                let not_below_0 = |value: f64| value >= 0.0 && value.is_finite();
                check_option(op, ("smooth", self.smooth), not_below_0(self.smooth), "0 or above")?;
                check_option(op, ("eps", self.eps), not_below_0(self.eps), "0 or above")?;
                $(check_option(op, (stringify!($option), self.$option), not_below_0(self.$option), "0 or above")?;)*
                let score = |[$both, $predicted, $wanted]: [&Tensor<B>; 3]| -> Result<(Tensor<B>, Tensor<B>)> {
                    let $loss = self;
                    $score
                };
                let (from_logits, ignored) = (self.from_logits, self.ignore_index);
                let losses = |input: &Tensor<B>, target: &Tensor<B>| {
                    let [both, predicted, wanted] = sums(op, (input, target), from_logits, ignored)?;
                    let (above, below) = score([&both, &predicted, &wanted])?;
                    let below = below.clamp(Some(self.eps), None)?;
                    let losses = (1.0 - above.div(&below)?)?;
                    self.reduction.apply(losses.masked_fill(&wanted.eq(0.0)?, 0.0)?)
                };
                match target.dtype().is_float() {
                    true => Tensor::in_full([input, target], |[input, target]| losses(input, target)),
                    false => Tensor::in_full([input], |[input]| losses(input, target)),
                }
            }
        }
    };
}

overlap! {
    /// One minus Dice's coefficient of a class: `1 − (2 I + smooth) / (P + T + smooth)`, where I is the sum of products
    /// of probabilities and targets, P that of probabilities and T that of targets.
    ///
    /// Source: Milletari et al., "V-Net: fully convolutional neural networks for volumetric medical image
    /// segmentation" (2016).
    DiceLoss, dice_loss;
    |loss, both, predicted, wanted| Ok((
        ((both * 2.0)? + loss.smooth)?,
        (predicted.add(wanted)? + loss.smooth)?,
    ))
}

overlap! {
    /// One minus the intersection over union of a class: `1 − (I + smooth) / (P + T − I + smooth)`, where I is the sum
    /// of products of probabilities and targets, P that of probabilities and T that of targets.
    ///
    /// Source: Rahman and Wang, "Optimizing intersection-over-union in deep neural networks for image
    /// segmentation" (2016).
    JaccardLoss, jaccard_loss;
    |loss, both, predicted, wanted| Ok((
        (both + loss.smooth)?,
        (predicted.add(wanted)?.sub(both)? + loss.smooth)?,
    ))
}

overlap! {
    /// A generalisation of [`DiceLoss`] (`alpha` and `beta` ½) and [`JaccardLoss`] (both 1): `1 − (I + smooth) / (I +
    /// alpha (P − I) + beta (T − I) + smooth)`, where I is the sum of products of probabilities and targets, P that of
    /// probabilities and T that of targets.
    ///
    /// Source: Salehi et al., "Tversky loss function for image segmentation using 3D fully convolutional
    /// deep networks" (2017).
    TverskyLoss, tversky_loss;
    /// Weight of false positives.
    alpha: f64 = 0.5;
    /// Weight of false negatives.
    beta: f64 = 0.5;
    |loss, both, predicted, wanted| {
        let wrong = (predicted.sub(both)? * loss.alpha)?;
        let missed = (wanted.sub(both)? * loss.beta)?;
        Ok(((both + loss.smooth)?, (both.add(&wrong)?.add(&missed)? + loss.smooth)?))
    }
}

/// The sums of probability times target, of probabilities, and of targets, for each class, `[C]`.
fn sums<B: Backend>(
    op: &'static str,
    (input, target): (&Tensor<B>, &Tensor<B>),
    from_logits: bool,
    ignored: i64,
) -> Result<[Tensor<B>; 3]> {
    let dims = input.dims();
    let [n, classes, rest @ ..] = dims.as_slice() else {
        return Err(misfit(op, &[input, target], "takes predictions [N, C, …]"));
    };
    let flat = [*n, *classes, rest.iter().product()];
    let (probabilities, wanted) = if target.dtype().is_float() {
        if target.shape() != input.shape() {
            return Err(misfit(op, &[input, target], "the shapes differ")
                .with_hint("classes are i64, without the axis of classes"));
        }
        let probabilities = if from_logits { input.sigmoid()? } else { input.clone() };
        (probabilities.reshape(flat)?, target.reshape(flat)?)
    } else {
        if target.dims() != [&[*n][..], rest].concat() {
            return Err(misfit(
                op,
                &[input, target],
                "takes classes [N, …] for predictions [N, C, …]",
            ));
        }
        let probabilities = if from_logits { input.softmax(1)? } else { input.clone() };
        let target = target.to_dtype(DType::I64)?.reshape([*n, flat[2]])?;
        let counts = target.ne(ignored)?;
        // Ignored targets become class 0 with weight 0.
        let classes_of = target.masked_fill(&counts.logical_not()?, polygrad_tensor::Scalar::Int(0))?;
        let one_hot = classes_of.one_hot(*classes).map_err(|e: Error| e.with_op(op))?;
        let counts = counts.to_dtype(input.dtype())?.unsqueeze(1)?;
        let wanted = one_hot.to_dtype(input.dtype())?.transpose(1, 2)?.mul(&counts)?;
        (probabilities.reshape(flat)?.mul(&counts)?, wanted)
    };
    let sum = |x: &Tensor<B>| x.sum([0, 2]);
    Ok([sum(&probabilities.mul(&wanted)?)?, sum(&probabilities)?, sum(&wanted)?])
}
