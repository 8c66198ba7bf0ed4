//! Gradient rules of element-wise ops.

use std::f64::consts::FRAC_2_SQRT_PI;

use polygrad_core::{Backend, BinaryOp, Error, Result, Scalar, UnaryOp};
use smallvec::smallvec;

use super::{Context, Passed};
use crate::{Tensor, no_grad};

#[inline(never)]
pub(super) fn unary<B: Backend>(op: UnaryOp, c: &Context<'_, B>) -> Result<Passed<B>> {
    let g = &c.grad;
    // The input or the output, whichever was saved.
    let saved = || &c.saved[0];
    Passed::one(match op {
        UnaryOp::Neg => g.neg()?,
        UnaryOp::Abs => g.mul(&saved().sign()?)?,
        UnaryOp::Sign | UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round | UnaryOp::Trunc => g.zeros_like()?,
        UnaryOp::Exp => g.mul(saved())?,
        UnaryOp::Expm1 => g.mul(&(saved() + 1.0)?)?,
        UnaryOp::Log => g.div(saved())?,
        UnaryOp::Log1p => g.div(&(saved() + 1.0)?)?,
        UnaryOp::Sqrt => (g.div(saved())? * 0.5)?,
        UnaryOp::Rsqrt => (g.mul(&saved().pow(3.0)?)? * -0.5)?,
        UnaryOp::Reciprocal => g.mul(&saved().square()?.neg()?)?,
        UnaryOp::Sin => g.mul(&saved().cos()?)?,
        UnaryOp::Cos => g.mul(&saved().sin()?.neg()?)?,
        UnaryOp::Tan => g.mul(&(saved().square()? + 1.0)?)?,
        UnaryOp::Tanh => g.mul(&(1.0 - saved().square()?)?)?,
        UnaryOp::Sigmoid => g.mul(&(saved() * (1.0 - saved()))?)?,
        UnaryOp::Erf => g.mul(&(saved().square()?.neg()?.exp()? * FRAC_2_SQRT_PI)?)?,
        UnaryOp::Relu => g.masked_fill(&saved().le(0.0)?, 0.0)?,
        other => return Err(super::missing(other.name())),
    })
}

#[inline(never)]
pub(super) fn binary<B: Backend>(op: BinaryOp, c: &Context<'_, B>) -> Result<Passed<B>> {
    let g = &c.grad;
    let (a, b) = (|| &c.saved[0], || &c.saved[1]);
    let to_a = |gradient: Tensor<B>| gradient.sum_to(c.shape(0));
    let to_b = |gradient: Tensor<B>| gradient.sum_to(c.shape(1));
    match op {
        BinaryOp::Add => c.two(|| to_a(g.clone()), || to_b(g.clone())),
        BinaryOp::Sub => c.two(|| to_a(g.clone()), || to_b(g.neg()?)),
        BinaryOp::Mul => c.two(|| to_a(g.mul(b())?), || to_b(g.mul(a())?)),
        BinaryOp::Div => c.two(|| to_a(g.div(b())?), || to_b(g.mul(&a().div(b())?.div(b())?)?.neg()?)),
        BinaryOp::Remainder => c.two(|| to_a(g.clone()), || to_b(g.mul(&a().div(b())?.floor()?)?.neg()?)),
        // Where the derivative is 0 although one of its factors is infinite, the base is replaced. Masking the
        // derivative itself would leave NaN in the second derivative.
        BinaryOp::Pow => c.two(
            || {
                let flat = a().eq(0.0)?.logical_and(&b().eq(0.0)?)?;
                let power = a().masked_fill(&flat, 1.0)?.pow(&(b() - 1.0)?)?;
                to_a(g.mul(&b().mul(&power)?)?)
            },
            || {
                // 0 to a nonnegative power does not depend on the power.
                let flat = a().eq(0.0)?.logical_and(&b().ge(0.0)?)?;
                let logarithm = a().masked_fill(&flat, 1.0)?.log()?;
                to_b(g.mul(&c.saved[2].mul(&logarithm)?)?)
            },
        ),
        BinaryOp::Maximum | BinaryOp::Minimum => {
            let half = (g * 0.5)?;
            let share = |own: &Tensor<B>, other: &Tensor<B>| {
                let lost = if op == BinaryOp::Maximum {
                    own.lt(other)?
                } else {
                    own.gt(other)?
                };
                Tensor::where_(&own.eq(other)?, &half, &g.masked_fill(&lost, 0.0)?)
            };
            c.two(|| to_a(share(a(), b())?), || to_b(share(b(), a())?))
        }
        BinaryOp::Atan2 => {
            // At the origin there is no angle; the gradient is 0 there.
            let norm = || {
                let origin = a().eq(0.0)?.logical_and(&b().eq(0.0)?)?;
                a().square()?.add(&b().square()?)?.masked_fill(&origin, 1.0)
            };
            c.two(
                || to_a(g.mul(&b().div(&norm()?)?)?),
                || to_b(g.mul(&a().div(&norm()?)?)?.neg()?),
            )
        }
        BinaryOp::LogAddExp => c.two(|| to_a(g.mul(&share(a(), b())?)?), || to_b(g.mul(&share(b(), a())?)?)),
        other => Err(super::missing(other.name())),
    }
}

/// The share of `own` in `ln(e^own + e^other)`: half where both are equal, even if they are infinite.
fn share<B: Backend>(own: &Tensor<B>, other: &Tensor<B>) -> Result<Tensor<B>> {
    own.sub(other)?.masked_fill(&own.eq(other)?, 0.0)?.sigmoid()
}

#[inline(never)]
pub(super) fn binary_scalar<B: Backend>(
    op: BinaryOp,
    scalar: Scalar,
    reverse: bool,
    c: &Context<'_, B>,
) -> Result<Passed<B>> {
    let g = &c.grad;
    let x = || &c.saved[0];
    let s = scalar.to_f64();
    Passed::one(match (op, reverse) {
        (BinaryOp::Add, _) | (BinaryOp::Sub | BinaryOp::Remainder, false) => g.clone(),
        (BinaryOp::Sub, true) => g.neg()?,
        (BinaryOp::Mul, _) => (g * s)?,
        (BinaryOp::Div, false) => (g / s)?,
        // Two divisions, since the square of x may overflow.
        (BinaryOp::Div, true) => g
            .mul(&x().binary_scalar(BinaryOp::Div, scalar, true)?.div(x())?)?
            .neg()?,
        (BinaryOp::Pow, false) if s == 0.0 => g.zeros_like()?,
        (BinaryOp::Pow, false) => g.mul(&(x().pow(s - 1.0)? * s)?)?,
        (BinaryOp::Pow, true) if s == 0.0 => {
            // As for tensors above, but the base is the number.
            let logarithm = x().zeros_like()?.masked_fill(&x().lt(0.0)?, f64::NEG_INFINITY)?;
            g.mul(&c.saved[1].mul(&logarithm)?)?
        }
        (BinaryOp::Pow, true) => g.mul(&(&c.saved[1] * s.ln())?)?,
        // NaN is not within the bound.
        (BinaryOp::Maximum, _) => where_kept(&x().ge(scalar)?, g)?,
        (BinaryOp::Minimum, _) => where_kept(&x().le(scalar)?, g)?,
        (BinaryOp::Remainder, true) => {
            let quotient = x().binary_scalar(BinaryOp::Div, s, true)?.floor()?;
            g.mul(&quotient)?.neg()?
        }
        (BinaryOp::Atan2, reverse) => {
            let sign = if reverse { -s } else { s };
            let mut norm = (x().square()? + s * s)?;
            if s == 0.0 {
                // The gradient is 0, at the origin too.
                norm = norm.masked_fill(&norm.eq(0.0)?, 1.0)?;
            }
            (g.div(&norm)? * sign)?
        }
        (BinaryOp::LogAddExp, _) => g.mul(&share(x(), &Tensor::full((), s, (&g.device(), g.dtype()))?)?)?,
        (other, _) => return Err(super::missing(other.name())),
    })
}

/// The gradient where the mask is true, else 0.
fn where_kept<B: Backend>(mask: &Tensor<B>, g: &Tensor<B>) -> Result<Tensor<B>> {
    let zero = Tensor::full((), 0.0, (&g.device(), g.dtype()))?;
    Tensor::where_(mask, g, &zero)
}

#[inline(never)]
pub(super) fn select<B: Backend>(c: &Context<'_, B>) -> Result<Passed<B>> {
    let condition = &c.saved[0];
    let zero = Tensor::full((), 0.0, (&c.grad.device(), c.grad.dtype()))?;
    Ok(Passed::Inputs(smallvec![
        None,
        c.when(1, || Tensor::where_(condition, &c.grad, &zero)?.sum_to(c.shape(1)))?,
        c.when(2, || Tensor::where_(condition, &zero, &c.grad)?.sum_to(c.shape(2)))?,
    ]))
}

/// The gradient passes as if nothing were rounded, and is 0 where values were clamped. The scale's gradient is that of
/// learned step sizes.
///
/// Sources: Bengio, Léonard and Courville, "Estimating or propagating gradients through stochastic neurons" (2013);
/// Esser et al., "Learned step size quantization" (2020); for the zero point, Bhalgat et al., "LSQ+: improving
/// low-bit quantization through learnable offsets and better initialization" (2020).
#[inline(never)]
pub(super) fn fake_quantize<B: Backend>([low, high]: [i32; 2], axis: usize, c: &Context<'_, B>) -> Result<Passed<B>> {
    let [x, scale, zero] = c.saved else {
        unreachable!("three tensors were saved");
    };
    let spread = |y: &Tensor<B>| {
        let mut dims = vec![1; x.rank()];
        if let Some(extent) = dims.get_mut(axis) {
            *extent = y.numel();
        }
        y.reshape(dims.as_slice())
    };
    let (scale, zero) = (spread(scale)?, spread(zero)?);
    let (low, high) = (f64::from(low), f64::from(high));
    let steps = x.div(&scale)?;
    let (number, inside) = no_grad(|| {
        let q = steps.detach().round()?.add(&zero)?;
        let inside = q.ge(low)?.logical_and(&q.le(high)?)?;
        Ok::<_, Error>((q.clamp(Some(low), Some(high))?, inside))
    })?;
    let nothing = Tensor::full((), 0.0, (&c.grad.device(), c.grad.dtype()))?;
    Ok(Passed::Inputs(smallvec![
        c.when(0, || Tensor::where_(&inside, &c.grad, &nothing))?,
        c.when(1, || {
            let slope = number.sub(&zero)?.sub(&Tensor::where_(&inside, &steps, &nothing)?)?;
            c.grad.mul(&slope)?.sum_to(scale.shape())?.reshape(c.shape(1))
        })?,
        c.when(2, || {
            let slope = Tensor::where_(&inside, &nothing, &scale.neg()?)?;
            c.grad.mul(&slope)?.sum_to(zero.shape())?.reshape(c.shape(2))
        })?,
    ]))
}
