//! Functions of one element.

use candle_core::Tensor;
use polygrad_core::{DType, Element, Result, Scalar, Shape, UnaryOp, dispatch_dtype};

use crate::support::{refused_dtype, unknown};
use crate::tensor::only_cpu;
use crate::values::{Item, map};
use crate::{Candle, CandleTensor};

pub(crate) fn unary(op: UnaryOp, x: &CandleTensor) -> Result<CandleTensor> {
    let (name, dtype) = (op.name(), x.dtype());
    if !op.accepts(dtype) {
        return Err(refused_dtype(name, dtype));
    }
    if dtype.is_float()
        && let Some(f) = engines(op)
    {
        return CandleTensor::made(name, x.shape().numel(), dtype, || f(x.raw()));
    }
    if !x.device().is_cpu() {
        return elsewhere(op, x);
    }
    match (op.predicate(), op.on_integers(), op.on_reals()) {
        (Some(f), ..) => dispatch_dtype!(dtype, T => map(name, x, |x: T| f(x.to_f64()))),
        _ if op == UnaryOp::Relu => dispatch_dtype!(dtype, T => relu::<T>(x)),
        (_, Some(f), _) if !dtype.is_float() => {
            dispatch_dtype!(dtype, T => map(name, x, |x: T| T::from_i64(f(x.to_i64()))))
        }
        // Computed in f64 and rounded once.
        (.., Some(f)) => {
            dispatch_dtype!(dtype, T => map(name, x, |x: T| <T as Element>::from_f64(f(x.to_f64()))))
        }
        _ => Err(unknown(name)),
    }
}

/// candle's own kernels, if they compute the same: its relu drops NaN, its round takes ties away from zero, its sign
/// keeps NaN, and it has none for integers.
fn engines(op: UnaryOp) -> Option<fn(&Tensor) -> candle_core::Result<Tensor>> {
    Some(match op {
        UnaryOp::Neg => Tensor::neg,
        UnaryOp::Abs => Tensor::abs,
        UnaryOp::Exp => Tensor::exp,
        UnaryOp::Log => Tensor::log,
        UnaryOp::Sqrt => Tensor::sqrt,
        UnaryOp::Reciprocal => Tensor::recip,
        UnaryOp::Floor => Tensor::floor,
        UnaryOp::Ceil => Tensor::ceil,
        UnaryOp::Sin => Tensor::sin,
        UnaryOp::Cos => Tensor::cos,
        UnaryOp::Tanh => Tensor::tanh,
        UnaryOp::Erf => Tensor::erf,
        _ => return None,
    })
}

/// On GPUs, a function composed of candle's kernels.
fn elsewhere(op: UnaryOp, x: &CandleTensor) -> Result<CandleTensor> {
    let (name, n) = (op.name(), x.shape().numel());
    let raw = x.raw();
    match op {
        UnaryOp::Relu => {
            let zero = CandleTensor::full(Shape::SCALAR, Scalar::Int(0), x.dtype(), &x.device())?;
            let negative = crate::binary::compare(polygrad_core::CompareOp::Lt, x, &zero)?;
            crate::binary::select(&negative, &zero, x)
        }
        UnaryOp::LogicalNot => CandleTensor::made(name, n, DType::Bool, || raw.eq(0u8)),
        UnaryOp::IsNan if x.dtype().is_float() => CandleTensor::made(name, n, DType::Bool, || raw.ne(raw)),
        UnaryOp::Rsqrt => CandleTensor::made(name, n, x.dtype(), || raw.sqrt()?.recip()),
        UnaryOp::Sigmoid => {
            let decay = <Candle as polygrad_core::Backend>::exp(&unary(UnaryOp::Neg, x)?)?;
            CandleTensor::made(name, n, x.dtype(), || (decay.raw() + 1.0)?.recip())
        }
        _ => Err(only_cpu(name, &x.device())),
    }
}

/// Whether a function has a kernel on GPUs.
pub(crate) fn is_everywhere(op: UnaryOp, dtype: DType) -> bool {
    let made = matches!(
        op,
        UnaryOp::Relu | UnaryOp::LogicalNot | UnaryOp::IsNan | UnaryOp::Rsqrt | UnaryOp::Sigmoid
    );
    op.accepts(dtype)
        && (made || dtype.is_float() && engines(op).is_some())
        && (dtype.is_float() || op != UnaryOp::IsNan)
}

fn relu<T: Item>(x: &CandleTensor) -> Result<CandleTensor> {
    let zero = T::from_i64(0);
    // Written so that a NaN stays.
    map("relu", x, |x: T| if x < zero { zero } else { x })
}
