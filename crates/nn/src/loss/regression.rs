//! Losses between numbers.

use polygrad_tensor::{Backend, Error, Result, Tensor};

use super::{Reduction, check_same_shape};

/// A loss whose one option is what becomes of the elements' losses.
macro_rules! plain {
    ($(#[$doc:meta])* $name:ident $function:ident $text:literal, |$d:ident| $loss:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default)]
        pub struct $name {
            reduction: Reduction,
        }

        impl $name {
            /// The mean over all elements.
            pub const fn new() -> Self {
                Self {
                    reduction: Reduction::Mean,
                }
            }

            /// What becomes of the elements' losses. Default: the mean.
            #[must_use]
            pub const fn reduction(mut self, reduction: Reduction) -> Self {
                self.reduction = reduction;
                self
            }

            /// The loss of an input against a target of the same shape.
            ///
            /// # Errors
            /// When the shapes differ, or dtype or device do not fit.
            pub fn forward<B: Backend>(&self, input: &Tensor<B>, target: &Tensor<B>) -> Result<Tensor<B>> {
                check_same_shape($text, input, target)?;
                Tensor::in_wide([input, target], |[x, y]| {
                    let $d = x.sub(y)?;
                    self.reduction.apply($loss)
                })
            }
        }

        #[doc = concat!("[`", stringify!($name), "`] without options: the mean.")]
        ///
        /// # Errors
        #[doc = concat!("As [`", stringify!($name), "::forward`].")]
        pub fn $function<B: Backend>(input: &Tensor<B>, target: &Tensor<B>) -> Result<Tensor<B>> {
            $name::new().forward(input, target)
        }
    };
}

plain! {
    /// `(x − y)²`.
    MSELoss mse_loss "mse_loss", |d| d.square()?
}

plain! {
    /// `|x − y|`.
    L1Loss l1_loss "l1_loss", |d| d.abs()?
}

/// A loss that is quadratic near the target and linear far from it.
macro_rules! bent {
    (
        $(#[$doc:meta])* $name:ident $function:ident $text:literal,
        $(#[$bend_doc:meta])* $bend:ident $wrong:literal if |$value:ident| $is_wrong:expr;
        |$d:ident, $by:ident| $loss:expr
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name {
            $bend: f64,
            reduction: Reduction,
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new()
            }
        }

        impl $name {
            #[doc = concat!("With ", stringify!($bend), " 1, the mean over all elements.")]
            pub const fn new() -> Self {
                Self {
                    $bend: 1.0,
                    reduction: Reduction::Mean,
                }
            }

            $(#[$bend_doc])*
            #[must_use]
            pub const fn $bend(mut self, $bend: f64) -> Self {
                self.$bend = $bend;
                self
            }

            /// What becomes of the elements' losses. Default: the mean.
            #[must_use]
            pub const fn reduction(mut self, reduction: Reduction) -> Self {
                self.reduction = reduction;
                self
            }

            /// The loss of an input against a target of the same shape.
            ///
            /// # Errors
            #[doc = concat!("When the shapes differ, dtype or device do not fit, or ", stringify!($bend), " makes no sense.")]
            pub fn forward<B: Backend>(&self, input: &Tensor<B>, target: &Tensor<B>) -> Result<Tensor<B>> {
                check_same_shape($text, input, target)?;
                let $value = self.$bend;
                if $is_wrong {
                    let text = format!(concat!(stringify!($bend), " = {} must be ", $wrong), $value);
                    return Err(Error::invalid(text).with_op($text));
                }
                Tensor::in_wide([input, target], |[x, y]| {
                    let ($d, $by) = (x.sub(y)?, self.$bend);
                    self.reduction.apply($loss)
                })
            }
        }

        #[doc = concat!("[`", stringify!($name), "`] without options: ", stringify!($bend), " 1, the mean.")]
        ///
        /// # Errors
        #[doc = concat!("As [`", stringify!($name), "::forward`].")]
        pub fn $function<B: Backend>(input: &Tensor<B>, target: &Tensor<B>) -> Result<Tensor<B>> {
            $name::new().forward(input, target)
        }
    };
}

bent! {
    /// `d² / 2` where `d = |x − y|` is below `delta`, else `delta · (d − delta / 2)`.
    ///
    /// Source: Huber, "Robust estimation of a location parameter" (1964).
    HuberLoss huber_loss "huber_loss",
    /// Where it becomes linear, above 0. Default: 1.
    delta "above 0" if |delta| delta.is_nan() || delta <= 0.0;
    |d, delta| huber(&d, delta)?
}

bent! {
    /// `d² / (2 beta)` where `d = |x − y|` is below `beta`, else `d − beta / 2`; for `beta` 0 the [`L1Loss`].
    SmoothL1Loss smooth_l1_loss "smooth_l1_loss",
    /// Where it becomes linear, 0 or above. Default: 1.
    beta "0 or above" if |beta| beta.is_nan() || beta < 0.0;
    |d, beta| if beta == 0.0 { d.abs()? } else { huber(&d, beta)?.div(beta)? }
}

/// `d² / 2` within `±delta`, `delta · (|d| − delta / 2)` outside.
fn huber<B: Backend>(difference: &Tensor<B>, delta: f64) -> Result<Tensor<B>> {
    // The square is of the difference, not of its magnitude, which has no second derivative at 0.
    let magnitude = difference.abs()?;
    let far = magnitude.ge(delta)?;
    let outer = ((&magnitude - 0.5 * delta)? * delta)?;
    let inner = difference.masked_fill(&far, 0.0)?;
    Tensor::where_(&far, &outer, &(inner.square()? * 0.5)?)
}
