//! Reductions, running sums and sorting.

use burn_flex::FlexTensor;
use burn_flex::ops::{comparison, cumulative, reduce as flex};
use polygrad_core::{ArgOp, Axes, DType, ReduceOp, Result, Scalar, Shape};

use crate::flex::compare::{as_dtype, cast, plain};
use crate::flex::elementwise::{NATIVE, binary_scalar};
use crate::flex::movement::{concat, part, reshape};
use crate::flex::support::{refused, unknown};
use crate::flex::tensor::{BurnTensor, ensure_room};
use crate::flex::{integer, total};

/// The most terms that Burn may add sequentially; longer sums are split into partial sums of this length.
const TERMS: usize = 256;

/// The fewest partial sums in which Burn adds up a line of f32: it has eight sums of a vector each.
const LANES: usize = 32;

pub(crate) fn reduce(op: ReduceOp, x: &BurnTensor, axes: Axes, keepdims: bool) -> Result<BurnTensor> {
    let dtype = x.dtype();
    if !op.accepts(dtype) {
        return Err(refused(op.name(), dtype));
    }
    if axes.is_empty() {
        return Ok(x.clone());
    }
    let shape = x.shape();
    let out = shape.reduced(axes, keepdims);
    if shape.numel() == 0 {
        return empty(op, out, dtype);
    }
    let narrow = matches!(dtype, DType::F16 | DType::BF16) && !matches!(op, ReduceOp::Max | ReduceOp::Min);
    let mut result = if narrow { cast(x, DType::F32)? } else { x.clone() };
    // Adjacent axes are merged, from the last to the first.
    let mut end = shape.rank();
    while end > 0 {
        if !axes.contains(end - 1) {
            end -= 1;
            continue;
        }
        let mut start = end - 1;
        while start > 0 && axes.contains(start - 1) {
            start -= 1;
        }
        let dims = result.shape();
        let outer = dims[..start].iter().product();
        let inner = dims[end..].iter().product();
        let folded = reshape(&result, Shape::from([outer, dims[start..end].iter().product(), inner]))?;
        let line = along(op, &folded)?;
        let mut dims = dims;
        dims.dims_mut()[start..end].fill(1);
        result = reshape(&line, dims)?;
        end = start;
    }
    if op == ReduceOp::Mean {
        let count: usize = axes.iter().map(|axis| shape[axis]).product();
        result = binary_scalar(
            polygrad_core::BinaryOp::Div,
            &result,
            Scalar::Float(count as f64),
            false,
        )?;
    }
    reshape(&if narrow { cast(&result, dtype)? } else { result }, out)
}

/// Reduces the middle of three axes.
fn along(op: ReduceOp, x: &BurnTensor) -> Result<BurnTensor> {
    let dtype = x.dtype();
    match op {
        ReduceOp::Sum | ReduceOp::Mean if dtype.is_float() => return sum(x),
        ReduceOp::Prod if dtype.is_float() => {}
        ReduceOp::Sum | ReduceOp::Prod => return integer::fold(op, &x.contiguous()?),
        _ => {}
    }
    let shape = x.shape();
    let (out, mut flat) = (shape.with_dim(1, 1), x.contiguous()?);
    // With two axes, Burn reduces the last one with vector instructions.
    if shape[2] == 1 {
        flat = reshape(&flat, Shape::from([shape[0], shape[1]]))?;
    }
    let flex = flat.flex().clone();
    let reduced = match op {
        ReduceOp::Prod => BurnTensor::new(flex::prod_dim(flex, 1)),
        ReduceOp::Max => as_dtype(BurnTensor::new(flex::max_dim(plain(&flat).into(), 1)), dtype),
        ReduceOp::Min => as_dtype(BurnTensor::new(flex::min_dim(plain(&flat).into(), 1)), dtype),
        ReduceOp::Any => BurnTensor::new(comparison::any_bool_dim(flex, 1, NATIVE)),
        ReduceOp::All => BurnTensor::new(comparison::all_bool_dim(flex, 1, NATIVE)),
        _ => return Err(unknown(op.name())),
    };
    reshape(&reduced, out)
}

/// Sums of partial sums: Burn adds terms sequentially, except for lines of f32, for which it uses vector instructions.
fn sum(x: &BurnTensor) -> Result<BurnTensor> {
    let shape = x.shape();
    let (outer, count, inner) = (shape[0], shape[1], shape[2]);
    // With two axes, Burn sums the last one with vector instructions.
    let vectors = inner == 1 && x.dtype() == DType::F32;
    if count <= if vectors { LANES * TERMS } else { TERMS } {
        let folded = if inner == 1 {
            reshape(x, Shape::from([outer, count]))?
        } else {
            x.clone()
        };
        return reshape(
            &BurnTensor::new(flex::sum_dim(folded.operand()?, 1)),
            shape.with_dim(1, 1),
        );
    }
    let x = x.contiguous()?;
    let blocks = count / TERMS;
    let whole = reshape(
        &part(&x, 1, 0, blocks * TERMS),
        Shape::new(&[outer, blocks, TERMS, inner])?,
    )?;
    let whole = reshape(&whole, Shape::from([outer * blocks, TERMS, inner]))?;
    let sums = reshape(&sum(&whole)?, Shape::from([outer, blocks, inner]))?;
    let rest = count - blocks * TERMS;
    if rest == 0 {
        return sum(&sums);
    }
    let rest = sum(&part(&x, 1, blocks * TERMS, rest))?;
    sum(&concat(&[&sums, &rest], 1)?)
}

fn empty(op: ReduceOp, shape: Shape, dtype: DType) -> Result<BurnTensor> {
    let value = match op {
        ReduceOp::Prod | ReduceOp::All => 1,
        _ => 0,
    };
    BurnTensor::full(shape, Scalar::Int(value), dtype)
}

pub(crate) fn arg_reduce(op: ArgOp, x: &BurnTensor, axis: usize, keepdims: bool) -> Result<BurnTensor> {
    let shape = x.shape();
    let out = shape.reduced(Axes::one(axis), keepdims);
    if out.numel() == 0 {
        return BurnTensor::full(out, Scalar::Int(0), DType::I64);
    }
    let x = plain(&x.contiguous()?);
    let found = match op {
        ArgOp::Max => flex::argmax(x.into(), axis),
        ArgOp::Min => flex::argmin(x.into(), axis),
        _ => return Err(unknown(op.name())),
    };
    reshape(&BurnTensor::new(found), out)
}

pub(crate) fn cumsum(x: &BurnTensor, axis: usize) -> Result<BurnTensor> {
    let dtype = x.dtype();
    let shape = x.shape();
    ensure_room(&shape, DType::F64)?;
    if shape.numel() == 0 {
        return x.contiguous();
    }
    let x = x.contiguous()?;
    match dtype {
        DType::Bool => Err(refused("cumsum", dtype)),
        DType::F64 => total::cumsum(&x, axis),
        // Burn adds sequentially in the dtype.
        DType::F32 | DType::F16 | DType::BF16 => {
            let wide: FlexTensor = cast(&x, DType::F64)?.into();
            cast(&BurnTensor::new(cumulative::cumsum_f64(wide, axis)), dtype)
        }
        _ => integer::cumsum(&x, axis),
    }
}
