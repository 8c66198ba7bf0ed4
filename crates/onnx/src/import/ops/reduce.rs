//! Reductions, extremes and running sums.

use polygrad_core::{ArgOp, DType, ReduceOp, Result};
use polygrad_tensor::{RoundingMode, Tensor};

use super::row::{Row, rows};
use crate::graph::ElementType;
use crate::import::call::{Call, Results, axes, axis, isizes, one};

rows! {
    Row::new("ReduceSum", 1, |c| reduce(c, sum)).like(0).wide();
    Row::new("ReduceMean", 1, |c| reduce(c, mean)).like(0).wide();
    Row::new("ReduceProd", 1, |c| reduce(c, |x, axes, keep| x.reduce(ReduceOp::Prod, axes, keep)?.to_dtype(x.dtype()))).like(0).wide();
    Row::new("ReduceMax", 1, |c| reduce(c, |x, axes, keep| extreme(c, x, axes, keep, ReduceOp::Max))).like(0);
    Row::new("ReduceMin", 1, |c| reduce(c, |x, axes, keep| extreme(c, x, axes, keep, ReduceOp::Min))).like(0);
    Row::new("ReduceL1", 1, |c| reduce(c, |x, axes, keep| sum(&x.abs()?, axes, keep))).like(0).wide();
    Row::new("ReduceL2", 1, |c| {
        reduce(c, |x, axes, keep| real(c, x, |x| norm(x, axes, keep)))
    }).like(0).wide();
    Row::new("ReduceSumSquare", 1, |c| reduce(c, |x, axes, keep| sum(&x.square()?, axes, keep))).like(0).wide();
    Row::new("ReduceLogSum", 1, |c| {
        reduce(c, |x, axes, keep| real(c, &sum(x, axes, keep)?, Tensor::log))
    }).like(0).wide();
    Row::new("ReduceLogSumExp", 1, |c| {
        reduce(c, |x, axes, keep| real(c, x, |x| if keep { x.logsumexp_keepdim(axes) } else { x.logsumexp(axes) }))
    }).like(0).wide();
    Row::new("ArgMax", 1, |c| arg(c, ArgOp::Max));
    Row::new("ArgMin", 1, |c| arg(c, ArgOp::Min));
    Row::new("CumSum", 11, |c| scan(c, |x, axis| x.cumsum(axis)?.to_dtype(x.dtype()))).like(0).wide();
    Row::new("CumProd", 26, |c| scan(c, |x, axis| x.cumprod(axis)?.to_dtype(x.dtype()))).like(0).wide();
}

fn reduce(c: &Call<'_>, over: impl Fn(&Tensor, &[isize], bool) -> Result<Tensor>) -> Results {
    let x = c.x(0)?;
    let keepdims = c.flag("keepdims", true)?;
    let list = c.ints_either(1, "axes")?.unwrap_or_default();
    let chosen = if list.is_empty() {
        if c.flag("noop_with_empty_axes", false)? {
            return one(over(&x, &[], true)?);
        }
        (0..x.rank()).collect()
    } else {
        axes(&list, x.rank())?
    };
    one(over(&x, &isizes(&chosen), keepdims)?)
}

/// In the operand's own dtype, as ONNX specifies.
fn sum(x: &Tensor, axes: &[isize], keepdims: bool) -> Result<Tensor> {
    x.reduce(ReduceOp::Sum, axes, keepdims)?.to_dtype(x.dtype())
}

/// For integers the quotient is truncated towards 0. The mean of an empty set is 0, as in ONNX Runtime.
fn mean(x: &Tensor, axes: &[isize], keepdims: bool) -> Result<Tensor> {
    let extents = axes.iter().map(|&axis| x.shape()[axis as usize]);
    let count: usize = extents.product();
    if count == 0 {
        return sum(x, axes, keepdims);
    }
    if x.dtype().is_float() {
        return x.reduce(ReduceOp::Mean, axes, keepdims);
    }
    let whole = x.to_dtype(DType::I64)?.reduce(ReduceOp::Sum, axes, keepdims)?;
    whole
        .div_rounded(&whole.full_like(count)?, RoundingMode::Trunc)?
        .to_dtype(x.dtype())
}

/// A reduction computed with real numbers but returned in the operand's dtype: as in ONNX, results for integers are
/// truncated.
fn real(c: &Call<'_>, x: &Tensor, over: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    if x.dtype().is_float() {
        return over(x);
    }
    over(&x.to_dtype(c.wide())?)?.to_dtype(x.dtype())
}

/// The root of the sum of squares. All are taken relative to the largest, so that no square overflows or underflows
/// unless the root does.
pub(super) fn norm(x: &Tensor, axes: &[isize], keepdims: bool) -> Result<Tensor> {
    if axes.iter().any(|&axis| x.shape()[axis as usize] == 0) {
        return sum(x, axes, keepdims);
    }
    let largest = x.detach().abs()?.reduce(ReduceOp::Max, axes, true)?;
    let plain = largest.eq(0.0)?.logical_or(&largest.isinf()?)?;
    let unit = largest.masked_fill(&plain, 1.0)?;
    let norm = (sum(&(x / &unit)?.square()?, axes, true)?.sqrt()? * unit)?;
    if keepdims { Ok(norm) } else { sum(&norm, axes, false) }
}

fn extreme(c: &Call<'_>, x: &Tensor, axes: &[isize], keepdims: bool, op: ReduceOp) -> Result<Tensor> {
    let dtype = x.dtype();
    let over_nothing = axes.iter().any(|&axis| x.shape()[axis as usize] == 0);
    if over_nothing {
        // The maximum of an empty set is the smallest number of the type.
        let shape = x.reduce(ReduceOp::Sum, axes, keepdims)?.shape();
        let max = op == ReduceOp::Max;
        let element = c.element(0)?;
        return match element.range() {
            // 2^64 - 1 has no representation as i64, so it is stored as a number that is rejected.
            Some(_) if element == ElementType::U64 && !max => Tensor::full(shape, -1i64, (&x.device(), dtype)),
            Some((low, high)) => Tensor::full(shape, if max { low } else { high }, (&x.device(), dtype)),
            None if dtype == DType::Bool => Tensor::full(shape, !max, (&x.device(), dtype)),
            None => {
                let least = if max { f64::NEG_INFINITY } else { f64::INFINITY };
                Tensor::full(shape, least, (&x.device(), dtype))
            }
        };
    }
    if dtype == DType::Bool {
        let op = if op == ReduceOp::Max {
            ReduceOp::Any
        } else {
            ReduceOp::All
        };
        return x.reduce(op, axes, keepdims);
    }
    x.reduce(op, axes, keepdims)
}

fn arg(c: &Call<'_>, op: ArgOp) -> Results {
    let x = c.x(0)?;
    let axis = c.axis("axis", 0, x.rank())?;
    let (at, keepdims) = (axis as isize, c.flag("keepdims", true)?);
    if !c.flag("select_last_index", false)? {
        return one(x.arg_reduce(op, at, keepdims)?);
    }
    let last = x.shape()[axis] as i64 - 1;
    one((last - x.flip([at])?.arg_reduce(op, at, keepdims)?)?)
}

/// A running sum or product: inclusive or exclusive, from either end.
fn scan(c: &Call<'_>, run: impl Fn(&Tensor, isize) -> Result<Tensor>) -> Results {
    let x = c.x(0)?;
    let axis = axis(c.int_scalar(1)?, x.rank())?;
    let reverse = c.flag("reverse", false)?;
    let at = axis as isize;
    c.limits.check_bytes(x.shape()[axis].saturating_mul(size_of::<i64>()))?;
    let mut y = if reverse { x.flip([at])? } else { x };
    let extent = y.shape()[axis];
    if c.flag("exclusive", false)? && extent > 0 {
        // Shifted by one, so that each position has the value before it.
        let one_place = y.narrow(at, 0, 1)?;
        let first = if c.node.op_type == "CumSum" {
            one_place.zeros_like()?
        } else {
            one_place.ones_like()?
        };
        y = Tensor::cat(&[&first, &y.narrow(at, 0, extent - 1)?], at)?;
    }
    let y = run(&y, at)?;
    one(if reverse { y.flip([at])? } else { y })
}
