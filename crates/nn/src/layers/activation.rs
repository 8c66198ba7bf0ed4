//! Activation functions as modules; each is the [`Tensor`] method of the same name.

use polygrad_tensor::{Backend, Result, Tensor};

use super::stateless::stateless;
use crate::watch;

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident => $method:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default)]
        pub struct $name;

        impl $name {
            /// Applies the function to each element.
            ///
            /// # Errors
            /// When the input is not a float.
            pub fn forward<B: Backend>(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
                watch::layer(self, x, || x.$method())
            }
        }
    )*};
}

functions! {
    /// `max(x, 0)`.
    ReLU => relu;
    /// `x · sigmoid(x)`, also called swish.
    SiLU => silu;
    /// `1 / (1 + e⁻ˣ)`.
    Sigmoid => sigmoid;
    /// The hyperbolic tangent.
    Tanh => tanh;
    /// `x · tanh(ln(1 + eˣ))`.
    Mish => mish;
    /// `min(max(x, 0), 6)`.
    ReLU6 => relu6;
    /// `min(max(x + 3, 0), 6) / 6`.
    Hardsigmoid => hardsigmoid;
    /// `x · min(max(x + 3, 0), 6) / 6`.
    Hardswish => hardswish;
    /// The [`ELU`] of alpha 1.6732…, scaled by 1.0507…
    SELU => selu;
    /// `ln(1 / (1 + e⁻ˣ))`.
    LogSigmoid => logsigmoid;
    /// `x / (1 + |x|)`.
    Softsign => softsign;
}

/// `x` where it is positive, `slope · x` elsewhere. Default slope: 0.01.
#[derive(Clone, Copy, Debug)]
pub struct LeakyReLU(pub f64);

/// `x` where it is positive, `alpha · (eˣ − 1)` elsewhere. Default alpha: 1.
///
/// Source: Clevert, Unterthiner and Hochreiter, "Fast and accurate deep network learning by exponential linear units"
/// (2015).
#[derive(Clone, Copy, Debug)]
pub struct ELU(pub f64);

/// `x` where it is positive, `alpha · (e^(x / alpha) − 1)` elsewhere. Default alpha: 1.
///
/// Source: Barron, "Continuously differentiable exponential linear units" (2017).
#[derive(Clone, Copy, Debug)]
pub struct CELU(pub f64);

/// `x` within limits. Default: −1 and 1.
#[derive(Clone, Copy, Debug)]
pub struct Hardtanh {
    /// The least value.
    pub min_val: f64,
    /// The largest value, not below the least.
    pub max_val: f64,
}

/// `a · sigmoid(b)` of the halves `a` and `b` along an axis; negative ones count from the back. Default axis: −1.
///
/// Source: Dauphin et al., "Language modeling with gated convolutional networks" (2016).
#[derive(Clone, Copy, Debug)]
pub struct GLU(pub isize);

/// `x · Φ(x)` with the normal distribution function Φ, exactly or by its tanh approximation. Default: exactly.
///
/// Source: Hendrycks and Gimpel, "Gaussian error linear units" (2016).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GELU {
    /// With the exact Φ, by the error function.
    #[default]
    Exact,
    /// `x / 2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))`.
    Tanh,
}

/// `ln(1 + e^(beta · x)) / beta`, and `x` itself where `beta · x` is above a threshold. Default: beta 1, threshold 20.
#[derive(Clone, Copy, Debug)]
pub struct Softplus {
    /// Steepness, not 0.
    pub beta: f64,
    /// Above this the result is `x` itself.
    pub threshold: f64,
}

/// `eˣ / Σ eˣ` along an axis; negative ones count from the back.
#[derive(Clone, Copy, Debug)]
pub struct Softmax(pub isize);

/// `x − ln Σ eˣ` along an axis; negative ones count from the back.
#[derive(Clone, Copy, Debug)]
pub struct LogSoftmax(pub isize);

impl Default for LeakyReLU {
    fn default() -> Self {
        Self(0.01)
    }
}

impl Default for ELU {
    fn default() -> Self {
        Self(1.0)
    }
}

impl Default for CELU {
    fn default() -> Self {
        Self(1.0)
    }
}

impl Default for Hardtanh {
    fn default() -> Self {
        Self {
            min_val: -1.0,
            max_val: 1.0,
        }
    }
}

impl Default for GLU {
    fn default() -> Self {
        Self(-1)
    }
}

impl Default for Softplus {
    fn default() -> Self {
        Self {
            beta: 1.0,
            threshold: 20.0,
        }
    }
}

macro_rules! forward {
    ($($name:ident |$this:ident, $x:ident| $body:expr;)*) => {$(
        impl $name {
            /// Applies the function to each element, or along the axis.
            ///
            /// # Errors
            /// When an option or the axis is out of range.
            pub fn forward<B: Backend>(&self, $x: &Tensor<B>) -> Result<Tensor<B>> {
                let $this = self;
                watch::layer(self, $x, || $body)
            }
        }
    )*};
}

forward! {
    LeakyReLU |this, x| x.leaky_relu(this.0);
    ELU |this, x| x.elu(this.0);
    CELU |this, x| x.celu(this.0);
    Hardtanh |this, x| x.hardtanh(this.min_val, this.max_val);
    GLU |this, x| x.glu(this.0);
    GELU |this, x| match this {
        Self::Exact => x.gelu(),
        Self::Tanh => x.gelu_tanh(),
    };
    Softplus |this, x| x.softplus(this.beta, this.threshold);
    Softmax |this, x| x.softmax(this.0);
    LogSoftmax |this, x| x.log_softmax(this.0);
}

stateless!(
    ReLU,
    SiLU,
    Sigmoid,
    Tanh,
    Mish,
    ReLU6,
    Hardsigmoid,
    Hardswish,
    SELU,
    LogSigmoid,
    Softsign,
    LeakyReLU,
    ELU,
    CELU,
    Hardtanh,
    GLU,
    GELU,
    Softplus,
    Softmax,
    LogSoftmax,
);
