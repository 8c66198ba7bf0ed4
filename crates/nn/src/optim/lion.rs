//! Lion.

use polygrad_core::UnaryOp;
use polygrad_tensor::{AnyBackend, Backend, Result};

use super::common::{Options, Rule, blend, by_ops, check, descend, optimizer};
use super::slots::Groups;
use crate::Param;
use crate::options::options;

/// Lion: steps of constant size, whose sign comes from a blend of momentum and gradient. Its state is one tensor for
/// each parameter, half of [`Adam`](crate::optim::Adam)'s.
///
/// `p ← p · (1 − lr · weight_decay) − lr · sign(β₁ m + (1 − β₁) g)`, then `m ← β₂ m + (1 − β₂) g`. Its authors
/// recommend a rate three to ten times smaller than AdamW's, and a weight decay larger by the same factor.
///
/// Source: Chen et al., "Symbolic discovery of optimization algorithms" (2023), algorithm 2.
pub struct Lion<B: Backend = AnyBackend> {
    groups: Groups<B, LionConfig>,
}

options! {
    /// Options of [`Lion`].
    #[derive(Clone, Copy, Debug)]
    pub struct LionConfig {
        /// Lion without weight decay. The authors' default learning rate is 1e-4.
        pub const fn new(lr: f64);
        /// Share of the momentum in a step, and decay of the momentum itself, each in `[0, 1)`. Default: 0.9 and 0.99.
        betas: (f64, f64) = (0.9, 0.99), from |first: f64, second: f64| (first, second);
        /// Weight decay: this times the learning rate is the share subtracted from the parameter itself.
        weight_decay: f64 = 0.0;
    }
}

impl<B: Backend> Lion<B> {
    /// Lion without weight decay; [`LionConfig`] has the other options.
    ///
    /// # Errors
    /// As [`LionConfig::build`].
    pub fn new(params: impl IntoIterator<Item = Param<B>>, lr: f64) -> Result<Self> {
        LionConfig::new(lr).build(params)
    }
}

impl Options for LionConfig {
    fn check(&self) -> Result<()> {
        check("lr", self.lr, 0.0..)?;
        check("beta1", self.betas.0, 0.0..1.0)?;
        check("beta2", self.betas.1, 0.0..1.0)?;
        check("weight_decay", self.weight_decay, 0.0..)
    }

    fn lr(&self) -> f64 {
        self.lr
    }

    fn set_lr(&mut self, lr: f64) {
        self.lr = lr;
    }
}

impl<B: Backend> Rule<B> for LionConfig {
    fn fields(&self) -> &'static [&'static str] {
        &["exp_avg"]
    }

    fn update(&self, param: &mut B::Tensor, gradient: &B::Tensor, state: &mut [B::Tensor], _step: u64) -> Result<()> {
        by_ops::<B>(param, gradient, state, |param, gradient, state| {
            let direction = B::unary(UnaryOp::Sign, &blend::<B>(&state[0], gradient, self.betas.0)?)?;
            let param = descend::<B>(param, &direction, self.lr, self.lr * self.weight_decay)?;
            Ok((param, vec![blend::<B>(&state[0], gradient, self.betas.1)?]))
        })
    }
}

optimizer!(Lion, LionConfig);
