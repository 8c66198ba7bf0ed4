//! Losses: what training makes small.

mod bce;
mod cross_entropy;
mod kl_div;
mod nll;
mod regression;

use polygrad_tensor::{Backend, Error, Result, Tensor};

pub use bce::{BCELoss, BCEWithLogitsLoss, bce_with_logits, binary_cross_entropy};
pub use cross_entropy::{CrossEntropyLoss, cross_entropy};
pub use kl_div::{KLDivLoss, kl_div};
pub use nll::{NLLLoss, nll_loss};
pub use regression::{HuberLoss, L1Loss, MSELoss, SmoothL1Loss, huber_loss, l1_loss, mse_loss, smooth_l1_loss};

/// What a loss makes of the losses of all elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// Gives them all.
    None,
    /// Their mean. The default.
    #[default]
    Mean,
    /// Their sum.
    Sum,
}

impl Reduction {
    fn apply<B: Backend>(self, losses: Tensor<B>) -> Result<Tensor<B>> {
        match self {
            Self::None => Ok(losses),
            Self::Mean => losses.mean_all(),
            Self::Sum => losses.sum_all(),
        }
    }
}

/// Fails unless input and target have one shape: that they broadcast is nearly always a mistake, as in `[N, 1]` against `[N]`.
fn check_same_shape<B: Backend>(op: &'static str, input: &Tensor<B>, target: &Tensor<B>) -> Result<()> {
    if input.shape() == target.shape() {
        return Ok(());
    }
    Err(Error::shape("input and target have different shapes")
        .with_op(op)
        .with_operands([(input.shape(), input.dtype()), (target.shape(), target.dtype())])
        .with_hint("bring them to one shape with reshape, squeeze or expand"))
}
