//! Stochastic gradient descent.

use polygrad_tensor::{AnyBackend, Backend, Error, Result, SgdParams};

use super::common::{Rule, check, optimizer, optimizer_options};
use super::slots::Groups;

/// Stochastic gradient descent, with momentum, dampening, Nesterov's momentum and weight decay as in PyTorch's
/// `torch.optim.SGD`.
///
/// Source for Nesterov's momentum: Sutskever et al., "On the importance of initialization and momentum in deep
/// learning" (2013).
pub struct SGD<B: Backend = AnyBackend> {
    groups: Groups<B, SGDConfig>,
}

optimizer_options! {
    /// Options of [`SGD`].
    SGDConfig of SGD, "1e-3";
    /// Share of the last direction that is kept.
    momentum: f64 = 0.0, in 0.0..;
    /// Share of the gradient that does not enter the momentum.
    dampening: f64 = 0.0, in ..;
    /// L2 penalty: this times the parameter is added to the gradient.
    weight_decay: f64 = 0.0, in 0.0..;
    /// Whether the momentum is Nesterov's, which needs a momentum and no dampening.
    nesterov: bool = false;
}

impl<B: Backend> SGD<B> {
    /// Sets the momentum of all groups, as for the momentum cycle of a [`OneCycleLR`](crate::optim::OneCycleLR).
    ///
    /// # Errors
    /// When it is negative or not a number, or a group was built without momentum; nothing has changed then.
    pub fn set_momentum(&mut self, momentum: f64) -> Result<()> {
        check("momentum", momentum, 0.0..)?;
        if self.groups.groups.iter().any(|group| group.fields.is_empty()) {
            return Err(
                Error::invalid("a group was built without momentum, and keeps no direction")
                    .with_op("set_momentum")
                    .with_hint("build it with SGDConfig::momentum"),
            );
        }
        for group in &mut self.groups.groups {
            group.config.momentum = momentum;
        }
        Ok(())
    }
}

impl<B: Backend> Rule<B> for SGDConfig {
    fn check_together(&self) -> Result<()> {
        if self.nesterov && (self.momentum == 0.0 || self.dampening != 0.0) {
            return Err(Error::invalid("Nesterov's momentum needs a momentum, and no dampening").with_op("SGD"));
        }
        Ok(())
    }

    fn fields(&self) -> &'static [&'static str] {
        if self.momentum == 0.0 {
            &[]
        } else {
            &["momentum_buffer"]
        }
    }

    fn update(&self, param: &mut B::Tensor, gradient: &B::Tensor, state: &mut [B::Tensor], step: u64) -> Result<()> {
        let params = SgdParams {
            lr: self.lr,
            momentum: self.momentum,
            dampening: self.dampening,
            weight_decay: self.weight_decay,
            nesterov: self.nesterov,
            first: step == 1,
        };
        B::sgd_step(param, gradient, state.first_mut(), &params)
    }
}

optimizer!(SGD, SGDConfig);
