//! Adagrad and Adadelta.

use polygrad_core::UnaryOp;
use polygrad_tensor::{AnyBackend, Backend, Result};

use super::common::{Rule, blend, by_ops, descend, optimizer, optimizer_options, penalized, root};
use super::slots::Groups;

/// Adagrad as in PyTorch's `torch.optim.Adagrad`: the gradient divided by the square root of the sum of all squared
/// gradients so far.
///
/// Source: Duchi, Hazan and Singer, "Adaptive subgradient methods for online learning and stochastic optimization"
/// (2011).
pub struct Adagrad<B: Backend = AnyBackend> {
    groups: Groups<B, AdagradConfig>,
}

optimizer_options! {
    /// Options of [`Adagrad`].
    AdagradConfig of Adagrad, "1e-2";
    /// The rate of step `t` is `lr / (1 + (t − 1) · lr_decay)`.
    lr_decay: f64 = 0.0, in 0.0..;
    /// L2 penalty: this times the parameter is added to the gradient.
    weight_decay: f64 = 0.0, in 0.0..;
    /// Initial value of the sum of squares.
    initial_accumulator_value: f64 = 0.0, in 0.0..;
    /// Added to the denominator.
    eps: f64 = 1e-10, in 0.0..;
}

impl<B: Backend> Rule<B> for AdagradConfig {
    fn fields(&self) -> &'static [&'static str] {
        &["sum"]
    }

    fn update(&self, param: &mut B::Tensor, gradient: &B::Tensor, state: &mut [B::Tensor], step: u64) -> Result<()> {
        by_ops::<B>(param, gradient, state, |param, gradient, state| {
            let gradient = penalized::<B>(gradient, param, self.weight_decay)?;
            let mut sum = B::add(&state[0], &B::mul(&gradient, &gradient)?)?;
            if step == 1 && self.initial_accumulator_value != 0.0 {
                sum = B::add_scalar(&sum, self.initial_accumulator_value)?;
            }
            let rate = self.lr / (1.0 + (step - 1) as f64 * self.lr_decay);
            let change = B::div(&gradient, &root::<B>(&sum, self.eps)?)?;
            Ok((descend::<B>(param, &change, rate, 0.0)?, vec![sum]))
        })
    }
}

optimizer!(Adagrad, AdagradConfig);

/// Adadelta as in PyTorch's `torch.optim.Adadelta`: the gradient times the root mean square of changes, divided by that
/// of gradients.
///
/// Source: Zeiler, "ADADELTA: an adaptive learning rate method" (2012).
pub struct Adadelta<B: Backend = AnyBackend> {
    groups: Groups<B, AdadeltaConfig>,
}

optimizer_options! {
    /// Options of [`Adadelta`].
    AdadeltaConfig of Adadelta, "1";
    /// Decay of both mean squares, in `[0, 1]`.
    rho: f64 = 0.9, in 0.0..=1.0;
    /// Added to both mean squares.
    eps: f64 = 1e-6, in 0.0..;
    /// L2 penalty: this times the parameter is added to the gradient.
    weight_decay: f64 = 0.0, in 0.0..;
}

impl<B: Backend> Rule<B> for AdadeltaConfig {
    fn fields(&self) -> &'static [&'static str] {
        &["square_avg", "acc_delta"]
    }

    fn update(&self, param: &mut B::Tensor, gradient: &B::Tensor, state: &mut [B::Tensor], _step: u64) -> Result<()> {
        by_ops::<B>(param, gradient, state, |param, gradient, state| {
            let gradient = penalized::<B>(gradient, param, self.weight_decay)?;
            let square = blend::<B>(&state[0], &B::mul(&gradient, &gradient)?, self.rho)?;
            let rms = |x| B::unary(UnaryOp::Sqrt, &B::add_scalar(x, self.eps)?);
            let change = B::mul(&B::div(&rms(&state[1])?, &rms(&square)?)?, &gradient)?;
            let changes = blend::<B>(&state[1], &B::mul(&change, &change)?, self.rho)?;
            Ok((descend::<B>(param, &change, self.lr, 0.0)?, vec![square, changes]))
        })
    }
}

optimizer!(Adadelta, AdadeltaConfig);
