//! Activation functions and dropout.

use polygrad_core::{Activation, Backend, DType, Distribution, Error, Op, Result};

use super::context;
use crate::Tensor;
use crate::autocast::Lower;
use crate::graph::record;

macro_rules! activations {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) = $op:expr;)*) => {
        impl<B: Backend> Tensor<B> {$(
            $(#[$doc])*
            ///
            /// # Errors
            /// When memory runs out.
            pub fn $name(&self $(, $arg: $type)*) -> Result<Self> {
                self.activation($op)
            }
        )*}
    };
}

activations! {
    /// `max(x, 0)`; its gradient at 0 is 0.
    relu() = Activation::Relu;
    /// Hyperbolic tangent.
    tanh() = Activation::Tanh;
    /// `1 / (1 + e^-x)`.
    sigmoid() = Activation::Sigmoid;
    /// `x Φ(x)`, with the exact normal distribution function.
    gelu() = Activation::Gelu;
    /// GELU in its approximation by tanh.
    gelu_tanh() = Activation::GeluTanh;
    /// `x sigmoid(x)`.
    silu() = Activation::Silu;
    /// `x min(max(x + 3, 0), 6) / 6`; its gradient is 0 at −3 and 1 at 3.
    ///
    /// Source: Howard et al., "Searching for MobileNetV3" (2019), as is [`Tensor::hardsigmoid`].
    hardswish() = Activation::HardSwish { scale: 1.0, shift: 0.0 };
    /// `ln(1 + e^(βx)) / β`, and `x` where `βx > threshold`. PyTorch's defaults are 1 and 20.
    softplus(beta: f64, threshold: f64) = Activation::Softplus { beta, threshold };
    /// `x` for `x > 0`, else `alpha (e^x - 1)`. PyTorch's default is 1.
    elu(alpha: f64) = Activation::Elu { alpha };
    /// `x` for `x > 0`, else `slope x`. PyTorch's default is 0.01.
    leaky_relu(slope: f64) = Activation::LeakyRelu { slope };
}

/// Functions composed of others, computed in floats and rounded once.
macro_rules! composed {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) = |$x:ident| $body:expr;)*) => {
        impl<B: Backend> Tensor<B> {$(
            $(#[$doc])*
            ///
            /// # Errors
            /// When memory runs out.
            pub fn $name(&self $(, $arg: $type)*) -> Result<Self> {
                self.of_float(stringify!($name), |$x| $body)
            }
        )*}
    };
}

composed! {
    /// `x tanh(ln(1 + e^x))`.
    ///
    /// Source: Misra, "Mish: a self regularized non-monotonic activation function" (2019).
    mish() = |x| x.mul(&x.softplus(1.0, 20.0)?.tanh()?);
    /// `min(max(x + 3, 0), 6) / 6`; its gradient at −3 and 3 is 0.
    hardsigmoid() = |x| (x + 3.0)?.limited(0.0, 6.0)? / 6.0;
    /// `min(max(x, 0), 6)`; its gradient at 0 and 6 is 0.
    ///
    /// Source: Howard et al., "MobileNets: efficient convolutional neural networks for mobile vision
    /// applications" (2017).
    relu6() = |x| x.limited(0.0, 6.0);
    /// `s x` for `x > 0`, else `s α (e^x - 1)`, with `s` 1.0507… and `α` 1.6732…
    ///
    /// Source: Klambauer et al., "Self-normalizing neural networks" (2017).
    selu() = |x| x.elu(1.673_263_242_354_377_2)? * 1.050_700_987_355_480_5;
    /// `ln(1 / (1 + e^-x))`.
    logsigmoid() = |x| x.neg()?.softplus(1.0, 40.0)?.neg();
    /// `x / (1 + |x|)`.
    softsign() = |x| x.div(&(x.abs()? + 1.0)?);
}

impl<B: Backend> Tensor<B> {
    fn of_float(&self, name: &'static str, f: impl FnOnce(&Self) -> Result<Self>) -> Result<Self> {
        self.cast_cow(self.dtype().to_float())
            .and_then(|x| Self::in_wide([&*x], |[x]| f(x)))
            .map_err(|e| context(e, name, &[self]))
    }

    /// Limits the values. Unlike with [`Tensor::clamp`], no gradient passes at the limits themselves.
    fn limited(&self, min: f64, max: f64) -> Result<Self> {
        let limited = self.detach().clamp(Some(min), Some(max))?;
        if !self.is_tracked() {
            return Ok(limited);
        }
        let inside = self.gt(min)?.logical_and(&self.lt(max)?)?;
        Self::where_(&inside, self, &limited)
    }

    /// `x` within `min..=max`, PyTorch's defaults for which are −1 and 1; its gradient at either is 0.
    /// Integers become f32.
    ///
    /// # Errors
    /// When `min` is above `max`, or one is NaN.
    pub fn hardtanh(&self, min: f64, max: f64) -> Result<Self> {
        self.of_float("hardtanh", |x| match min <= max {
            true => x.limited(min, max),
            false => Err(Error::invalid(format!("min = {min} is not below max = {max}"))),
        })
    }

    /// `x` for `x > 0`, else `alpha (e^(x / alpha) - 1)`. PyTorch's default is 1. Integers become f32.
    ///
    /// Source: Barron, "Continuously differentiable exponential linear units" (2017).
    ///
    /// # Errors
    /// When `alpha` is 0 or NaN.
    pub fn celu(&self, alpha: f64) -> Result<Self> {
        self.of_float("celu", |x| {
            if alpha == 0.0 || alpha.is_nan() {
                return Err(Error::invalid(format!("alpha = {alpha} is no divisor")));
            }
            let below = ((x.clamp(None, Some(0.0))? / alpha)?.expm1()? * alpha)?;
            Self::where_(&x.gt(0.0)?, x, &below)
        })
    }

    /// `x` for `x > 0`, else `weight x`, with one weight for all channels or one for each, `[C]`. A tensor without axis
    /// 1 has one channel. Integers become f32.
    ///
    /// Source: He et al., "Delving deep into rectifiers" (2015).
    ///
    /// # Errors
    /// When there are neither 1 nor C weights, or the devices differ.
    pub fn prelu(&self, weight: &Self) -> Result<Self> {
        if let Some(lower) = Lower::wanted() {
            let (x, weight) = (lower.cast(self)?, lower.cast(weight)?);
            return lower.run(|| x.prelu(&weight));
        }
        let fail = |e| context(e, "prelu", &[self, weight]);
        let dims: Vec<usize> = match (weight.numel(), self.shape().dims()) {
            (1, _) => Vec::new(),
            (n, [_, channels, rest @ ..]) if n == *channels => [n].into_iter().chain(rest.iter().map(|_| 1)).collect(),
            _ => {
                let error = Error::shape("takes one weight, or one for each channel, which are axis 1");
                return Err(fail(error));
            }
        };
        let spread = weight.reshape(dims).map_err(fail)?;
        let x = self.cast_cow(self.dtype().to_float()).map_err(fail)?;
        Self::in_wide([&*x, &spread], |[x, weight]| {
            // Limited so that an infinite x adds nothing to the weight's gradient.
            let below = x.clamp(None, Some(0.0))?.mul(weight)?;
            Self::where_(&x.gt(0.0)?, x, &below)
        })
        .map_err(fail)
    }

    /// `a sigmoid(b)` of the halves `a` and `b` along an axis, PyTorch's default for which is −1. Integers become f32.
    ///
    /// Source: Dauphin et al., "Language modeling with gated convolutional networks" (2016).
    ///
    /// # Errors
    /// When the axis is out of range, or its extent odd.
    pub fn glu(&self, axis: isize) -> Result<Self> {
        self.of_float("glu", |x| {
            let shape = x.shape();
            let extent = shape[shape.axis(axis)?];
            if extent % 2 != 0 {
                return Err(Error::shape(format!(
                    "axis {axis} has no halves: its extent is {extent}"
                )));
            }
            let half = |start| x.narrow(axis, start, extent / 2);
            half(0)?.mul(&half(extent / 2)?.sigmoid()?)
        })
    }

    /// Applies an activation function; integers become f32, except for relu.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn activation(&self, op: Activation) -> Result<Self> {
        if !self.dtype().is_float() {
            if op == Activation::Relu {
                return self.unary(polygrad_core::UnaryOp::Relu);
            }
            return self.to_dtype(DType::F32)?.activation(op);
        }
        let value = B::activation(op, &self.value).map_err(|e| context(e, op.name(), &[self]))?;
        Ok(record(value, &[self], || Op::Activation(op)))
    }

    /// For training: zeroes each element with probability `p` and scales the others by `1 / (1 - p)`. Draws from the
    /// thread's generator.
    ///
    /// # Errors
    /// When `p` is outside `[0, 1]`, or the dtype is not a float.
    pub fn dropout(&self, p: f64) -> Result<Self> {
        if !(0.0..=1.0).contains(&p) {
            return Err(context(
                Error::invalid(format!("{p:?} is no probability")),
                "dropout",
                &[self],
            ));
        }
        if !self.dtype().is_float() {
            let error = Error::dtype(format!("{} is no float", self.dtype())).with_hint("convert it with to_dtype");
            return Err(context(error, "dropout", &[self]));
        }
        if p == 0.0 {
            return Ok(self.clone());
        }
        let keep = 1.0 - p;
        let dtype = self.dtype();
        let mask = Self::random(
            self.shape(),
            Distribution::Bernoulli { p: keep },
            (&self.device(), dtype),
        )?;
        let scale = if keep > 0.0 { 1.0 / keep } else { 0.0 };
        Self::in_wide([self, &mask], |[x, mask]| x.mul(&(mask * scale)?))
    }

    /// `e^x / Σ e^x` along an axis.
    ///
    /// # Errors
    /// When the axis is out of range, or the dtype is not a float.
    pub fn softmax(&self, axis: isize) -> Result<Self> {
        if let Some(vector) = self.vector_of_scalar()? {
            return vector.softmax(axis)?.reshape(());
        }
        let fail = |e| context(e, "softmax", &[self]);
        let axis = self.float_axis(axis).map_err(fail)?;
        let value = B::softmax(&self.value, axis).map_err(fail)?;
        Ok(record(value, &[self], || Op::Softmax { axis }))
    }

    /// `x - ln Σ e^x` along an axis.
    ///
    /// # Errors
    /// When the axis is out of range, or the dtype is not a float.
    pub fn log_softmax(&self, axis: isize) -> Result<Self> {
        if let Some(vector) = self.vector_of_scalar()? {
            return vector.log_softmax(axis)?.reshape(());
        }
        let fail = |e| context(e, "log_softmax", &[self]);
        let axis = self.float_axis(axis).map_err(fail)?;
        let value = B::log_softmax(&self.value, axis).map_err(fail)?;
        Ok(record(value, &[self], || Op::LogSoftmax { axis }))
    }

    /// The index of an axis; fails unless the tensor has a float dtype.
    fn float_axis(&self, axis: isize) -> Result<usize> {
        if !self.dtype().is_float() {
            return Err(Error::dtype(format!("{} is no float", self.dtype())).with_hint("convert it with to_dtype"));
        }
        self.shape().axis(axis)
    }
}
