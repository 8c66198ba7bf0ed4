//! Adam and AdamW.

use polygrad_tensor::{AdamParams, AnyBackend, Backend, Result};

use super::common::{Options, Rule, check, maximize, optimizer};
use super::slots::Groups;
use crate::Param;

/// Adam, and AdamW, as in PyTorch's `torch.optim`.
///
/// Sources: Kingma and Ba, "Adam: a method for stochastic optimization" (2014); Loshchilov and Hutter, "Decoupled weight decay
/// regularization" (2017); Reddi, Kale and Kumar, "On the convergence of Adam and beyond" (2018) for AMSGrad.
pub struct Adam<B: Backend = AnyBackend> {
    groups: Groups<B, AdamConfig>,
}

/// [`Adam`] whose weight decay is taken off the parameters themselves: a constructor's name.
#[derive(Clone, Copy, Debug)]
pub struct AdamW;

/// Options of [`Adam`].
#[derive(Clone, Copy, Debug)]
pub struct AdamConfig {
    lr: f64,
    betas: (f64, f64),
    eps: f64,
    weight_decay: f64,
    decoupled: bool,
    amsgrad: bool,
    maximize: bool,
}

impl AdamConfig {
    /// Adam without weight decay. PyTorch's default learning rate is 1e-3.
    pub const fn new(lr: f64) -> Self {
        Self {
            lr,
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay: 0.0,
            decoupled: false,
            amsgrad: false,
            maximize: false,
        }
    }

    maximize!();

    /// AdamW, with PyTorch's weight decay of 0.01. PyTorch's default learning rate is 1e-3.
    pub const fn adamw(lr: f64) -> Self {
        Self {
            weight_decay: 0.01,
            decoupled: true,
            ..Self::new(lr)
        }
    }

    /// Decay of the first and of the second moment, each in `[0, 1)`. Default: 0.9 and 0.999.
    #[must_use]
    pub const fn betas(mut self, first: f64, second: f64) -> Self {
        self.betas = (first, second);
        self
    }

    /// Added to the denominator. Default: 1e-8.
    #[must_use]
    pub const fn eps(mut self, eps: f64) -> Self {
        self.eps = eps;
        self
    }

    /// Weight decay: added to the gradient by Adam, taken off the parameter itself by AdamW. Default: 0 for Adam, 0.01 for AdamW.
    #[must_use]
    pub const fn weight_decay(mut self, weight_decay: f64) -> Self {
        self.weight_decay = weight_decay;
        self
    }

    /// Whether the largest second moment so far is used in place of the present one. Default: false.
    #[must_use]
    pub const fn amsgrad(mut self, amsgrad: bool) -> Self {
        self.amsgrad = amsgrad;
        self
    }
}

impl<B: Backend> Adam<B> {
    /// Adam without weight decay; [`AdamConfig`] has the other options.
    ///
    /// # Errors
    /// As [`AdamConfig::build`].
    pub fn new(params: impl IntoIterator<Item = Param<B>>, lr: f64) -> Result<Self> {
        AdamConfig::new(lr).build(params)
    }

    /// Sets the decay of the first moment in all groups: what the momentum cycle of a [`OneCycleLR`](crate::optim::OneCycleLR) computes.
    ///
    /// # Errors
    /// When it is outside `[0, 1)`.
    pub fn set_beta1(&mut self, beta1: f64) -> Result<()> {
        check("beta1", beta1, 0.0..1.0)?;
        for group in &mut self.groups.groups {
            group.config.betas.0 = beta1;
        }
        Ok(())
    }
}

impl Options for AdamConfig {
    fn check(&self) -> Result<()> {
        check("lr", self.lr, 0.0..)?;
        check("beta1", self.betas.0, 0.0..1.0)?;
        check("beta2", self.betas.1, 0.0..1.0)?;
        check("eps", self.eps, 0.0..)?;
        check("weight_decay", self.weight_decay, 0.0..)
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

impl<B: Backend> Rule<B> for AdamConfig {
    fn fields(&self) -> &'static [&'static str] {
        if self.amsgrad {
            &["exp_avg", "exp_avg_sq", "max_exp_avg_sq"]
        } else {
            &["exp_avg", "exp_avg_sq"]
        }
    }

    fn update(&self, param: &mut B::Tensor, gradient: &B::Tensor, state: &mut [B::Tensor], step: u64) -> Result<()> {
        let params = AdamParams {
            lr: self.lr,
            beta1: self.betas.0,
            beta2: self.betas.1,
            eps: self.eps,
            weight_decay: self.weight_decay,
            decoupled: self.decoupled,
            step,
        };
        match state {
            [first, second] => B::adam_step(param, gradient, first, second, None, &params),
            [first, second, largest] => B::adam_step(param, gradient, first, second, Some(largest), &params),
            _ => unreachable!("there is one tensor for each field"),
        }
    }
}

impl AdamW {
    /// AdamW with a weight decay of 0.01; [`AdamConfig::adamw`] has the other options.
    ///
    /// # Errors
    /// As [`AdamConfig::build`].
    #[allow(
        clippy::new_ret_no_self,
        reason = "AdamW is Adam with another weight decay, under PyTorch's name"
    )]
    pub fn new<B: Backend>(params: impl IntoIterator<Item = Param<B>>, lr: f64) -> Result<Adam<B>> {
        AdamConfig::adamw(lr).build(params)
    }
}

optimizer!(Adam, AdamConfig);
