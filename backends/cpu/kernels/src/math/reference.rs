//! The same functions in f64, by the standard library and `libm`. The `scalar` kernels and tensors of f64 use them, and
//! the vector forms are tested against them.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, PI};

/// `1 / (1 + e^-x)`.
pub fn sigmoid(x: f64) -> f64 {
    let e = (-x.abs()).exp();
    (if x < 0.0 { e } else { 1.0 }) / (1.0 + e)
}

/// Gauss's error function.
pub fn erf(x: f64) -> f64 {
    libm::erf(x)
}

/// The normal distribution function.
fn normal_cdf(x: f64) -> f64 {
    0.5 * libm::erfc(-x * FRAC_1_SQRT_2)
}

/// The normal density.
fn normal_pdf(x: f64) -> f64 {
    0.5 * FRAC_2_SQRT_PI * FRAC_1_SQRT_2 * (-0.5 * x * x).exp()
}

/// `x` times a distribution function that is 0 at minus infinity.
fn gate(x: f64, cdf: f64) -> f64 {
    if cdf == 0.0 { -0.0 } else { x * cdf }
}

/// `x Φ(x)`.
pub fn gelu(x: f64) -> f64 {
    gate(x, normal_cdf(x))
}

/// Derivative of [`gelu`].
pub fn gelu_slope(x: f64) -> f64 {
    // Far out the density is 0, and so is its product with x, even if x is infinite.
    let density = normal_pdf(x);
    normal_cdf(x) + if density == 0.0 { 0.0 } else { x * density }
}

/// `2 √(2/π) (x + 0.044715 x³)` and its derivative.
fn gelu_tanh_argument(x: f64) -> (f64, f64) {
    let c = 2.0 * (2.0 / PI).sqrt();
    (c * (x + 0.044_715 * x * x * x), c * (1.0 + 3.0 * 0.044_715 * x * x))
}

/// GELU by its tanh form.
pub fn gelu_tanh(x: f64) -> f64 {
    gate(x, sigmoid(gelu_tanh_argument(x).0))
}

/// `x min(max(x + 3, 0), 6) / 6`.
pub fn hardswish(x: f64) -> f64 {
    x * ((x + 3.0).clamp(0.0, 6.0) / 6.0)
}

/// Derivative of [`hardswish`]: 0 at −3 and 1 at 3.
pub fn hardswish_slope(x: f64) -> f64 {
    match x {
        _ if x <= -3.0 => 0.0,
        _ if x >= 3.0 => 1.0,
        _ => x / 3.0 + 0.5,
    }
}

/// Derivative of [`gelu_tanh`].
pub fn gelu_tanh_slope(x: f64) -> f64 {
    let (u, slope) = gelu_tanh_argument(x);
    let sigma = sigmoid(u);
    let bell = sigma * sigmoid(-u);
    sigma + if bell == 0.0 { 0.0 } else { x * bell * slope }
}

/// `x sigmoid(x)`.
pub fn silu(x: f64) -> f64 {
    gate(x, sigmoid(x))
}

/// Derivative of [`silu`].
pub fn silu_slope(x: f64) -> f64 {
    let bell = sigmoid(x) * sigmoid(-x);
    sigmoid(x) + if bell == 0.0 { 0.0 } else { x * bell }
}

/// `ln(1 + e^(βx)) / β`, or `x` if `βx` is above the threshold.
pub fn softplus(x: f64, beta: f64, threshold: f64) -> f64 {
    let z = x * beta;
    if z > threshold {
        return x;
    }
    // `f64::max` would drop a NaN.
    let positive = if z < 0.0 { 0.0 } else { z };
    (positive + (-z.abs()).exp().ln_1p()) / beta
}

/// `x` for positive `x`, else `α (e^x - 1)`.
pub fn elu(x: f64, alpha: f64) -> f64 {
    if x > 0.0 { x } else { alpha * x.exp_m1() }
}
