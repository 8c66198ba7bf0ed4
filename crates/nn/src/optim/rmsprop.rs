//! RMSprop.

use polygrad_core::UnaryOp;
use polygrad_tensor::{AnyBackend, Backend, Result};

use super::common::{Rule, blend, by_ops, check, descend, optimizer};
use super::slots::Groups;
use crate::Param;

/// RMSprop, plain or centred, with momentum and weight decay as in PyTorch's `torch.optim.RMSprop`.
///
/// Sources: Hinton, lecture 6e of "Neural networks for machine learning" (2012); Graves, "Generating sequences with recurrent neural
/// networks" (2013) for the centred form.
pub struct RMSprop<B: Backend = AnyBackend> {
    groups: Groups<B, RMSpropConfig>,
}

/// Options of [`RMSprop`].
#[derive(Clone, Copy, Debug)]
pub struct RMSpropConfig {
    lr: f64,
    alpha: f64,
    eps: f64,
    weight_decay: f64,
    momentum: f64,
    centered: bool,
}

impl RMSpropConfig {
    /// Plain RMSprop. PyTorch's default learning rate is 1e-2.
    pub const fn new(lr: f64) -> Self {
        Self {
            lr,
            alpha: 0.99,
            eps: 1e-8,
            weight_decay: 0.0,
            momentum: 0.0,
            centered: false,
        }
    }

    /// Decay of the mean square, in `[0, 1)`. Default: 0.99.
    #[must_use]
    pub const fn alpha(mut self, alpha: f64) -> Self {
        self.alpha = alpha;
        self
    }

    /// Added to the denominator. Default: 1e-8.
    #[must_use]
    pub const fn eps(mut self, eps: f64) -> Self {
        self.eps = eps;
        self
    }

    /// L2 penalty: this times the parameter is added to the gradient. Default: 0.
    #[must_use]
    pub const fn weight_decay(mut self, weight_decay: f64) -> Self {
        self.weight_decay = weight_decay;
        self
    }

    /// Share of the last change that is kept. Default: 0.
    #[must_use]
    pub const fn momentum(mut self, momentum: f64) -> Self {
        self.momentum = momentum;
        self
    }

    /// Whether the gradient's variance takes the place of its mean square. Default: false.
    #[must_use]
    pub const fn centered(mut self, centered: bool) -> Self {
        self.centered = centered;
        self
    }
}

impl<B: Backend> RMSprop<B> {
    /// Plain RMSprop; [`RMSpropConfig`] has the other options.
    ///
    /// # Errors
    /// As [`RMSpropConfig::build`].
    pub fn new(params: impl IntoIterator<Item = Param<B>>, lr: f64) -> Result<Self> {
        RMSpropConfig::new(lr).build(params)
    }
}

impl<B: Backend> Rule<B> for RMSpropConfig {
    fn check(&self) -> Result<()> {
        check("lr", self.lr, 0.0..)?;
        check("alpha", self.alpha, 0.0..1.0)?;
        check("eps", self.eps, 0.0..)?;
        check("weight_decay", self.weight_decay, 0.0..)?;
        check("momentum", self.momentum, 0.0..)
    }

    fn fields(&self) -> &'static [&'static str] {
        match (self.momentum > 0.0, self.centered) {
            (false, false) => &["square_avg"],
            (true, false) => &["square_avg", "momentum_buffer"],
            (false, true) => &["square_avg", "grad_avg"],
            (true, true) => &["square_avg", "momentum_buffer", "grad_avg"],
        }
    }

    fn lr(&self) -> f64 {
        self.lr
    }

    fn set_lr(&mut self, lr: f64) {
        self.lr = lr;
    }

    /// `state` is the mean square, then the momentum if there is one, then the mean gradient if it is centred.
    fn update(&self, param: &mut B::Tensor, gradient: &B::Tensor, state: &mut [B::Tensor], _step: u64) -> Result<()> {
        by_ops::<B>(param, gradient, state, |param, gradient, state| {
            let mut gradient = gradient.clone();
            if self.weight_decay != 0.0 {
                gradient = B::add(&gradient, &B::mul_scalar(param, self.weight_decay)?)?;
            }
            let square = blend::<B>(&state[0], &B::mul(&gradient, &gradient)?, self.alpha)?;
            let mean = match state.last().filter(|_| self.centered) {
                None => None,
                Some(mean) => Some(blend::<B>(mean, &gradient, self.alpha)?),
            };
            let spread = match &mean {
                None => square.clone(),
                Some(mean) => B::sub(&square, &B::mul(mean, mean)?)?,
            };
            let root = B::add_scalar(&B::unary(UnaryOp::Sqrt, &spread)?, self.eps)?;
            let mut change = B::div(&gradient, &root)?;
            let mut new = vec![square];
            if self.momentum > 0.0 {
                change = B::add(&B::mul_scalar(&state[1], self.momentum)?, &change)?;
                new.push(change.clone());
            }
            new.extend(mean);
            Ok((descend::<B>(param, &change, self.lr, 0.0)?, new))
        })
    }
}

optimizer!(RMSprop, RMSpropConfig);
