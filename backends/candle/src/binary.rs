//! Functions of two elements, comparisons, selection and conversions.

use candle_core::Tensor;
use polygrad_core::{BinaryOp, CompareOp, DType, Element, Result, Scalar, Shape, collect, dispatch_dtype};

use crate::CandleTensor;
use crate::engine::engine;
use crate::movement::expand;
use crate::support::{refused_dtype, unknown};
use crate::tensor::{candle_dtype, only_cpu};
use crate::values::{Item, map};

type Call = fn(&Tensor, &Tensor) -> candle_core::Result<Tensor>;

/// Two tensors broadcast to one shape, as views.
fn paired(a: &CandleTensor, b: &CandleTensor) -> Result<(CandleTensor, CandleTensor)> {
    let shape = a.shape().broadcast(&b.shape())?;
    Ok((expand(a, shape)?, expand(b, shape)?))
}

pub(crate) fn binary(op: BinaryOp, a: &CandleTensor, b: &CandleTensor) -> Result<CandleTensor> {
    let (name, dtype) = (op.name(), a.dtype());
    if !op.accepts(dtype) {
        return Err(refused_dtype(name, dtype));
    }
    let (a, b) = paired(a, b)?;
    let n = a.shape().numel();
    if let Some(call) = engines(op, dtype, a.device().is_cpu()) {
        return CandleTensor::made(name, n, dtype, || call(a.raw(), b.raw()));
    }
    if !a.device().is_cpu() {
        return elsewhere(op, &a, &b);
    }
    match (op.on_reals(), op.on_integers()) {
        (Some(f), _) if dtype.is_float() => {
            dispatch_dtype!(dtype, T => zip(name, &a, &b, |a: T, b: T| <T as Element>::from_f64(f(a.to_f64(), b.to_f64()))))
        }
        // Bools are computed as 0 and 1, and any result except 0 is true: `+` is or, `*` is and.
        (_, Some(f)) => {
            dispatch_dtype!(dtype, T => zip(name, &a, &b, |a: T, b: T| T::from_i64(f(a.to_i64(), b.to_i64()))))
        }
        _ => Err(unknown(name)),
    }
}

/// candle's own kernels. On integers its CPU kernels overflow in builds with checks, and divide by zero; its maximum
/// and minimum drop NaN.
fn engines(op: BinaryOp, dtype: DType, cpu: bool) -> Option<Call> {
    let numbers = dtype.is_float() || !cpu && dtype != DType::Bool;
    match op {
        BinaryOp::Add if numbers => Some(Tensor::add),
        BinaryOp::Sub if numbers => Some(Tensor::sub),
        BinaryOp::Mul if numbers => Some(Tensor::mul),
        BinaryOp::Div if dtype.is_float() => Some(Tensor::div),
        _ => None,
    }
}

/// On GPUs, an op composed of candle's kernels.
fn elsewhere(op: BinaryOp, a: &CandleTensor, b: &CandleTensor) -> Result<CandleTensor> {
    let name = op.name();
    let order = match op {
        // Operands are zeros and ones.
        BinaryOp::Mul | BinaryOp::And if a.dtype() == DType::Bool => return choose(name, a, b, |a, b| a.minimum(b)),
        BinaryOp::Add | BinaryOp::Or if a.dtype() == DType::Bool => return choose(name, a, b, |a, b| a.maximum(b)),
        BinaryOp::Maximum => CompareOp::Ge,
        BinaryOp::Minimum => CompareOp::Le,
        _ => return Err(only_cpu(name, &a.device())),
    };
    let first = select(&compare(order, a, b)?, a, b)?;
    if !a.dtype().is_float() {
        return Ok(first);
    }
    // A NaN in `a` compares as false, but must be the result.
    select(&compare(CompareOp::Ne, a, a)?, a, &first)
}

fn choose(name: &'static str, a: &CandleTensor, b: &CandleTensor, call: Call) -> Result<CandleTensor> {
    CandleTensor::made(name, a.shape().numel(), a.dtype(), || call(a.raw(), b.raw()))
}

/// Whether a function has a kernel on GPUs.
pub(crate) fn is_everywhere(op: BinaryOp, dtype: DType) -> bool {
    let chosen = matches!(op, BinaryOp::Maximum | BinaryOp::Minimum);
    let logic = matches!(op, BinaryOp::Add | BinaryOp::Mul | BinaryOp::And | BinaryOp::Or);
    op.accepts(dtype) && (engines(op, dtype, false).is_some() || chosen || logic && dtype == DType::Bool)
}

/// Our own loop over two tensors of one shape.
pub(crate) fn zip<T: Item, R: Item>(
    name: &'static str,
    a: &CandleTensor,
    b: &CandleTensor,
    f: impl Fn(T, T) -> R,
) -> Result<CandleTensor> {
    let (held_a, held_b) = (a.held(name)?, b.held(name)?);
    let (left, right) = (held_a.values::<T>()?, held_b.values::<T>()?);
    let values = collect(left.iter().zip(right.iter()).map(|(&a, &b)| f(a, b)))?;
    CandleTensor::of(a.shape(), values, &a.device())
}

pub(crate) fn compare(op: CompareOp, a: &CandleTensor, b: &CandleTensor) -> Result<CandleTensor> {
    let call: Call = match op {
        CompareOp::Eq => |a, b| a.eq(b),
        CompareOp::Ne => |a, b| a.ne(b),
        CompareOp::Lt => |a, b| a.lt(b),
        CompareOp::Le => |a, b| a.le(b),
        CompareOp::Gt => |a, b| a.gt(b),
        CompareOp::Ge => |a, b| a.ge(b),
        _ => return Err(unknown(op.name())),
    };
    let (a, b) = paired(a, b)?;
    CandleTensor::made(op.name(), a.shape().numel(), DType::Bool, || call(a.raw(), b.raw()))
}

pub(crate) fn select(condition: &CandleTensor, a: &CandleTensor, b: &CandleTensor) -> Result<CandleTensor> {
    let shape = a.shape().broadcast(&b.shape())?.broadcast(&condition.shape())?;
    let (condition, a, b) = (expand(condition, shape)?, expand(a, shape)?, expand(b, shape)?);
    CandleTensor::made("where", shape.numel(), a.dtype(), || {
        condition.raw().where_cond(a.raw(), b.raw())
    })
}

pub(crate) fn cast(x: &CandleTensor, dtype: DType) -> Result<CandleTensor> {
    let from = x.dtype();
    if from == dtype {
        return Ok(x.clone());
    }
    if dtype == DType::Bool {
        // Not a cast by candle, which would keep a u8 of 2.
        let zero = CandleTensor::full(Shape::SCALAR, Scalar::Int(0), from, &x.device())?;
        return compare(CompareOp::Ne, x, &zero);
    }
    if candle_dtype(from) == candle_dtype(dtype) {
        return Ok(x.retyped(dtype));
    }
    if rounds_twice(from, dtype) && x.device().is_cpu() {
        return dispatch_dtype!(from, S => dispatch_dtype!(dtype, D => {
            map("to_dtype", x, |x: S| <D as Element>::from_scalar(x.to_scalar()))
        }));
    }
    CandleTensor::made("to_dtype", x.shape().numel(), dtype, || {
        x.raw().to_dtype(candle_dtype(dtype))
    })
}

/// candle converts large integers to the narrow floats through f32.
fn rounds_twice(from: DType, to: DType) -> bool {
    matches!(from, DType::I32 | DType::I64 | DType::F64) && matches!(to, DType::F16 | DType::BF16)
}

/// Waits for a device.
pub(crate) fn synchronize(device: &crate::CandleDevice) -> Result<()> {
    engine("synchronize", || device.inner().synchronize())
}
