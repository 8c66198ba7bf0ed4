//! RMSprop.

use polygrad_core::UnaryOp;
use polygrad_tensor::{AnyBackend, Backend, Gradients, Result};

use super::common::optimizer;
use super::slots::{Slots, check};
use crate::Param;

/// RMSprop, plain or centred, with momentum and weight decay as in PyTorch's `torch.optim.RMSprop`.
///
/// Sources: Hinton, lecture 6e of "Neural networks for machine learning" (2012); Graves, "Generating sequences with recurrent neural
/// networks" (2013) for the centred form.
pub struct RMSprop<B: Backend = AnyBackend> {
    config: RMSpropConfig,
    slots: Slots<B>,
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

    /// The optimizer, for parameters.
    ///
    /// # Errors
    /// When an option is out of range, or there are no parameters.
    pub fn build<B: Backend>(self, params: impl IntoIterator<Item = Param<B>>) -> Result<RMSprop<B>> {
        check("lr", self.lr, 0.0..)?;
        check("alpha", self.alpha, 0.0..1.0)?;
        check("eps", self.eps, 0.0..)?;
        check("weight_decay", self.weight_decay, 0.0..)?;
        check("momentum", self.momentum, 0.0..)?;
        let fields: &[_] = match (self.momentum > 0.0, self.centered) {
            (false, false) => &["square_avg"],
            (true, false) => &["square_avg", "momentum_buffer"],
            (false, true) => &["square_avg", "grad_avg"],
            (true, true) => &["square_avg", "momentum_buffer", "grad_avg"],
        };
        Ok(RMSprop {
            config: self,
            slots: Slots::new(params, fields)?,
        })
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

    /// `state` is the mean square, then the momentum if there is one, then the mean gradient if it is centred.
    fn update(
        config: &RMSpropConfig,
        param: &mut B::Tensor,
        gradient: &B::Tensor,
        state: &mut [B::Tensor],
        _step: u64,
    ) -> Result<()> {
        let mut gradient = gradient.clone();
        if config.weight_decay != 0.0 {
            gradient = B::add(&gradient, &B::mul_scalar(param, config.weight_decay)?)?;
        }
        let (square, rest) = match state {
            [square, rest @ ..] => (square, rest),
            [] => unreachable!("there is one tensor for each field"),
        };
        // Everything is computed before anything changes: a device may fail at each op.
        let new_square = blend::<B>(square, &B::mul(&gradient, &gradient)?, config.alpha)?;
        let new_mean = match rest.last().filter(|_| config.centered) {
            None => None,
            Some(mean) => Some(blend::<B>(mean, &gradient, config.alpha)?),
        };
        let spread = match &new_mean {
            None => new_square.clone(),
            Some(mean) => B::sub(&new_square, &B::mul(mean, mean)?)?,
        };
        let root = B::add_scalar(&B::unary(UnaryOp::Sqrt, &spread)?, config.eps)?;
        let mut change = B::div(&gradient, &root)?;
        let buffer = rest.first_mut().filter(|_| config.momentum > 0.0);
        if let Some(buffer) = &buffer {
            change = B::add(&B::mul_scalar(buffer, config.momentum)?, &change)?;
        }
        *param = B::sub(param, &B::mul_scalar(&change, config.lr)?)?;
        *square = new_square;
        if let Some(buffer) = buffer {
            *buffer = change;
        }
        if let (Some(mean), Some(new)) = (rest.last_mut(), new_mean) {
            *mean = new;
        }
        Ok(())
    }
}

/// `decay · old + (1 − decay) · new`.
fn blend<B: Backend>(old: &B::Tensor, new: &B::Tensor, decay: f64) -> Result<B::Tensor> {
    B::add(&B::mul_scalar(old, decay)?, &B::mul_scalar(new, 1.0 - decay)?)
}

optimizer!(RMSprop);
