//! Element-wise ops.

use polygrad_core::{BinaryOp, CompareOp, DType, Error, Result, Shape, UnaryOp};

use crate::movement::expand;
use crate::support;
use crate::tensor::{ReferenceTensor, Values, collect};

pub(crate) fn unary(op: UnaryOp, x: &ReferenceTensor) -> Result<ReferenceTensor> {
    let (name, shape, dtype) = (op.name(), *x.shape(), x.dtype());
    if !op.accepts(dtype) {
        return Err(support::refused(name, dtype));
    }
    let count = shape.numel();
    if let Some(holds) = op.predicate() {
        let values = match x.values() {
            Values::Real(x) => collect(count, |i| Ok(holds(x[i]).into()))?,
            Values::Int(x) => collect(count, |i| Ok(holds(x[i] as f64).into()))?,
        };
        return Ok(ReferenceTensor::int(shape, DType::Bool, values));
    }
    let unknown = || support::unknown(name);
    Ok(match x.values() {
        Values::Real(x) => {
            let f = op.on_reals().ok_or_else(unknown)?;
            ReferenceTensor::real(shape, dtype, collect(count, |i| Ok(f(x[i])))?)
        }
        Values::Int(x) => {
            let f = op.on_integers().ok_or_else(unknown)?;
            ReferenceTensor::int(shape, dtype, collect(count, |i| Ok(f(x[i])))?)
        }
    })
}

pub(crate) fn binary(op: BinaryOp, a: &ReferenceTensor, b: &ReferenceTensor) -> Result<ReferenceTensor> {
    let name = op.name();
    let (a, b, shape) = broadcast(name, a, b)?;
    let (dtype, count) = (a.dtype(), shape.numel());
    if !op.accepts(dtype) {
        return Err(support::refused(name, dtype));
    }
    let unknown = || support::unknown(name);
    Ok(match (a.values(), b.values()) {
        (Values::Real(a), Values::Real(b)) => {
            let f = op.on_reals().ok_or_else(unknown)?;
            ReferenceTensor::real(shape, dtype, collect(count, |i| Ok(f(a[i], b[i])))?)
        }
        (Values::Int(a), Values::Int(b)) => {
            let f = op.on_integers().ok_or_else(unknown)?;
            // Bools are computed as 0 and 1, and a nonzero result is true: `+` is or, `*` is and.
            let kept = |x: i64| if dtype == DType::Bool { i64::from(x != 0) } else { x };
            ReferenceTensor::int(shape, dtype, collect(count, |i| Ok(kept(f(a[i], b[i]))))?)
        }
        _ => return Err(support::refused(name, dtype)),
    })
}

pub(crate) fn compare(op: CompareOp, a: &ReferenceTensor, b: &ReferenceTensor) -> Result<ReferenceTensor> {
    let (a, b, shape) = broadcast(op.name(), a, b)?;
    let values = match (a.values(), b.values()) {
        (Values::Real(a), Values::Real(b)) => collect(shape.numel(), |i| Ok(op.holds(a[i], b[i]).into()))?,
        (Values::Int(a), Values::Int(b)) => collect(shape.numel(), |i| Ok(op.holds(a[i], b[i]).into()))?,
        _ => return Err(support::refused(op.name(), b.dtype())),
    };
    Ok(ReferenceTensor::int(shape, DType::Bool, values))
}

pub(crate) fn select(condition: &ReferenceTensor, a: &ReferenceTensor, b: &ReferenceTensor) -> Result<ReferenceTensor> {
    support::expect("where", condition, DType::Bool)?;
    let (a, b, shape) = broadcast("where", a, b)?;
    let shape = shape.broadcast(condition.shape())?;
    let (condition, a, b) = (expand(condition, shape)?, expand(&a, shape)?, expand(&b, shape)?);
    let Values::Int(condition) = condition.values() else {
        return Err(support::refused("where", DType::Bool));
    };
    let count = shape.numel();
    match (a.values(), b.values()) {
        (Values::Real(x), Values::Real(y)) => {
            let values = collect(count, |i| Ok(if condition[i] != 0 { x[i] } else { y[i] }))?;
            Ok(ReferenceTensor::real(shape, a.dtype(), values))
        }
        (Values::Int(x), Values::Int(y)) => {
            let values = collect(count, |i| Ok(if condition[i] != 0 { x[i] } else { y[i] }))?;
            Ok(ReferenceTensor::int(shape, a.dtype(), values))
        }
        _ => Err(support::refused("where", b.dtype())),
    }
}

pub(crate) fn cast(x: &ReferenceTensor, dtype: DType) -> Result<ReferenceTensor> {
    ReferenceTensor::from_scalars(*x.shape(), dtype, |i| match x.values() {
        Values::Real(x) => x[i].into(),
        Values::Int(x) => x[i].into(),
    })
}

/// Broadcasts two tensors of one dtype to a common shape.
fn broadcast(
    op: &'static str,
    a: &ReferenceTensor,
    b: &ReferenceTensor,
) -> Result<(ReferenceTensor, ReferenceTensor, Shape)> {
    let operands = || [(*a.shape(), a.dtype()), (*b.shape(), b.dtype())];
    if a.dtype() != b.dtype() {
        return Err(Error::dtype("operands of different dtypes")
            .with_op(op)
            .with_operands(operands()));
    }
    let shape = a
        .shape()
        .broadcast(b.shape())
        .map_err(|e| e.with_op(op).with_operands(operands()))?;
    Ok((expand(a, shape)?, expand(b, shape)?, shape))
}
