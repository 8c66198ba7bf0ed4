//! Element-wise ops.
//!
//! Functions that luminal computes within the contract's bounds are luminal's; the other functions of floats are custom
//! nodes, computed in f64 and rounded once.

use std::f32::consts::LN_2;

use polygrad_core::{BinaryOp, CompareOp, DType, Element, Result, Shape, UnaryOp, collect};

use crate::kernel;
use crate::primitive::{self, Primitive, over_memory};
use crate::support::{refused, typed, unknown};
use crate::tensor::LuminalTensor;
use crate::values::{Item, View};

pub(crate) fn unary(op: UnaryOp, x: &LuminalTensor) -> Result<LuminalTensor> {
    let (name, dtype) = (op.name(), x.dtype());
    if !op.accepts(dtype) {
        return Err(refused(name, dtype));
    }
    if dtype == DType::F32 {
        match op {
            UnaryOp::Neg => return primitive::neg(x),
            UnaryOp::Reciprocal => return primitive::unary(Primitive::Recip, x),
            UnaryOp::Sqrt => return primitive::unary(Primitive::Sqrt, x),
            UnaryOp::Rsqrt => return primitive::unary(Primitive::Recip, &primitive::unary(Primitive::Sqrt, x)?),
            UnaryOp::Sin => return primitive::unary(Primitive::Sin, x),
            UnaryOp::Log => return primitive::scale(&primitive::unary(Primitive::Log2, x)?, LN_2),
            _ => {}
        }
    }
    match (op.predicate(), op.on_reals(), op.on_integers()) {
        (Some(f), ..) => typed!(name, dtype, T => map(name, x, move |x: T| f(x.to_f64()))),
        (.., Some(f)) if dtype == DType::I64 => map(name, x, f),
        (_, Some(f), _) => map(name, x, move |x: f32| f(f64::from(x)) as f32),
        _ => Err(unknown(name)),
    }
}

/// Records a custom node that maps each element.
fn map<T: Item, R: Item>(
    name: &'static str,
    x: &LuminalTensor,
    f: impl Fn(T) -> R + Send + Sync + 'static,
) -> Result<LuminalTensor> {
    if x.shape().numel() == 0 {
        return Ok(LuminalTensor::new::<R>(*x.shape(), Vec::new()));
    }
    over_memory(x, |memory| {
        kernel::record(name, [memory], *memory.shape(), R::DTYPE, move |[x]| {
            Ok(R::tensor(collect(x.values::<T>()?.iter().map(|&x| f(x)))?))
        })
    })
}

pub(crate) fn binary(op: BinaryOp, a: &LuminalTensor, b: &LuminalTensor) -> Result<LuminalTensor> {
    let (name, dtype) = (op.name(), a.dtype());
    if !op.accepts(dtype) {
        return Err(refused(name, dtype));
    }
    if dtype == DType::F32 {
        return match op {
            BinaryOp::Add => primitive::binary(Primitive::Add, a, b),
            BinaryOp::Sub => primitive::sub(a, b),
            BinaryOp::Mul => primitive::binary(Primitive::Mul, a, b),
            // A quotient of two f32 that is computed in f64 and rounded to f32 is the nearest f32. luminal's product
            // with a reciprocal rounds twice, and overflows if the divisor is tiny.
            _ => match op.on_reals() {
                Some(f) => zip(name, a, b, move |a: f32, b: f32| f(f64::from(a), f64::from(b)) as f32),
                None => Err(unknown(name)),
            },
        };
    }
    match (op.on_integers(), dtype) {
        (Some(f), DType::I64) => zip(name, a, b, f),
        // Bools are computed as 0 and 1, and any result except 0 is true: `+` is or, `*` is and.
        (Some(f), _) => zip(name, a, b, move |a: bool, b: bool| f(a.into(), b.into()) != 0),
        _ => Err(unknown(name)),
    }
}

/// Records a custom node that combines pairs of elements of tensors that broadcast.
fn zip<T: Item, R: Item>(
    name: &'static str,
    a: &LuminalTensor,
    b: &LuminalTensor,
    f: impl Fn(T, T) -> R + Send + Sync + 'static,
) -> Result<LuminalTensor> {
    let shape = a.shape().broadcast(b.shape())?;
    let (a, b) = (expand(a, shape), expand(b, shape));
    kernel::record(name, [&a, &b], shape, R::DTYPE, move |[a, b]| {
        let (a, b) = (operand::<T>(&a)?, operand::<T>(&b)?);
        let out = match (&a, &b) {
            (Operand::Each(a), Operand::One(b)) => collect(a.iter().map(|&a| f(a, *b))),
            (Operand::One(a), Operand::Each(b)) => collect(b.iter().map(|&b| f(*a, b))),
            (Operand::One(a), Operand::One(b)) => collect((0..shape.numel()).map(|_| f(*a, *b))),
            (Operand::Each(a), Operand::Each(b)) => collect(a.iter().zip(b.iter()).map(|(&a, &b)| f(a, b))),
        };
        Ok(R::tensor(out?))
    })
}

fn expand(x: &LuminalTensor, shape: Shape) -> LuminalTensor {
    x.view(x.layout().expand(shape))
}

/// Values per element, or a single one.
enum Operand<'a, T: Clone> {
    Each(std::borrow::Cow<'a, [T]>),
    One(T),
}

fn operand<'a, T: Item>(x: &View<'a>) -> Result<Operand<'a, T>> {
    if x.shape().numel() > 0 && x.layout.strides().iter().all(|&stride| stride == 0) {
        return Ok(Operand::One(x.memory::<T>()?[x.layout.offset()]));
    }
    Ok(Operand::Each(x.values::<T>()?))
}

pub(crate) fn compare(op: CompareOp, a: &LuminalTensor, b: &LuminalTensor) -> Result<LuminalTensor> {
    fn with<T: Item>(op: CompareOp, a: &LuminalTensor, b: &LuminalTensor) -> Result<LuminalTensor> {
        let name = op.name();
        match op {
            CompareOp::Eq => zip(name, a, b, |a: T, b: T| a == b),
            CompareOp::Ne => zip(name, a, b, |a: T, b: T| a != b),
            CompareOp::Lt => zip(name, a, b, |a: T, b: T| a < b),
            CompareOp::Le => zip(name, a, b, |a: T, b: T| a <= b),
            CompareOp::Gt => zip(name, a, b, |a: T, b: T| a > b),
            CompareOp::Ge => zip(name, a, b, |a: T, b: T| a >= b),
            _ => Err(unknown(name)),
        }
    }
    typed!(op.name(), a.dtype(), T => with::<T>(op, a, b))
}

pub(crate) fn select(condition: &LuminalTensor, a: &LuminalTensor, b: &LuminalTensor) -> Result<LuminalTensor> {
    fn of<T: Item>(shape: Shape, inputs: [&LuminalTensor; 3]) -> Result<LuminalTensor> {
        kernel::record("where", inputs, shape, T::DTYPE, move |[condition, a, b]| {
            let (a, b) = (a.values::<T>()?, b.values::<T>()?);
            let pairs = a.iter().zip(b.iter());
            let condition = condition.values::<bool>()?;
            let chosen = condition
                .iter()
                .zip(pairs)
                .map(|(&condition, (&a, &b))| if condition { a } else { b });
            Ok(T::tensor(collect(chosen)?))
        })
    }
    let shape = a.shape().broadcast(b.shape())?.broadcast(condition.shape())?;
    let (condition, a, b) = (expand(condition, shape), expand(a, shape), expand(b, shape));
    typed!("where", a.dtype(), T => of::<T>(shape, [&condition, &a, &b]))
}

pub(crate) fn cast(x: &LuminalTensor, dtype: DType) -> Result<LuminalTensor> {
    if dtype == x.dtype() {
        return Ok(x.clone());
    }
    typed!("to_dtype", x.dtype(), From => {
        typed!("to_dtype", dtype, To => map("to_dtype", x, |x: From| <To as Element>::from_scalar(x.to_scalar())))
    })
}
