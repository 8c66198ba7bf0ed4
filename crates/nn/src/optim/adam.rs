//! Adam and AdamW.

use polygrad_tensor::{AdamParams, AnyBackend, Backend, Result};

use super::common::{Rule, check, optimizer, optimizer_options};
use super::slots::Groups;
use crate::Param;

/// Adam, and AdamW, as in PyTorch's `torch.optim`.
///
/// Sources: Kingma and Ba, "Adam: a method for stochastic optimization" (2014); Loshchilov and Hutter, "Decoupled
/// weight decay regularization" (2017); Reddi, Kale and Kumar, "On the convergence of Adam and beyond" (2018) for
/// AMSGrad.
pub struct Adam<B: Backend = AnyBackend> {
    groups: Groups<B, AdamConfig>,
}

/// [`Adam`] whose weight decay is subtracted from the parameters directly. This type only has a constructor.
#[derive(Clone, Copy, Debug)]
pub struct AdamW;

optimizer_options! {
    /// Options of [`Adam`].
    AdamConfig of Adam, "1e-3", betas 0.9 0.999, with decoupled: bool = false;
    /// Added to the denominator.
    eps: f64 = 1e-8, in 0.0..;
    /// Weight decay: Adam adds it to the gradient; AdamW, whose default is 0.01, subtracts it from the parameter.
    weight_decay: f64 = 0.0, in 0.0..;
    /// Whether the largest second moment so far is used instead of the current one.
    amsgrad: bool = false;
}

impl AdamConfig {
    /// AdamW, with PyTorch's weight decay of 0.01. PyTorch's default learning rate is 1e-3.
    pub const fn adamw(lr: f64) -> Self {
        Self {
            weight_decay: 0.01,
            decoupled: true,
            ..Self::new(lr)
        }
    }
}

impl<B: Backend> Adam<B> {
    /// Sets the decay of the first moment in all groups, as for the momentum cycle of a
    /// [`OneCycleLR`](crate::optim::OneCycleLR).
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
