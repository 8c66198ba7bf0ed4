//! RMSprop.

use polygrad_tensor::{AnyBackend, Backend, Result};

use super::common::{Rule, blend, by_ops, descend, optimizer, optimizer_options, penalized, root};
use super::slots::Groups;

/// RMSprop, plain or centred, with momentum and weight decay as in PyTorch's `torch.optim.RMSprop`.
///
/// Sources: Hinton, lecture 6e of "Neural networks for machine learning" (2012); Graves, "Generating sequences with
/// recurrent neural networks" (2013) for the centred form.
pub struct RMSprop<B: Backend = AnyBackend> {
    groups: Groups<B, RMSpropConfig>,
}

optimizer_options! {
    /// Options of [`RMSprop`].
    RMSpropConfig of RMSprop, "1e-2";
    /// Decay of the mean square, in `[0, 1)`.
    alpha: f64 = 0.99, in 0.0..1.0;
    /// Added to the denominator.
    eps: f64 = 1e-8, in 0.0..;
    /// L2 penalty: this times the parameter is added to the gradient.
    weight_decay: f64 = 0.0, in 0.0..;
    /// Share of the last change that is kept.
    momentum: f64 = 0.0, in 0.0..;
    /// Whether the gradient's variance is used instead of its mean square.
    centered: bool = false;
}

impl<B: Backend> Rule<B> for RMSpropConfig {
    fn fields(&self) -> &'static [&'static str] {
        match (self.momentum > 0.0, self.centered) {
            (false, false) => &["square_avg"],
            (true, false) => &["square_avg", "momentum_buffer"],
            (false, true) => &["square_avg", "grad_avg"],
            (true, true) => &["square_avg", "momentum_buffer", "grad_avg"],
        }
    }

    /// `state` is the mean square, then the momentum if there is one, then the mean gradient if it is centred.
    fn update(&self, param: &mut B::Tensor, gradient: &B::Tensor, state: &mut [B::Tensor], _step: u64) -> Result<()> {
        by_ops::<B>(param, gradient, state, |param, gradient, state| {
            let gradient = penalized::<B>(gradient, param, self.weight_decay)?;
            let square = blend::<B>(&state[0], &B::mul(&gradient, &gradient)?, self.alpha)?;
            let mean = match state.last().filter(|_| self.centered) {
                None => None,
                Some(mean) => Some(blend::<B>(mean, &gradient, self.alpha)?),
            };
            let spread = match &mean {
                None => square.clone(),
                Some(mean) => B::sub(&square, &B::mul(mean, mean)?)?,
            };
            let mut change = B::div(&gradient, &root::<B>(&spread, self.eps)?)?;
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
