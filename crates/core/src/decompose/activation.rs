//! Activation functions and their derivatives.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, SQRT_2};

use super::wide::{is_narrow, widen};
use crate::{Activation, Backend, BinaryOp, CompareOp, Result, Scalar, UnaryOp};

/// √(2/π), of the tanh form of GELU.
const GELU_TANH_SCALE: f64 = FRAC_2_SQRT_PI * FRAC_1_SQRT_2;
/// Weight of the cubic term in the tanh form of GELU.
const GELU_TANH_CUBIC: f64 = 0.044_715;

/// See [`Backend::activation`].
pub(super) fn activation<B: Backend>(op: Activation, x: &B::Tensor) -> Result<B::Tensor> {
    if is_narrow::<B>(x) {
        return B::cast(&B::activation(op, &widen::<B>(x)?)?, B::dtype(x));
    }
    match op {
        Activation::Relu => B::unary(UnaryOp::Relu, x),
        Activation::Tanh => B::unary(UnaryOp::Tanh, x),
        Activation::Sigmoid => B::unary(UnaryOp::Sigmoid, x),
        Activation::Gelu => B::mul(x, &normal_cdf::<B>(x)?),
        Activation::GeluTanh => {
            let inner = gelu_inner::<B>(x)?;
            let gate = B::add_scalar(&B::unary(UnaryOp::Tanh, &inner)?, 1.0)?;
            B::mul_scalar(&B::mul(x, &gate)?, 0.5)
        }
        Activation::Silu => B::mul(x, &B::unary(UnaryOp::Sigmoid, x)?),
        Activation::HardSwish { scale, shift } => {
            let open = B::binary_scalar(BinaryOp::Maximum, &B::add_scalar(x, 3.0)?, Scalar::Float(0.0), false)?;
            let open = B::binary_scalar(BinaryOp::Minimum, &open, Scalar::Float(6.0), false)?;
            let y = B::mul(x, &B::mul_scalar(&open, scale / 6.0)?)?;
            if shift == 0.0 { Ok(y) } else { B::add_scalar(&y, shift) }
        }
        Activation::Softplus { beta, threshold } => {
            let scaled = B::mul_scalar(x, beta)?;
            // ln(1 + e^z) = max(z, 0) + ln(1 + e^-|z|), which cannot overflow.
            let decay = B::exp(&B::unary(UnaryOp::Neg, &B::unary(UnaryOp::Abs, &scaled)?)?)?;
            let soft = B::add(&B::unary(UnaryOp::Relu, &scaled)?, &B::unary(UnaryOp::Log1p, &decay)?)?;
            let is_linear = B::compare_scalar(CompareOp::Gt, &scaled, threshold.into())?;
            B::select(&is_linear, x, &B::mul_scalar(&soft, 1.0 / beta)?)
        }
        Activation::Elu { alpha } => {
            // The negative part is computed from min(x, 0), so that a large positive x does not overflow to infinity.
            let capped = B::binary_scalar(BinaryOp::Minimum, x, Scalar::Float(0.0), false)?;
            let negative = B::mul_scalar(&B::unary(UnaryOp::Expm1, &capped)?, alpha)?;
            B::select(&positive::<B>(x)?, x, &negative)
        }
        Activation::LeakyRelu { slope } => B::select(&positive::<B>(x)?, x, &B::mul_scalar(x, slope)?),
    }
}

/// See [`Backend::activation_backward`].
pub(super) fn activation_backward<B: Backend>(
    op: Activation,
    grad: &B::Tensor,
    saved: &B::Tensor,
) -> Result<B::Tensor> {
    if is_narrow::<B>(grad) {
        let wide = B::activation_backward(op, &widen::<B>(grad)?, &widen::<B>(saved)?)?;
        return B::cast(&wide, B::dtype(grad));
    }
    match op {
        Activation::Relu => {
            // Written as "not <= 0" so that a NaN passes its gradient on, as the forward passes the NaN on.
            let blocked = B::compare_scalar(CompareOp::Le, saved, Scalar::Float(0.0))?;
            B::select(&blocked, &zero_like::<B>(grad)?, grad)
        }
        Activation::Tanh => B::mul(grad, &B::scalar_sub(1.0, &B::mul(saved, saved)?)?),
        Activation::Sigmoid => B::mul(grad, &B::mul(saved, &B::scalar_sub(1.0, saved)?)?),
        Activation::Gelu => {
            let density = B::exp(&B::mul_scalar(&B::mul(saved, saved)?, -0.5)?)?;
            let density = B::mul_scalar(&density, 0.5 * FRAC_2_SQRT_PI * FRAC_1_SQRT_2)?;
            let slope = B::add(&normal_cdf::<B>(saved)?, &B::mul(saved, &density)?)?;
            B::mul(grad, &slope)
        }
        Activation::GeluTanh => {
            let tanh = B::unary(UnaryOp::Tanh, &gelu_inner::<B>(saved)?)?;
            let square = B::mul(saved, saved)?;
            let inner_slope = B::mul_scalar(
                &B::add_scalar(&B::mul_scalar(&square, 3.0 * GELU_TANH_CUBIC)?, 1.0)?,
                GELU_TANH_SCALE,
            )?;
            let sech_square = B::scalar_sub(1.0, &B::mul(&tanh, &tanh)?)?;
            let curved = B::mul(saved, &B::mul(&sech_square, &inner_slope)?)?;
            let slope = B::mul_scalar(&B::add(&B::add_scalar(&tanh, 1.0)?, &curved)?, 0.5)?;
            B::mul(grad, &slope)
        }
        Activation::Silu => {
            let sigmoid = B::unary(UnaryOp::Sigmoid, saved)?;
            let rest = B::add_scalar(&B::mul(saved, &B::scalar_sub(1.0, &sigmoid)?)?, 1.0)?;
            B::mul(grad, &B::mul(&sigmoid, &rest)?)
        }
        Activation::HardSwish { scale, .. } => {
            let inner = B::mul(grad, &B::add_scalar(&B::mul_scalar(saved, scale / 3.0)?, scale / 2.0)?)?;
            let above = B::compare_scalar(CompareOp::Ge, saved, Scalar::Float(3.0))?;
            let slope = B::select(&above, &B::mul_scalar(grad, scale)?, &inner)?;
            let below = B::compare_scalar(CompareOp::Le, saved, Scalar::Float(-3.0))?;
            B::select(&below, &zero_like::<B>(grad)?, &slope)
        }
        Activation::Softplus { beta, threshold } => {
            let scaled = B::mul_scalar(saved, beta)?;
            let soft = B::mul(grad, &B::unary(UnaryOp::Sigmoid, &scaled)?)?;
            let is_linear = B::compare_scalar(CompareOp::Gt, &scaled, threshold.into())?;
            B::select(&is_linear, grad, &soft)
        }
        Activation::Elu { alpha } => {
            let capped = B::binary_scalar(BinaryOp::Minimum, saved, Scalar::Float(0.0), false)?;
            let negative = B::mul(grad, &B::mul_scalar(&B::exp(&capped)?, alpha)?)?;
            B::select(&positive::<B>(saved)?, grad, &negative)
        }
        Activation::LeakyRelu { slope } => B::select(&positive::<B>(saved)?, grad, &B::mul_scalar(grad, slope)?),
    }
}

fn positive<B: Backend>(x: &B::Tensor) -> Result<B::Tensor> {
    B::compare_scalar(CompareOp::Gt, x, Scalar::Float(0.0))
}

/// Zero of rank 0, in a tensor's dtype and on its device.
fn zero_like<B: Backend>(x: &B::Tensor) -> Result<B::Tensor> {
    B::zeros(crate::Shape::SCALAR, B::dtype(x), &B::device(x))
}

/// Φ(x) = (1 + erf(x / √2)) / 2.
fn normal_cdf<B: Backend>(x: &B::Tensor) -> Result<B::Tensor> {
    let erf = B::unary(UnaryOp::Erf, &B::mul_scalar(x, 1.0 / SQRT_2)?)?;
    B::mul_scalar(&B::add_scalar(&erf, 1.0)?, 0.5)
}

fn gelu_inner<B: Backend>(x: &B::Tensor) -> Result<B::Tensor> {
    let cubic = B::mul_scalar(&B::mul(x, &B::mul(x, x)?)?, GELU_TANH_CUBIC)?;
    B::mul_scalar(&B::add(x, &cubic)?, GELU_TANH_SCALE)
}
