//! Shared parts of the optimizers.

use polygrad_core::{BinaryOp, ReduceOp, UnaryOp};
use polygrad_tensor::{Axes, Backend, DType, Error, HostTensor, Result, Shape};

use crate::StateDict;

/// The options of one kind of optimizer.
pub(super) trait Options {
    /// Fails unless all are in range.
    fn check(&self) -> Result<()>;

    fn lr(&self) -> f64;

    fn set_lr(&mut self, lr: f64);

    /// Whether the loss is maximised.
    fn is_ascent(&self) -> bool {
        false
    }
}

/// Options together with the optimizer's update rule, as used by [`Groups`](super::slots::Groups).
pub(super) trait Rule<B: Backend>: Options {
    /// Fails unless the options, each of which is in range, are consistent with each other.
    fn check_together(&self) -> Result<()> {
        Ok(())
    }

    /// Fails if this optimizer cannot train some of the parameters, given by name and shape; the error names them all.
    fn check_params(&self, _params: &mut dyn Iterator<Item = (&str, Shape)>) -> Result<()> {
        Ok(())
    }

    /// Names of the tensors of a parameter's state.
    fn fields(&self) -> &'static [&'static str];

    /// Whether each element's update depends only on its own gradient and state.
    fn is_elementwise(&self) -> bool {
        true
    }

    /// Updates a parameter from its gradient and its state, which has one tensor for each field, initially zeros;
    /// `step` is the number of this step, from 1. If it fails, nothing has changed.
    fn update(&self, param: &mut B::Tensor, gradient: &B::Tensor, state: &mut [B::Tensor], step: u64) -> Result<()>;
}

/// An optimizer with `groups`, and its config's `build`.
macro_rules! optimizer {
    ($name:ident, $config:ident) => {
        impl $config {
            /// The optimizer, with these parameters as its first group. Duplicates, such as tied weights, count once.
            ///
            /// # Errors
            /// When an option is out of range, there are no parameters, or the optimizer cannot train one of them.
            pub fn build<B: Backend>(self, params: impl IntoIterator<Item = $crate::Param<B>>) -> Result<$name<B>> {
                let mut groups = $crate::optim::slots::Groups::default();
                groups.add(self, params)?;
                Ok($name { groups })
            }
        }

        impl<B: Backend> $name<B> {
            /// Adds a group of further parameters with its own options. Duplicates count once.
            ///
            /// # Errors
            /// As `build` of the options; and when one of the parameters is already in a group (the error names it).
            /// The optimizer is then unchanged.
            pub fn add_group(
                &mut self,
                config: $config,
                params: impl IntoIterator<Item = $crate::Param<B>>,
            ) -> Result<()> {
                self.groups.add(config, params)
            }
        }

        $crate::optim::common::by_groups!([B: Backend] $name<B>);
    };
}

/// Implements [`Optimizer`](crate::optim::Optimizer) for a type with `groups`.
macro_rules! by_groups {
    ([$($generics:tt)*] $type:ty) => {
        impl<$($generics)*> $crate::optim::Optimizer<B> for $type {
            fn step(&mut self, gradients: &polygrad_tensor::Gradients<B>) -> Result<()> {
                self.groups.step(gradients)
            }

            fn allow_unused(&mut self, allow: bool) {
                self.groups.allow_unused = allow;
            }

            fn error_if_nonfinite(&mut self, error: bool) {
                self.groups.error_if_nonfinite = error;
            }

            fn is_elementwise(&self) -> bool {
                self.groups.is_elementwise()
            }

            fn lrs(&self) -> Vec<f64> {
                self.groups.lrs()
            }

            fn base_lrs(&self) -> Vec<f64> {
                self.groups.base_lrs()
            }

            fn set_lrs(&mut self, lrs: &[f64]) -> Result<()> {
                self.groups.set_lrs(lrs)
            }

            fn lr(&self) -> f64 {
                self.groups.lr()
            }

            fn set_lr(&mut self, lr: f64) {
                self.groups.set_lr(lr);
            }

            fn state_dict(&self) -> Result<$crate::StateDict> {
                self.groups.state_dict()
            }

            fn load_state_dict(&mut self, state: &$crate::StateDict) -> Result<()> {
                self.groups.load_state_dict(state)
            }
        }
    };
}

pub(super) use by_groups;
pub(super) use optimizer;

/// Fails unless a hyperparameter is finite and within a range.
pub(super) fn check(name: &str, value: f64, range: impl std::ops::RangeBounds<f64> + std::fmt::Debug) -> Result<()> {
    if value.is_finite() && range.contains(&value) {
        return Ok(());
    }
    Err(Error::invalid(format!("{name} = {value:?} is outside {range:?}")).with_op("optimizer"))
}

/// The single number of a state dict under this name.
///
/// # Errors
/// When it is missing or not a single number.
pub(super) fn number_in(state: &StateDict, name: &str) -> std::result::Result<f64, String> {
    match state.get(name).map(HostTensor::to_f64_vec).as_deref() {
        Some(&[number]) => Ok(number),
        Some(_) => Err(format!("mismatched: {name} is not one number")),
        None => Err(format!("missing: {name}")),
    }
}

/// [`number_in`] for a number of steps.
///
/// # Errors
/// As [`number_in`], and when it is not a number of steps.
pub(super) fn count_in(state: &StateDict, name: &str) -> std::result::Result<u64, String> {
    match number_in(state, name)? {
        // Step counters are far below 2⁵³, so f64 represents them exactly.
        count if count >= 0.0 && count.fract() == 0.0 && count < 9e15 => Ok(count as u64),
        count => Err(format!("mismatched: {name} = {count} is no number of steps")),
    }
}

/// A parameter's new value, and its new state.
pub(super) type Changed<B> = (<B as Backend>::Tensor, Vec<<B as Backend>::Tensor>);

/// Runs an update rule that consists of several ops, from value, gradient and state to the new value and the new state.
/// f16 and bf16 are computed in f32 and rounded once. Nothing changes before everything is computed, since the device
/// may fail in each op.
pub(super) fn by_ops<B: Backend>(
    param: &mut B::Tensor,
    gradient: &B::Tensor,
    state: &mut [B::Tensor],
    rule: impl FnOnce(&B::Tensor, &B::Tensor, &[B::Tensor]) -> Result<Changed<B>>,
) -> Result<()> {
    let dtype = B::dtype(param);
    let wide = dtype.promote(DType::F32);
    let (value, new) = if wide == dtype {
        rule(param, gradient, state)?
    } else {
        let all = |tensors: &[B::Tensor], dtype| tensors.iter().map(|x| B::cast(x, dtype)).collect::<Result<Vec<_>>>();
        let (value, new) = rule(&B::cast(param, wide)?, &B::cast(gradient, wide)?, &all(state, wide)?)?;
        (B::cast(&value, dtype)?, all(&new, dtype)?)
    };
    *param = value;
    for (old, new) in state.iter_mut().zip(new) {
        *old = new;
    }
    Ok(())
}

/// `decay · old + (1 − decay) · new`.
pub(super) fn blend<B: Backend>(old: &B::Tensor, new: &B::Tensor, decay: f64) -> Result<B::Tensor> {
    B::add(&B::mul_scalar(old, decay)?, &B::mul_scalar(new, 1.0 - decay)?)
}

/// `param · (1 − shrink) − lr · direction`.
pub(super) fn descend<B: Backend>(param: &B::Tensor, direction: &B::Tensor, lr: f64, shrink: f64) -> Result<B::Tensor> {
    let change = B::mul_scalar(direction, lr)?;
    match shrink {
        0.0 => B::sub(param, &change),
        _ => B::sub(&B::mul_scalar(param, 1.0 - shrink)?, &change),
    }
}

/// The largest magnitude, as a tensor of rank 0; it is not finite if an element is not. `None` if there are no
/// elements.
pub(super) fn largest<B: Backend>(x: &B::Tensor) -> Result<Option<B::Tensor>> {
    let shape = B::shape(x);
    if shape.numel() == 0 {
        return Ok(None);
    }
    let axes = Axes::new(0..shape.rank())?;
    B::reduce(ReduceOp::Max, &B::unary(UnaryOp::Abs, x)?, axes, false).map(Some)
}

/// Whether tensors of rank 0 are all finite. Waits for the device only once.
pub(super) fn all_finite<'a, B: Backend>(numbers: impl IntoIterator<Item = &'a B::Tensor>) -> Result<bool> {
    let mut all: Vec<B::Tensor> = Vec::new();
    for x in numbers {
        let alike = |known: &&mut B::Tensor| B::dtype(known) == B::dtype(x) && B::same_device(known, x);
        match all.iter_mut().find(alike) {
            Some(known) => *known = B::binary(BinaryOp::Maximum, known, x)?,
            None => all.push(x.clone()),
        }
    }
    for x in &all {
        if !B::to_host(x)?.to_f64_vec().iter().all(|x| x.is_finite()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The Euclidean norm: a tensor of rank 0.
pub(super) fn norm<B: Backend>(x: &B::Tensor) -> Result<B::Tensor> {
    B::unary(UnaryOp::Sqrt, &B::square_sum(&[x])?)
}

/// [`options!`] for an optimizer with a learning rate and `maximize`. Options may have a range; the macro also
/// generates their check, and the optimizer's `new`. `with` is a field without a method.
macro_rules! optimizer_options {
    (
        $(#[$doc:meta])*
        $config:ident of $name:ident, $rates:literal
        $(, betas $first:literal $second:literal)? $(, with $own:ident: $own_type:ty = $value:expr)?;
        $($(#[$option_doc:meta])* $option:ident: $type:ty = $default:expr $(, in $range:expr)?;)*
    ) => {
        $crate::options::options! {
            $(#[$doc])*
            #[derive(Clone, Copy, Debug)]
            pub struct $config {
                #[doc = concat!("With this learning rate, and the other defaults. The usual rate is ", $rates, ".")]
                pub const fn new(lr: f64 $(; $own: $own_type = $value)?);
                $(
                    #[doc = concat!("Decay of the first and of the second moment, each in `[0, 1)`. Default: ", $first, " and ", $second, ".")]
                    betas: (f64, f64) = ($first, $second), from |first: f64, second: f64| (first, second);
                )?
                $($(#[$option_doc])* $option: $type = $default;)*
                /// Whether to maximise the loss: gradients are negated first.
                maximize: bool = false;
            }
        }

        impl $crate::optim::common::Options for $config {
            fn check(&self) -> polygrad_tensor::Result<()> {
                use $crate::optim::common::check;
                check("lr", self.lr, 0.0..)?;
                $(
                    let _: f64 = $first;
                    check("beta1", self.betas.0, 0.0..1.0)?;
                    check("beta2", self.betas.1, 0.0..1.0)?;
                )?
                $($(check(stringify!($option), self.$option, $range)?;)?)*
                Ok(())
            }

            fn lr(&self) -> f64 {
                self.lr
            }

            fn set_lr(&mut self, lr: f64) {
                self.lr = lr;
            }

            fn is_ascent(&self) -> bool {
                self.maximize
            }
        }

        impl<B: polygrad_tensor::Backend> $name<B> {
            #[doc = concat!("With the defaults; [`", stringify!($config), "`] has the options.")]
            ///
            /// # Errors
            #[doc = concat!("As [`", stringify!($config), "::build`].")]
            pub fn new(params: impl IntoIterator<Item = $crate::Param<B>>, lr: f64) -> polygrad_tensor::Result<Self> {
                $config::new(lr).build(params)
            }
        }
    };
}

pub(super) use optimizer_options;

/// The gradient plus the penalty `decay · param`.
pub(super) fn penalized<B: Backend>(gradient: &B::Tensor, param: &B::Tensor, decay: f64) -> Result<B::Tensor> {
    match decay {
        0.0 => Ok(gradient.clone()),
        _ => B::add(gradient, &B::mul_scalar(param, decay)?),
    }
}

/// The square root of a mean square, plus `eps`.
pub(super) fn root<B: Backend>(square: &B::Tensor, eps: f64) -> Result<B::Tensor> {
    B::add_scalar(&B::unary(UnaryOp::Sqrt, square)?, eps)
}
