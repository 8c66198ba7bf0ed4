//! Shared parts of losses.

use polygrad_tensor::{Backend, Error, Result, Tensor};

/// Defines a loss: the struct with its options, defaults and methods, and the function that uses the defaults. Weights
/// are optional tensors, and make the struct generic.
macro_rules! loss {
    (
        $(#[$doc:meta])*
        $name:ident $(<$b:ident> { $($(#[$weight_doc:meta])* $weight:ident,)+ })?, $function:ident($($input:ident $(: $kind:ty)?),+);
        $($(#[$option_doc:meta])* $option:ident: $type:ty = $default:expr;)*
    ) => {
        $(#[$doc])*
        pub struct $name $(<$b: polygrad_tensor::Backend = polygrad_tensor::AnyBackend>)? {
            $($($weight: Option<polygrad_tensor::Tensor<B>>,)+)?
            $($option: $type,)*
            reduction: $crate::loss::Reduction,
        }

        impl $(<$b: polygrad_tensor::Backend>)? $name $(<$b>)? {
            /// A loss with the defaults of all options.
            pub const fn new() -> Self {
                Self {
                    $($($weight: None,)+)?
                    $($option: $default,)*
                    reduction: $crate::loss::Reduction::Mean,
                }
            }

            $($(
                $(#[$weight_doc])*
                /// Default: none.
                #[must_use]
                pub fn $weight(mut self, $weight: polygrad_tensor::Tensor<B>) -> Self {
                    self.$weight = Some($weight);
                    self
                }
            )+)?

            $(
                $crate::options::option! {
                    [const] [$(#[$option_doc])* #[doc = concat!("Default: ", stringify!($default), ".")]] $option: $type
                }
            )*

            /// How the losses of all elements are reduced. Default: the mean.
            #[must_use]
            pub const fn reduction(mut self, reduction: $crate::loss::Reduction) -> Self {
                self.reduction = reduction;
                self
            }
        }

        impl $(<$b: polygrad_tensor::Backend>)? Default for $name $(<$b>)? {
            fn default() -> Self {
                Self::new()
            }
        }

        #[doc = concat!("[`", stringify!($name), "`] with the defaults of all options.")]
        ///
        /// # Errors
        #[doc = concat!("As [`", stringify!($name), "::forward`].")]
        pub fn $function<B: polygrad_tensor::Backend>(
            $($input: $crate::loss::common::input!($($kind)?)),+
        ) -> polygrad_tensor::Result<polygrad_tensor::Tensor<B>> {
            $name::new().forward($($input),+)
        }
    };
}

/// The type of an input: a tensor unless another type is given.
macro_rules! input {
    () => {
        &polygrad_tensor::Tensor<B>
    };
    ($kind:ty) => {
        $kind
    };
}

/// Defines a [`loss`] without weights from the elementwise losses of inputs of one shape.
macro_rules! elementwise {
    (
        $(#[$doc:meta])*
        $name:ident, $function:ident($($input:ident),+);
        $($(#[$option_doc:meta])* $option:ident: $type:ty = $default:expr;)*
        |$loss:ident| $losses:expr
    ) => {
        $crate::loss::common::loss! {
            $(#[$doc])*
            #[derive(Clone, Copy, Debug)]
            $name, $function($($input),+);
            $($(#[$option_doc])* $option: $type = $default;)*
        }

        impl $name {
            /// The loss of inputs of one shape.
            ///
            /// # Errors
            /// When shapes differ, an option is out of range, or dtype or device do not fit.
            pub fn forward<B: polygrad_tensor::Backend>(
                &self,
                $($input: &polygrad_tensor::Tensor<B>),+
            ) -> polygrad_tensor::Result<polygrad_tensor::Tensor<B>> {
                let $loss = self;
                $crate::loss::common::check_same_shape(stringify!($function), &[$($input),+])?;
                polygrad_tensor::Tensor::in_full([$($input),+], |[$($input),+]| $loss.reduction.apply($losses?))
            }
        }
    };
}

pub(super) use {elementwise, input, loss};

/// Fails unless all have the same shape: broadcasting is nearly always a mistake here, as in `[N, 1]` against `[N]`.
pub(super) fn check_same_shape<B: Backend>(op: &'static str, inputs: &[&Tensor<B>]) -> Result<()> {
    if inputs.windows(2).all(|pair| pair[0].shape() == pair[1].shape()) {
        return Ok(());
    }
    Err(misfit(op, inputs, "the inputs have different shapes")
        .with_hint("bring them to one shape with reshape, squeeze or expand"))
}

/// The error for inputs whose shapes do not fit.
pub(super) fn misfit<B: Backend>(op: &'static str, inputs: &[&Tensor<B>], text: impl Into<String>) -> Error {
    Error::shape(text.into())
        .with_op(op)
        .with_operands(inputs.iter().map(|x| (x.shape(), x.dtype())))
}

/// Fails unless the option is valid.
pub(super) fn check_option(op: &'static str, (name, value): (&str, f64), right: bool, must: &str) -> Result<()> {
    if right {
        return Ok(());
    }
    Err(Error::invalid(format!("{name} = {value} must be {must}")).with_op(op))
}
