//! LAMB.

use polygrad_core::{BinaryOp, CompareOp, UnaryOp};
use polygrad_tensor::{AnyBackend, Backend, Result, Scalar};

use super::common::{Rule, blend, by_ops, descend, norm, optimizer, optimizer_options};
use super::slots::Groups;

/// LAMB: Adam's direction, scaled for each parameter by the ratio of the parameter's norm to the direction's. It is
/// meant for large batches.
///
/// It has bias correction, and follows timm's `Lamb(max_grad_norm=None)`: the weight decay is part of the scaled
/// direction, the ratio is 1 if either norm is 0, and parameters without weight decay are not scaled unless
/// [`always_adapt`](LAMBConfig::always_adapt) is set. timm also clips the gradients' total norm to 1 by default; here
/// use [`clip_grad_norm`](crate::optim::clip_grad_norm) for that.
///
/// Source: You et al., "Large batch optimization for deep learning: training BERT in 76 minutes" (2019), algorithm 2.
pub struct LAMB<B: Backend = AnyBackend> {
    groups: Groups<B, LAMBConfig>,
}

optimizer_options! {
    /// Options of [`LAMB`], with timm's defaults.
    LAMBConfig of LAMB, "1e-3", betas 0.9 0.999;
    /// Added to the denominator.
    eps: f64 = 1e-6, in 0.0..;
    /// Weight decay: this times the parameter is added to Adam's direction.
    weight_decay: f64 = 0.01, in 0.0..;
    /// Whether the ratio is at most 1.
    trust_clip: bool = false;
    /// Whether parameters without weight decay are also scaled.
    always_adapt: bool = false;
}

impl LAMBConfig {
    /// `‖param‖ / ‖direction‖`, or 1 if either norm is 0: a tensor of rank 0.
    fn trust_ratio<B: Backend>(&self, param: &B::Tensor, direction: &B::Tensor) -> Result<B::Tensor> {
        let (param, direction) = (norm::<B>(param)?, norm::<B>(direction)?);
        let zero = Scalar::from(0.0);
        let one = B::full(
            B::shape(&param),
            Scalar::from(1.0),
            B::dtype(&param),
            &B::device(&param),
        )?;
        let mut ratio = B::div(&param, &direction)?;
        for norm in [&param, &direction] {
            ratio = B::select(&B::compare_scalar(CompareOp::Gt, norm, zero)?, &ratio, &one)?;
        }
        if self.trust_clip {
            ratio = B::binary(BinaryOp::Minimum, &ratio, &one)?;
        }
        Ok(ratio)
    }
}

impl<B: Backend> Rule<B> for LAMBConfig {
    fn fields(&self) -> &'static [&'static str] {
        &["exp_avg", "exp_avg_sq"]
    }

    fn is_elementwise(&self) -> bool {
        false
    }

    fn update(&self, param: &mut B::Tensor, gradient: &B::Tensor, state: &mut [B::Tensor], step: u64) -> Result<()> {
        let steps = step as f64;
        let correction = |beta: f64| 1.0 - beta.powf(steps);
        by_ops::<B>(param, gradient, state, |param, gradient, state| {
            let first = blend::<B>(&state[0], gradient, self.betas.0)?;
            let second = blend::<B>(&state[1], &B::mul(gradient, gradient)?, self.betas.1)?;
            let root = B::unary(UnaryOp::Sqrt, &second)?;
            let root = B::mul_scalar(&root, 1.0 / correction(self.betas.1).sqrt())?;
            let mean = B::mul_scalar(&first, 1.0 / correction(self.betas.0))?;
            let mut direction = B::div(&mean, &B::add_scalar(&root, self.eps)?)?;
            if self.weight_decay != 0.0 {
                direction = B::add(&direction, &B::mul_scalar(param, self.weight_decay)?)?;
            }
            if self.weight_decay != 0.0 || self.always_adapt {
                direction = B::mul(&direction, &self.trust_ratio::<B>(param, &direction)?)?;
            }
            Ok((descend::<B>(param, &direction, self.lr, 0.0)?, vec![first, second]))
        })
    }
}

optimizer!(LAMB, LAMBConfig);
