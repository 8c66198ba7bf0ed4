//! Adamax, NAdam and RAdam.

use polygrad_core::{BinaryOp, UnaryOp};
use polygrad_tensor::{AnyBackend, Backend, Result};

use super::common::{Rule, blend, by_ops, descend, optimizer, optimizer_options, penalized, root};
use super::slots::Groups;

/// Adamax as in PyTorch's `torch.optim.Adamax`: Adam with a decaying maximum of gradient magnitudes instead of their
/// mean square.
///
/// Source: Kingma and Ba, "Adam: a method for stochastic optimization" (2014).
pub struct Adamax<B: Backend = AnyBackend> {
    groups: Groups<B, AdamaxConfig>,
}

optimizer_options! {
    /// Options of [`Adamax`].
    AdamaxConfig of Adamax, "2e-3", betas 0.9 0.999;
    /// Added to the gradient's magnitude.
    eps: f64 = 1e-8, in 0.0..;
    /// L2 penalty: this times the parameter is added to the gradient.
    weight_decay: f64 = 0.0, in 0.0..;
}

impl<B: Backend> Rule<B> for AdamaxConfig {
    fn fields(&self) -> &'static [&'static str] {
        &["exp_avg", "exp_inf"]
    }

    fn update(&self, param: &mut B::Tensor, gradient: &B::Tensor, state: &mut [B::Tensor], step: u64) -> Result<()> {
        by_ops::<B>(param, gradient, state, |param, gradient, state| {
            let gradient = penalized::<B>(gradient, param, self.weight_decay)?;
            let mean = blend::<B>(&state[0], &gradient, self.betas.0)?;
            let magnitude = B::add_scalar(&B::unary(UnaryOp::Abs, &gradient)?, self.eps)?;
            let largest = B::binary(BinaryOp::Maximum, &B::mul_scalar(&state[1], self.betas.1)?, &magnitude)?;
            let rate = self.lr / bias(self.betas.0, step);
            let new = descend::<B>(param, &B::div(&mean, &largest)?, rate, 0.0)?;
            Ok((new, vec![mean, largest]))
        })
    }
}

optimizer!(Adamax, AdamaxConfig);

/// NAdam as in PyTorch's `torch.optim.NAdam`: Adam with Nesterov's momentum.
///
/// Source: Dozat, "Incorporating Nesterov momentum into Adam" (2016).
pub struct NAdam<B: Backend = AnyBackend> {
    groups: Groups<B, NAdamConfig>,
}

optimizer_options! {
    /// Options of [`NAdam`].
    NAdamConfig of NAdam, "2e-3", betas 0.9 0.999;
    /// Added to the denominator.
    eps: f64 = 1e-8, in 0.0..;
    /// Weight decay: added to the gradient, or subtracted from the parameter itself if it is decoupled.
    weight_decay: f64 = 0.0, in 0.0..;
    /// How fast the momentum grows to its full value: in step `t` it is `beta1 · (1 − 0.96^(t · momentum_decay) / 2)`.
    momentum_decay: f64 = 4e-3, in 0.0..;
    /// Whether the weight decay is subtracted from the parameter itself, as in AdamW.
    decoupled_weight_decay: bool = false;
}

impl NAdamConfig {
    fn momentum(&self, step: u64) -> f64 {
        self.betas.0 * (1.0 - 0.5 * 0.96f64.powf(step as f64 * self.momentum_decay))
    }

    /// The product of the momentums of all steps so far, in f32 as in PyTorch. It falls at least as fast as `beta1^t`;
    /// once it is negligible relative to 1, it counts as 0.
    fn product(&self, steps: u64) -> f64 {
        let mut product = 1.0f32;
        for step in 1..=steps {
            product *= self.momentum(step) as f32;
            if product < 1e-17 {
                return 0.0;
            }
        }
        f64::from(product)
    }
}

impl<B: Backend> Rule<B> for NAdamConfig {
    fn fields(&self) -> &'static [&'static str] {
        &["exp_avg", "exp_avg_sq"]
    }

    fn update(&self, param: &mut B::Tensor, gradient: &B::Tensor, state: &mut [B::Tensor], step: u64) -> Result<()> {
        let (momentum, next, product) = (self.momentum(step), self.momentum(step + 1), self.product(step));
        by_ops::<B>(param, gradient, state, |param, gradient, state| {
            let (penalty, shrink) = decays(self.weight_decay, self.decoupled_weight_decay, self.lr);
            let gradient = penalized::<B>(gradient, param, penalty)?;
            let mean = blend::<B>(&state[0], &gradient, self.betas.0)?;
            let square = blend::<B>(&state[1], &B::mul(&gradient, &gradient)?, self.betas.1)?;
            let unbiased = B::mul_scalar(&square, 1.0 / bias(self.betas.1, step))?;
            let ahead = B::add(
                &B::mul_scalar(&gradient, (1.0 - momentum) / (1.0 - product))?,
                &B::mul_scalar(&mean, next / (1.0 - product * next))?,
            )?;
            let change = B::div(&ahead, &root::<B>(&unbiased, self.eps)?)?;
            Ok((descend::<B>(param, &change, self.lr, shrink)?, vec![mean, square]))
        })
    }
}

optimizer!(NAdam, NAdamConfig);

/// RAdam as in PyTorch's `torch.optim.RAdam`: Adam that does not use the second moment until it is reliable enough.
///
/// Source: Liu and others, "On the variance of the adaptive learning rate and beyond" (2020).
pub struct RAdam<B: Backend = AnyBackend> {
    groups: Groups<B, RAdamConfig>,
}

optimizer_options! {
    /// Options of [`RAdam`].
    RAdamConfig of RAdam, "1e-3", betas 0.9 0.999;
    /// Added to the denominator.
    eps: f64 = 1e-8, in 0.0..;
    /// Weight decay: added to the gradient, or subtracted from the parameter itself if it is decoupled.
    weight_decay: f64 = 0.0, in 0.0..;
    /// Whether the weight decay is subtracted from the parameter itself, as in AdamW.
    decoupled_weight_decay: bool = false;
}

impl RAdamConfig {
    /// The rectification factor of step `step`; `None` while the moving average is too short for its variance to be
    /// tractable.
    fn rectification(&self, step: u64) -> Option<f64> {
        let (beta, t) = (self.betas.1, step as f64);
        let full = 2.0 / (1.0 - beta) - 1.0;
        let length = full - 2.0 * t * beta.powf(t) / bias(beta, step);
        (length > 5.0).then(|| {
            let part = |length: f64| (length - 4.0) * (length - 2.0) / length;
            (part(length) / part(full)).sqrt()
        })
    }
}

impl<B: Backend> Rule<B> for RAdamConfig {
    fn fields(&self) -> &'static [&'static str] {
        &["exp_avg", "exp_avg_sq"]
    }

    fn update(&self, param: &mut B::Tensor, gradient: &B::Tensor, state: &mut [B::Tensor], step: u64) -> Result<()> {
        by_ops::<B>(param, gradient, state, |param, gradient, state| {
            let (penalty, shrink) = decays(self.weight_decay, self.decoupled_weight_decay, self.lr);
            let gradient = penalized::<B>(gradient, param, penalty)?;
            let mean = blend::<B>(&state[0], &gradient, self.betas.0)?;
            let square = blend::<B>(&state[1], &B::mul(&gradient, &gradient)?, self.betas.1)?;
            let rate = self.lr / bias(self.betas.0, step);
            let new = match self.rectification(step) {
                None => descend::<B>(param, &mean, rate, shrink)?,
                Some(factor) => {
                    let change = B::div(&mean, &root::<B>(&square, self.eps)?)?;
                    descend::<B>(param, &change, rate * factor * bias(self.betas.1, step).sqrt(), shrink)?
                }
            };
            Ok((new, vec![mean, square]))
        })
    }
}

optimizer!(RAdam, RAdamConfig);

/// Bias correction of a moving average that began at 0, after `step` steps.
fn bias(beta: f64, step: u64) -> f64 {
    1.0 - beta.powf(step as f64)
}

/// The factor of the penalty added to the gradient, and the share subtracted from the parameter.
fn decays(weight_decay: f64, decoupled: bool, lr: f64) -> (f64, f64) {
    if decoupled {
        (0.0, lr * weight_decay)
    } else {
        (weight_decay, 0.0)
    }
}
