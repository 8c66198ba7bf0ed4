//! Activation functions: Burn's if it has them, else one pass of its kernels that map a function over a tensor.

use burn_backend::ops::ActivationOps;
use burn_flex::ops::binary::binary_op;
use burn_flex::ops::unary::unary_op;
use burn_flex::{Flex, FlexTensor};
use polygrad_core::{Activation, DType, Result};

use crate::flex::compare::cast;
use crate::flex::support::unknown;
use crate::flex::tensor::{BurnTensor, ensure_room};

/// Turns a generic function into the two that Burn's kernels take, one for f32 and one for f64.
macro_rules! both {
    ($f:ident $(, $arg:expr)*) => {
        (move |x: f32| $f::<f32>(x $(, $arg as f32)*), move |x: f64| $f::<f64>(x $(, $arg)*))
    };
}

/// [`both`] for functions of two numbers.
macro_rules! both2 {
    ($f:ident $(, $arg:expr)*) => {
        (move |a: f32, b: f32| $f::<f32>(a, b $(, $arg as f32)*), move |a: f64, b: f64| $f::<f64>(a, b $(, $arg)*))
    };
}

/// The operations on f32 and f64 that the functions below need.
trait Real:
    Copy
    + PartialOrd
    + std::ops::Add<Output = Self>
    + std::ops::Sub<Output = Self>
    + std::ops::Mul<Output = Self>
    + std::ops::Div<Output = Self>
    + std::ops::Neg<Output = Self>
{
    fn constant(x: f64) -> Self;
    fn exp(self) -> Self;
    fn exp_m1(self) -> Self;
    fn ln_1p(self) -> Self;
    fn tanh(self) -> Self;
}

macro_rules! real {
    ($($type:ident)*) => {$(
        impl Real for $type {
            #[inline]
            fn constant(x: f64) -> Self {
                x as $type
            }
            #[inline]
            fn exp(self) -> Self {
                self.exp()
            }
            #[inline]
            fn exp_m1(self) -> Self {
                self.exp_m1()
            }
            #[inline]
            fn ln_1p(self) -> Self {
                self.ln_1p()
            }
            #[inline]
            fn tanh(self) -> Self {
                self.tanh()
            }
        }
    )*};
}
real!(f32 f64);

pub(crate) fn relu(x: FlexTensor) -> FlexTensor {
    Flex::relu(x)
}

pub(crate) fn sigmoid(x: FlexTensor) -> FlexTensor {
    Flex::sigmoid(x)
}

#[inline]
fn logistic<T: Real>(x: T) -> T {
    let one = T::constant(1.0);
    // Uses e^x or e^-x, whichever does not overflow.
    if x < T::constant(0.0) {
        let e = x.exp();
        e / (one + e)
    } else {
        one / (one + (-x).exp())
    }
}

#[inline]
fn silu<T: Real>(x: T) -> T {
    x * logistic(x)
}

#[inline]
fn silu_slope<T: Real>(x: T, grad: T) -> T {
    let s = logistic(x);
    grad * (s + x * s * (T::constant(1.0) - s))
}

/// √(2/π).
const ROOT: f64 = 0.797_884_560_802_865_4;
const CUBIC: f64 = 0.044_715;

#[inline]
fn gelu_tanh<T: Real>(x: T) -> T {
    let inner = T::constant(ROOT) * (x + T::constant(CUBIC) * x * x * x);
    T::constant(0.5) * x * (T::constant(1.0) + inner.tanh())
}

#[inline]
fn gelu_tanh_slope<T: Real>(x: T, grad: T) -> T {
    let one = T::constant(1.0);
    let t = (T::constant(ROOT) * (x + T::constant(CUBIC) * x * x * x)).tanh();
    let inner_slope = T::constant(ROOT) * (one + T::constant(3.0 * CUBIC) * x * x);
    grad * T::constant(0.5) * (one + t + x * (one - t * t) * inner_slope)
}

#[inline]
fn softplus<T: Real>(x: T, beta: T, threshold: T) -> T {
    let z = x * beta;
    if z > threshold {
        x
    } else if z > T::constant(0.0) {
        // Avoids the exponential of a large number, since the threshold may be infinite.
        (z + (-z).exp().ln_1p()) / beta
    } else {
        z.exp().ln_1p() / beta
    }
}

#[inline]
fn softplus_slope<T: Real>(x: T, grad: T, beta: T, threshold: T) -> T {
    if x * beta > threshold {
        grad
    } else {
        grad * logistic(x * beta)
    }
}

#[inline]
fn elu<T: Real>(x: T, alpha: T) -> T {
    if x > T::constant(0.0) { x } else { alpha * x.exp_m1() }
}

#[inline]
fn elu_slope<T: Real>(x: T, grad: T, alpha: T) -> T {
    if x > T::constant(0.0) {
        grad
    } else {
        grad * alpha * x.exp()
    }
}

#[inline]
fn leaky_slope<T: Real>(x: T, grad: T, slope: T) -> T {
    if x > T::constant(0.0) { grad } else { grad * slope }
}

#[inline]
fn hardswish<T: Real>(x: T, scale: T, shift: T) -> T {
    let (three, six) = (T::constant(3.0), T::constant(6.0));
    let open = if x < -three {
        T::constant(0.0)
    } else if x > three {
        six
    } else {
        x + three
    };
    x * (open * (scale / six)) + shift
}

#[inline]
fn hardswish_slope<T: Real>(x: T, grad: T, scale: T) -> T {
    let three = T::constant(3.0);
    if x <= -three {
        T::constant(0.0)
    } else if x >= three {
        grad * scale
    } else {
        grad * scale * (x / three + T::constant(0.5))
    }
}

#[inline]
fn tanh_slope<T: Real>(y: T, grad: T) -> T {
    grad * (T::constant(1.0) - y * y)
}

pub(crate) fn activation(op: Activation, x: &BurnTensor) -> Result<BurnTensor> {
    ensure_room(&x.shape(), x.dtype())?;
    let x = x.operand()?;
    Ok(BurnTensor::new(match op {
        Activation::Relu => Flex::relu(x),
        Activation::Tanh => unary_op(x, f32::tanh, f64::tanh),
        Activation::Sigmoid => Flex::sigmoid(x),
        Activation::Gelu => Flex::gelu(x),
        Activation::GeluTanh => map(x, both!(gelu_tanh)),
        Activation::Silu => map(x, both!(silu)),
        Activation::Softplus { beta, threshold } => map(x, both!(softplus, beta, threshold)),
        Activation::Elu { alpha } => map(x, both!(elu, alpha)),
        Activation::LeakyRelu { slope } => Flex::leaky_relu(x, slope.into()),
        Activation::HardSwish { scale, shift } => map(x, both!(hardswish, scale, shift)),
        _ => return Err(unknown(op.name())),
    }))
}

pub(crate) fn activation_backward(op: Activation, grad: &BurnTensor, saved: &BurnTensor) -> Result<BurnTensor> {
    let dtype = grad.dtype();
    ensure_room(&grad.shape(), dtype)?;
    if matches!(dtype, DType::F16 | DType::BF16) {
        let wide = activation_backward(op, &cast(grad, DType::F32)?, &cast(saved, DType::F32)?)?;
        return cast(&wide, dtype);
    }
    let (saved, grad) = (saved.operand()?, grad.operand()?);
    Ok(BurnTensor::new(match op {
        Activation::Relu => Flex::relu_backward(saved, grad),
        Activation::Tanh => zip(saved, grad, both2!(tanh_slope)),
        Activation::Sigmoid => Flex::sigmoid_backward(saved, grad),
        Activation::Gelu => Flex::gelu_backward(saved, grad),
        Activation::GeluTanh => zip(saved, grad, both2!(gelu_tanh_slope)),
        Activation::Silu => zip(saved, grad, both2!(silu_slope)),
        Activation::Softplus { beta, threshold } => zip(saved, grad, both2!(softplus_slope, beta, threshold)),
        Activation::Elu { alpha } => zip(saved, grad, both2!(elu_slope, alpha)),
        Activation::LeakyRelu { slope } => zip(saved, grad, both2!(leaky_slope, slope)),
        Activation::HardSwish { scale, .. } => zip(saved, grad, both2!(hardswish_slope, scale)),
        _ => return Err(unknown(op.name())),
    }))
}

fn map(x: FlexTensor, (f, g): (impl Fn(f32) -> f32 + Copy, impl Fn(f64) -> f64 + Copy)) -> FlexTensor {
    unary_op(x, f, g)
}

fn zip(
    a: FlexTensor,
    b: FlexTensor,
    (f, g): (impl Fn(f32, f32) -> f32 + Copy, impl Fn(f64, f64) -> f64 + Copy),
) -> FlexTensor {
    binary_op(a, b, f, g, None)
}
