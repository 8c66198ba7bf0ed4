//! Activation functions and dropout.

use polygrad_core::{Activation, Backend, DType, Distribution, Error, Op, Result};

use super::context;
use crate::Tensor;
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
    /// `ln(1 + e^(βx)) / β`, and `x` where `βx > threshold`. PyTorch's defaults are 1 and 20.
    softplus(beta: f64, threshold: f64) = Activation::Softplus { beta, threshold };
    /// `x` for `x > 0`, else `alpha (e^x - 1)`. PyTorch's default is 1.
    elu(alpha: f64) = Activation::Elu { alpha };
    /// `x` for `x > 0`, else `slope x`. PyTorch's default is 0.01.
    leaky_relu(slope: f64) = Activation::LeakyRelu { slope };
}

impl<B: Backend> Tensor<B> {
    /// Applies an activation function; integers become f32, but for relu.
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

    /// In training: zeroes each element with probability `p` and scales the others by `1 / (1 - p)`. Draws from the thread's generator.
    ///
    /// # Errors
    /// When `p` is outside `[0, 1]`, or the dtype is no float.
    pub fn dropout(&self, p: f64) -> Result<Self> {
        if !(0.0..=1.0).contains(&p) {
            return Err(context(
                Error::invalid(format!("{p} is no probability")),
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
    /// When the axis is out of range, or the dtype is no float.
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
    /// When the axis is out of range, or the dtype is no float.
    pub fn log_softmax(&self, axis: isize) -> Result<Self> {
        if let Some(vector) = self.vector_of_scalar()? {
            return vector.log_softmax(axis)?.reshape(());
        }
        let fail = |e| context(e, "log_softmax", &[self]);
        let axis = self.float_axis(axis).map_err(fail)?;
        let value = B::log_softmax(&self.value, axis).map_err(fail)?;
        Ok(record(value, &[self], || Op::LogSoftmax { axis }))
    }

    /// An axis of a tensor of floats.
    fn float_axis(&self, axis: isize) -> Result<usize> {
        if !self.dtype().is_float() {
            return Err(Error::dtype(format!("{} is no float", self.dtype())).with_hint("convert it with to_dtype"));
        }
        self.shape().axis(axis)
    }
}
