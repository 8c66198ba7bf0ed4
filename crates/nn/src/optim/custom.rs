//! Optimizers with user-defined rules.

use polygrad_tensor::{AnyBackend, Backend, Error, Result, Tensor};

use super::common::{Options, Rule, by_groups, check};
use super::slots::Groups;
use crate::Param;

/// How a [`CustomOptimizer`] updates one parameter. Several groups can each have a rule with its own options.
///
/// ```
/// use polygrad_nn::optim::{CustomOptimizer, Optimizer, UpdateRule};
/// use polygrad_nn::{Linear, Module};
/// use polygrad_tensor::{Device, Result, Tensor};
///
/// /// The sign of an average of gradients.
/// struct Signum {
///     lr: f64,
///     beta: f64,
/// }
///
/// impl UpdateRule for Signum {
///     const STATE: &'static [&'static str] = &["average"];
///
///     fn lr(&self) -> f64 {
///         self.lr
///     }
///
///     fn set_lr(&mut self, lr: f64) {
///         self.lr = lr;
///     }
///
///     fn update(&self, param: &Tensor, gradient: &Tensor, state: &mut [Tensor], _step: u64) -> Result<Tensor> {
///         state[0] = state[0].mul(self.beta)?.add(gradient.mul(1.0 - self.beta)?)?;
///         param.sub(state[0].sign()?.mul(self.lr)?)
///     }
/// }
///
/// # fn run(model: Linear, loss: Tensor) -> Result<()> {
/// let mut optimizer = CustomOptimizer::new(Signum { lr: 1e-3, beta: 0.9 }, model.parameters())?;
/// optimizer.backward_step(loss)?;
/// # Ok(())
/// # }
/// ```
pub trait UpdateRule<B: Backend = AnyBackend> {
    /// Names of the tensors of a parameter's state, in state dicts and checkpoints. Default: there is no state.
    const STATE: &'static [&'static str] = &[];

    /// Whether each element's update depends only on its own gradient and state, so that parameters can be split into
    /// pieces. Default: false.
    const ELEMENTWISE: bool = false;

    /// The learning rate.
    fn lr(&self) -> f64;

    /// Sets the learning rate, as schedules do.
    fn set_lr(&mut self, lr: f64);

    /// The parameter's new value, of the same shape and dtype. `state` has one tensor for each name in
    /// [`UpdateRule::STATE`], of the parameter's shape and dtype and initially zeros; replace these by the new state.
    /// `step` is the number of this step, from 1. If it fails, parameter and state stay as they were.
    ///
    /// # Errors
    /// Those of its ops.
    fn update(&self, param: &Tensor<B>, gradient: &Tensor<B>, state: &mut [Tensor<B>], step: u64) -> Result<Tensor<B>>;
}

/// An optimizer with an [`UpdateRule`]. Groups, schedules, state dict and errors are as in the other optimizers.
pub struct CustomOptimizer<R, B: Backend = AnyBackend> {
    groups: Groups<B, Own<R, B>>,
}

impl<B: Backend, R: UpdateRule<B>> CustomOptimizer<R, B> {
    /// An optimizer with these parameters as its first group. Duplicates, such as tied weights, count once.
    ///
    /// # Errors
    /// When the learning rate is negative or not a number, or there are no parameters.
    pub fn new(rule: R, params: impl IntoIterator<Item = Param<B>>) -> Result<Self> {
        let mut optimizer = Self {
            groups: Groups::default(),
        };
        optimizer.add_group(rule, params)?;
        Ok(optimizer)
    }

    /// Adds a group of further parameters, with a rule of its own. Duplicates count once.
    ///
    /// # Errors
    /// As [`CustomOptimizer::new`]; and when one of the parameters is already in a group (the error names it). The
    /// optimizer is then unchanged.
    pub fn add_group(&mut self, rule: R, params: impl IntoIterator<Item = Param<B>>) -> Result<()> {
        self.groups.add(Own(rule, std::marker::PhantomData), params)
    }
}

by_groups!([B: Backend, R: UpdateRule<B>] CustomOptimizer<R, B>);

struct Own<R, B>(R, std::marker::PhantomData<fn() -> B>);

impl<B: Backend, R: UpdateRule<B>> Options for Own<R, B> {
    fn check(&self) -> Result<()> {
        check("lr", self.0.lr(), 0.0..)
    }

    fn lr(&self) -> f64 {
        self.0.lr()
    }

    fn set_lr(&mut self, lr: f64) {
        self.0.set_lr(lr);
    }
}

impl<B: Backend, R: UpdateRule<B>> Rule<B> for Own<R, B> {
    fn fields(&self) -> &'static [&'static str] {
        R::STATE
    }

    fn is_elementwise(&self) -> bool {
        R::ELEMENTWISE
    }

    fn update(&self, param: &mut B::Tensor, gradient: &B::Tensor, state: &mut [B::Tensor], step: u64) -> Result<()> {
        let tensor = |value: &B::Tensor| Tensor::from_inner(value.clone());
        let old = tensor(param);
        let mut new_state: Vec<_> = state.iter().map(tensor).collect();
        let new = self.0.update(&old, &tensor(gradient), &mut new_state, step)?;
        for (name, new) in std::iter::once("the parameter")
            .chain(R::STATE.iter().copied())
            .zip(std::iter::once(&new).chain(&new_state))
        {
            if new.shape() != old.shape() || new.dtype() != old.dtype() {
                return Err(Error::invalid(format!(
                    "the rule made {}{} of {name}, which has to stay {}{}",
                    new.dtype(),
                    new.shape(),
                    old.dtype(),
                    old.shape()
                )));
            }
        }
        *param = new.inner().clone();
        for (old, new) in state.iter_mut().zip(&new_state) {
            *old = new.inner().clone();
        }
        Ok(())
    }
}
