//! Element-wise ops.

use burn_backend::Scalar as BurnScalar;
use burn_backend::ops::{ActivationOps, FloatTensorOps, IntTensorOps};
use burn_wgpu::{CubeBackend, CubeTensor};
use polygrad_core::{BinaryOp, CompareOp, DType, Result, Scalar, Shape, UnaryOp};

use crate::wgpu::compare::{compare_scalar, is_finite, is_inf, is_nan};
use crate::wgpu::elementary::Function;
use crate::wgpu::kernel::{self, Pair};
use crate::wgpu::movement::expand;
use crate::wgpu::support::{refused, unknown};
use crate::wgpu::tensor::{BurnWgpuTensor as T, burn_scalar, ensure_room};

pub(crate) fn unary(op: UnaryOp, x: &T) -> Result<T> {
    let (shape, dtype) = (x.shape(), x.dtype());
    if !op.accepts(dtype) {
        return Err(refused(op.name(), dtype, x.device()));
    }
    ensure_room(&shape, dtype, x.device())?;
    if op.is_predicate() {
        return predicate(op, x);
    }
    if x.is_empty() {
        return Ok(x.clone());
    }
    if !dtype.is_float() {
        return int_unary(op, x);
    }
    let burn: fn(CubeTensor) -> CubeTensor = match op {
        UnaryOp::Neg => CubeBackend::float_neg,
        UnaryOp::Abs => CubeBackend::float_abs,
        UnaryOp::Sign => CubeBackend::float_sign,
        UnaryOp::Sqrt => CubeBackend::float_sqrt,
        UnaryOp::Reciprocal => CubeBackend::float_recip,
        UnaryOp::Floor => CubeBackend::float_floor,
        UnaryOp::Ceil => CubeBackend::float_ceil,
        UnaryOp::Round => CubeBackend::float_round,
        UnaryOp::Trunc => CubeBackend::float_trunc,
        UnaryOp::Relu => CubeBackend::relu,
        _ => {
            return Ok(kernel::map(
                function(op).ok_or_else(|| unknown(op.name(), x.device()))?,
                x,
            ));
        }
    };
    Ok(x.like(burn(x.operand()), shape, dtype))
}

/// Our own function for an op.
fn function(op: UnaryOp) -> Option<Function> {
    Some(match op {
        UnaryOp::Exp => Function::Exp,
        UnaryOp::Expm1 => Function::Expm1,
        UnaryOp::Log => Function::Log,
        UnaryOp::Log1p => Function::Log1p,
        UnaryOp::Rsqrt => Function::Rsqrt,
        UnaryOp::Sin => Function::Sin,
        UnaryOp::Cos => Function::Cos,
        UnaryOp::Tan => Function::Tan,
        UnaryOp::Tanh => Function::Tanh,
        UnaryOp::Sigmoid => Function::Sigmoid,
        UnaryOp::Erf => Function::Erf,
        _ => return None,
    })
}

fn predicate(op: UnaryOp, x: &T) -> Result<T> {
    let float = x.dtype().is_float();
    match op {
        UnaryOp::LogicalNot => compare_scalar(CompareOp::Eq, x, Scalar::Int(0)),
        UnaryOp::IsNan if float => Ok(is_nan(x)),
        UnaryOp::IsInf if float => Ok(is_inf(x)),
        UnaryOp::IsFinite if float => is_finite(x),
        UnaryOp::IsNan | UnaryOp::IsInf => T::full(x.shape(), Scalar::Bool(false), DType::Bool, x.device()),
        UnaryOp::IsFinite => T::full(x.shape(), Scalar::Bool(true), DType::Bool, x.device()),
        _ => Err(unknown(op.name(), x.device())),
    }
}

/// Not by the shaders' own `abs` and `sign`, which some devices lack for 64 bits.
fn int_unary(op: UnaryOp, x: &T) -> Result<T> {
    let negated = || binary_scalar(BinaryOp::Sub, x, Scalar::Int(0), true);
    match op {
        UnaryOp::Neg => negated(),
        UnaryOp::Abs => binary(BinaryOp::Maximum, x, &negated()?),
        UnaryOp::Relu => binary_scalar(BinaryOp::Maximum, x, Scalar::Int(0), false),
        UnaryOp::Sign => {
            let at_least = binary_scalar(BinaryOp::Maximum, x, Scalar::Int(-1), false)?;
            binary_scalar(BinaryOp::Minimum, &at_least, Scalar::Int(1), false)
        }
        UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round | UnaryOp::Trunc => Ok(x.clone()),
        _ => Err(unknown(op.name(), x.device())),
    }
}

pub(crate) fn binary(op: BinaryOp, a: &T, b: &T) -> Result<T> {
    let (dtype, shape) = (a.dtype(), a.shape().broadcast(&b.shape())?);
    if !op.accepts(dtype) {
        return Err(refused(op.name(), dtype, a.device()));
    }
    ensure_room(&shape, dtype, a.device())?;
    if shape.numel() == 0 {
        return a.zeros(shape, dtype);
    }
    let (a, b) = (expand(a, shape), expand(b, shape));
    let pair = match op {
        BinaryOp::Div => Pair::Div,
        BinaryOp::Remainder => Pair::Remainder,
        BinaryOp::Pow => Pair::Pow,
        BinaryOp::Atan2 => Pair::Atan2,
        BinaryOp::Maximum if dtype != DType::Bool => Pair::Maximum,
        BinaryOp::Minimum if dtype != DType::Bool => Pair::Minimum,
        _ => {
            let burn = of_burn(op, dtype).ok_or_else(|| unknown(op.name(), a.device()))?;
            return Ok(a.like(burn(a.operand(), b.operand()), shape, dtype));
        }
    };
    Ok(kernel::zip(pair, &a, &b, shape))
}

/// Burn's op if it computes the same; bools are computed as the integers in which they are stored.
fn of_burn(op: BinaryOp, dtype: DType) -> Option<fn(CubeTensor, CubeTensor) -> CubeTensor> {
    let truth = dtype == DType::Bool;
    Some(match op {
        BinaryOp::Add if dtype.is_float() => CubeBackend::float_add,
        BinaryOp::Sub if dtype.is_float() => CubeBackend::float_sub,
        BinaryOp::Mul if dtype.is_float() => CubeBackend::float_mul,
        BinaryOp::Add | BinaryOp::Maximum if truth => CubeBackend::bitwise_or,
        BinaryOp::Mul | BinaryOp::Minimum if truth => CubeBackend::bitwise_and,
        BinaryOp::Add => CubeBackend::int_add,
        BinaryOp::Sub => CubeBackend::int_sub,
        BinaryOp::Mul => CubeBackend::int_mul,
        BinaryOp::And => CubeBackend::bitwise_and,
        BinaryOp::Or => CubeBackend::bitwise_or,
        BinaryOp::Xor => CubeBackend::bitwise_xor,
        _ => return None,
    })
}

pub(crate) fn binary_scalar(op: BinaryOp, x: &T, scalar: Scalar, reverse: bool) -> Result<T> {
    type Burn = fn(CubeTensor, BurnScalar) -> CubeTensor;
    let (shape, dtype) = (x.shape(), x.dtype());
    let burn: Option<Burn> = match (op, dtype.is_float()) {
        _ if dtype == DType::Bool => None,
        (BinaryOp::Add, true) => Some(CubeBackend::float_add_scalar),
        (BinaryOp::Add, false) => Some(CubeBackend::int_add_scalar),
        (BinaryOp::Mul, true) => Some(CubeBackend::float_mul_scalar),
        (BinaryOp::Mul, false) => Some(CubeBackend::int_mul_scalar),
        (BinaryOp::Sub, true) if !reverse => Some(CubeBackend::float_sub_scalar),
        (BinaryOp::Sub, false) if !reverse => Some(CubeBackend::int_sub_scalar),
        _ => None,
    };
    if let Some(burn) = burn.filter(|_| !x.is_empty()) {
        ensure_room(&shape, dtype, x.device())?;
        return Ok(x.like(burn(x.operand(), burn_scalar(scalar, dtype)), shape, dtype));
    }
    // The square in backward passes, since powers are expensive.
    if op == BinaryOp::Pow && !reverse && dtype.is_float() && scalar.to_f64() == 2.0 {
        return binary(BinaryOp::Mul, x, x);
    }
    let scalar = T::full(Shape::SCALAR, scalar, dtype, x.device())?;
    if reverse {
        binary(op, &scalar, x)
    } else {
        binary(op, x, &scalar)
    }
}
