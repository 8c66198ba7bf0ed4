//! Activation functions in one pass. candle's own take several passes, drop NaN in relu, and round f16 and bf16 at each
//! step.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

use polygrad_core::{Activation, Result, UnaryOp, decompose};

use crate::binary::zip;
use crate::unary::unary;
use crate::values::{Real, Wide, floats, map};
use crate::{Candle, CandleTensor};

/// √(2/π), of the tanh form of GELU.
const GELU_TANH_SCALE: f64 = FRAC_2_SQRT_PI * FRAC_1_SQRT_2;
/// Weight of the cubic term in the tanh form of GELU.
const GELU_TANH_CUBIC: f64 = 0.044_715;

/// Whether the loops here support an activation.
pub(crate) fn is_own(op: Activation) -> bool {
    use Activation::{Gelu, GeluTanh, LeakyRelu, Relu, Sigmoid, Silu, Tanh};
    matches!(op, Relu | Tanh | Sigmoid | Gelu | GeluTanh | Silu | LeakyRelu { .. })
}

pub(crate) fn activation(op: Activation, x: &CandleTensor) -> Result<CandleTensor> {
    match op {
        Activation::Relu => return unary(UnaryOp::Relu, x),
        Activation::Tanh => return unary(UnaryOp::Tanh, x),
        Activation::Sigmoid => return unary(UnaryOp::Sigmoid, x),
        _ if is_own(op) && x.device().is_cpu() => {}
        _ => return decompose::activation::<Candle>(op, x),
    }
    floats!(op.name(), x.dtype(), T => of::<T>(op, x))
}

fn of<T: Real>(op: Activation, x: &CandleTensor) -> Result<CandleTensor> {
    let name = op.name();
    let (zero, half, one) = (<T::Wide>::of(0.0), <T::Wide>::of(0.5), <T::Wide>::of(1.0));
    match op {
        Activation::Gelu => {
            let scale = <T::Wide>::of(FRAC_1_SQRT_2);
            map(name, x, |x: T| {
                let x = x.widen();
                T::narrow(x * (half * ((x * scale).erf() + one)))
            })
        }
        Activation::GeluTanh => map(name, x, |x: T| {
            let x = x.widen();
            T::narrow(half * x * (inner(x).tanh() + one))
        }),
        Activation::Silu => map(name, x, |x: T| {
            let x = x.widen();
            T::narrow(x * sigmoid(x))
        }),
        Activation::LeakyRelu { slope } => {
            let slope = <T::Wide>::of(slope);
            map(name, x, |x: T| {
                let wide = x.widen();
                if wide > zero { x } else { T::narrow(wide * slope) }
            })
        }
        _ => decompose::activation::<Candle>(op, x),
    }
}

pub(crate) fn activation_backward(op: Activation, grad: &CandleTensor, saved: &CandleTensor) -> Result<CandleTensor> {
    if !is_own(op) || !grad.device().is_cpu() {
        return decompose::activation_backward::<Candle>(op, grad, saved);
    }
    floats!("activation_backward", grad.dtype(), T => backward_of::<T>(op, grad, saved))
}

fn backward_of<T: Real>(op: Activation, grad: &CandleTensor, saved: &CandleTensor) -> Result<CandleTensor> {
    let (zero, half, one) = (<T::Wide>::of(0.0), <T::Wide>::of(0.5), <T::Wide>::of(1.0));
    let (scale, density) = (
        <T::Wide>::of(FRAC_1_SQRT_2),
        <T::Wide>::of(0.5 * FRAC_2_SQRT_PI * FRAC_1_SQRT_2),
    );
    match op {
        // Written as "not <= 0", so that the gradient of a NaN is passed on, as the forward pass keeps the NaN.
        Activation::Relu => slopes::<T>(grad, saved, |grad, y| if y <= zero { zero } else { grad }),
        Activation::Tanh => slopes::<T>(grad, saved, |grad, y| grad * (one - y * y)),
        Activation::Sigmoid => slopes::<T>(grad, saved, |grad, y| grad * (y * (one - y))),
        Activation::Gelu => slopes::<T>(grad, saved, |grad, x| {
            let cdf = half * ((x * scale).erf() + one);
            grad * (cdf + x * (density * (-half * x * x).exp()))
        }),
        Activation::GeluTanh => {
            let (scale, cubic) = (<T::Wide>::of(GELU_TANH_SCALE), <T::Wide>::of(3.0 * GELU_TANH_CUBIC));
            slopes::<T>(grad, saved, |grad, x| {
                let tanh = inner(x).tanh();
                let slope = scale * (one + cubic * x * x);
                grad * (half * (one + tanh + x * ((one - tanh * tanh) * slope)))
            })
        }
        Activation::Silu => slopes::<T>(grad, saved, |grad, x| {
            let gate = sigmoid(x);
            grad * (gate * (one + x * (one - gate)))
        }),
        Activation::LeakyRelu { slope } => {
            let slope = <T::Wide>::of(slope);
            slopes::<T>(grad, saved, |grad, x| if x > zero { grad } else { grad * slope })
        }
        _ => decompose::activation_backward::<Candle>(op, grad, saved),
    }
}

fn slopes<T: Real>(
    grad: &CandleTensor,
    saved: &CandleTensor,
    rule: impl Fn(T::Wide, T::Wide) -> T::Wide,
) -> Result<CandleTensor> {
    zip("activation_backward", grad, saved, |grad: T, saved: T| {
        T::narrow(rule(grad.widen(), saved.widen()))
    })
}

fn inner<W: Wide>(x: W) -> W {
    W::of(GELU_TANH_SCALE) * (x + W::of(GELU_TANH_CUBIC) * (x * x * x))
}

/// Uses e^x or e^-x, whichever is below 1, so that nothing overflows.
fn sigmoid<W: Wide>(x: W) -> W {
    let one = W::of(1.0);
    if x < W::of(0.0) {
        let small = x.exp();
        small / (one + small)
    } else {
        one / (one + (-x).exp())
    }
}
