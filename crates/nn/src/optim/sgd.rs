//! Stochastic gradient descent.

use polygrad_tensor::{AnyBackend, Backend, Error, Result, SgdParams};

use super::common::{Options, Rule, check, maximize, optimizer};
use super::slots::Groups;
use crate::Param;

/// Stochastic gradient descent, with momentum, dampening, Nesterov's momentum and weight decay as in PyTorch's `torch.optim.SGD`.
///
/// Source for Nesterov's momentum: Sutskever et al., "On the importance of initialization and momentum in deep learning" (2013).
pub struct SGD<B: Backend = AnyBackend> {
    groups: Groups<B, SGDConfig>,
}

/// Options of [`SGD`].
#[derive(Clone, Copy, Debug)]
pub struct SGDConfig {
    lr: f64,
    momentum: f64,
    dampening: f64,
    weight_decay: f64,
    nesterov: bool,
    maximize: bool,
}

impl SGDConfig {
    /// Plain descent with a learning rate.
    pub const fn new(lr: f64) -> Self {
        Self {
            lr,
            momentum: 0.0,
            dampening: 0.0,
            weight_decay: 0.0,
            nesterov: false,
            maximize: false,
        }
    }

    maximize!();

    /// Share of the last direction that is kept. Default: 0.
    #[must_use]
    pub const fn momentum(mut self, momentum: f64) -> Self {
        self.momentum = momentum;
        self
    }

    /// Share of the gradient that does not enter the momentum. Default: 0.
    #[must_use]
    pub const fn dampening(mut self, dampening: f64) -> Self {
        self.dampening = dampening;
        self
    }

    /// L2 penalty: this times the parameter is added to the gradient. Default: 0.
    #[must_use]
    pub const fn weight_decay(mut self, weight_decay: f64) -> Self {
        self.weight_decay = weight_decay;
        self
    }

    /// Whether the momentum is Nesterov's, which needs a momentum and no dampening. Default: false.
    #[must_use]
    pub const fn nesterov(mut self, nesterov: bool) -> Self {
        self.nesterov = nesterov;
        self
    }
}

impl<B: Backend> SGD<B> {
    /// Plain descent; [`SGDConfig`] has the other options.
    ///
    /// # Errors
    /// As [`SGDConfig::build`].
    pub fn new(params: impl IntoIterator<Item = Param<B>>, lr: f64) -> Result<Self> {
        SGDConfig::new(lr).build(params)
    }

    /// Sets the momentum of all groups: what the momentum cycle of a [`OneCycleLR`](crate::optim::OneCycleLR) computes.
    ///
    /// # Errors
    /// When it is negative or no number, or a group was built without momentum; nothing has changed then.
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

impl Options for SGDConfig {
    fn check(&self) -> Result<()> {
        check("lr", self.lr, 0.0..)?;
        check("momentum", self.momentum, 0.0..)?;
        check("dampening", self.dampening, ..)?;
        check("weight_decay", self.weight_decay, 0.0..)?;
        if self.nesterov && (self.momentum == 0.0 || self.dampening != 0.0) {
            return Err(Error::invalid("Nesterov's momentum needs a momentum, and no dampening").with_op("SGD"));
        }
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

impl<B: Backend> Rule<B> for SGDConfig {
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
