//! Arithmetic, comparisons and logic, element by element.

use polygrad_core::{BinaryOp, CompareOp, DType, Error, Result, UnaryOp};
use polygrad_tensor::{RoundingMode, Tensor};

use super::row::{Row, rows};
use super::text;
use crate::graph::malformed;
use crate::import::call::{Call, Results, one};

rows! {
    Row::new("Abs", 1, |c| unary(c, UnaryOp::Abs)).like(0);
    Row::new("Neg", 1, |c| unary(c, UnaryOp::Neg)).like(0);
    Row::new("Sign", 9, sign).like(0);
    Row::new("Exp", 1, |c| unary(c, UnaryOp::Exp));
    Row::new("Log", 1, |c| unary(c, UnaryOp::Log));
    Row::new("Sqrt", 1, |c| unary(c, UnaryOp::Sqrt));
    Row::new("Reciprocal", 1, |c| unary(c, UnaryOp::Reciprocal));
    Row::new("Floor", 1, |c| unary(c, UnaryOp::Floor));
    Row::new("Ceil", 1, |c| unary(c, UnaryOp::Ceil));
    Row::new("Round", 11, |c| unary(c, UnaryOp::Round));
    Row::new("Sin", 7, |c| unary(c, UnaryOp::Sin));
    Row::new("Cos", 7, |c| unary(c, UnaryOp::Cos));
    Row::new("Tan", 7, |c| unary(c, UnaryOp::Tan));
    Row::new("Erf", 9, |c| unary(c, UnaryOp::Erf));
    Row::new("IsNaN", 9, |c| unary(c, UnaryOp::IsNan));
    Row::new("Not", 1, |c| unary(c, UnaryOp::LogicalNot));
    Row::new("IsInf", 10, is_inf);
    Row::new("Asin", 7, |c| { let x = c.x(0)?; one(x.atan2(&complement(&x)?)?) }).wide();
    Row::new("Acos", 7, |c| { let x = c.x(0)?; one(complement(&x)?.atan2(&x)?) }).wide();
    Row::new("Atan", 7, |c| { let x = c.x(0)?; one(x.atan2(&x.ones_like()?)?) });
    Row::new("Sinh", 9, sinh).wide();
    Row::new("Cosh", 9, cosh).wide();
    Row::new("Asinh", 9, asinh).wide();
    Row::new("Acosh", 9, acosh).wide();
    Row::new("Atanh", 9, |c| { let x = c.x(0)?; one(((x.log1p()? - x.neg()?.log1p()?)? * 0.5)?) }).wide();
    Row::new("Add", 7, |c| binary(c, BinaryOp::Add)).like(0);
    Row::new("Sub", 7, |c| binary(c, BinaryOp::Sub)).like(0);
    Row::new("Mul", 7, |c| binary(c, BinaryOp::Mul)).like(0);
    Row::new("Div", 7, div).like(0);
    Row::new("Mod", 10, modulo).like(0);
    Row::new("Pow", 7, pow).like(0);
    Row::new("Max", 6, |c| many(c, BinaryOp::Maximum)).like(0);
    Row::new("Min", 6, |c| many(c, BinaryOp::Minimum)).like(0);
    Row::new("Sum", 6, |c| many(c, BinaryOp::Add)).like(0).wide();
    Row::new("Mean", 6, mean).wide();
    Row::new("And", 7, |c| binary(c, BinaryOp::And));
    Row::new("Or", 7, |c| binary(c, BinaryOp::Or));
    Row::new("Xor", 7, |c| binary(c, BinaryOp::Xor));
    Row::new("BitwiseAnd", 18, |c| binary(c, BinaryOp::And)).like(0);
    Row::new("BitwiseOr", 18, |c| binary(c, BinaryOp::Or)).like(0);
    Row::new("BitwiseXor", 18, |c| binary(c, BinaryOp::Xor)).like(0);
    Row::new("BitwiseNot", 18, bitwise_not).like(0);
    Row::new("BitShift", 11, bit_shift).like(0);
    Row::new("Equal", 7, |c| match (c.need(0)?.texts(), c.need(1)?.texts()) {
        (Some(a), Some(b)) => one(text::equal(c, a, b)?),
        _ => compare(c, CompareOp::Eq),
    });
    Row::new("Less", 7, |c| compare(c, CompareOp::Lt));
    Row::new("LessOrEqual", 12, |c| compare(c, CompareOp::Le));
    Row::new("Greater", 7, |c| compare(c, CompareOp::Gt));
    Row::new("GreaterOrEqual", 12, |c| compare(c, CompareOp::Ge));
    Row::new("Where", 9, choose).moves(1..3);
    Row::new("Clip", 6, clip).like(0);
}

fn unary(c: &Call<'_>, op: UnaryOp) -> Results {
    one(c.x(0)?.unary(op)?)
}

/// NaN gives NaN, unlike in PyTorch.
fn sign(c: &Call<'_>) -> Results {
    let x = c.x(0)?;
    let sign = x.sign()?;
    one(if x.dtype().is_float() {
        Tensor::where_(&x.isnan()?, &x, &sign)?
    } else {
        sign
    })
}

/// `√(1 − x²)`.
fn complement(x: &Tensor) -> Result<Tensor> {
    // As a product, since near ±1 the difference of squares cancels.
    ((1.0 - x)? * (x + 1.0)?)?.sqrt()
}

/// `sinh(x / 2)`, whose square does not overflow where cosh does not.
fn half_sinh(x: &Tensor) -> Result<Tensor> {
    let half = (x * 0.5)?;
    (half.expm1()? - half.neg()?.expm1()?)? * 0.5
}

fn sinh(c: &Call<'_>) -> Results {
    let half = half_sinh(&c.x(0)?)?;
    let cosh = ((&half * &half)? + 1.0)?.sqrt()?;
    one(((half * 2.0)? * cosh)?)
}

fn cosh(c: &Call<'_>) -> Results {
    let half = half_sinh(&c.x(0)?)?;
    one((((&half * 2.0)? * half)? + 1.0)?)
}

/// From here on both inverses equal `ln 2x` in f64 precision.
const LARGE: f64 = (1u64 << 30) as f64;

/// An inverse up to [`LARGE`], where squares do not overflow; above it the logarithm of the remaining factor is added.
fn inverse(x: &Tensor, below: impl FnOnce(Tensor) -> Result<Tensor>) -> Result<Tensor> {
    let beyond = (x / LARGE)?.clamp(Some(1.0), None)?.log()?;
    below(x.clamp(None, Some(LARGE))?)? + beyond
}

fn asinh(c: &Call<'_>) -> Results {
    let x = c.x(0)?;
    let size = inverse(&x.abs()?, |x| {
        let square = x.square()?;
        let rest = (&square / ((&square + 1.0)?.sqrt()? + 1.0)?)?;
        (x + rest)?.log1p()
    })?;
    one((size * x.sign()?)?)
}

fn acosh(c: &Call<'_>) -> Results {
    one(inverse(&c.x(0)?, |x| {
        let above = (x - 1.0)?;
        // Separate roots, since the product of two negative factors would be positive.
        let root = (above.sqrt()? * (&above + 2.0)?.sqrt()?)?;
        (above + root)?.log1p()
    })?)
}

fn is_inf(c: &Call<'_>) -> Results {
    let x = c.x(0)?;
    let (negative, positive) = (c.flag("detect_negative", true)?, c.flag("detect_positive", true)?);
    one(match (negative, positive) {
        (true, true) => x.isinf()?,
        (true, false) => x.eq(f64::NEG_INFINITY)?,
        (false, true) => x.eq(f64::INFINITY)?,
        (false, false) => c.full(&x.dims(), false, DType::Bool)?,
    })
}

/// Two operands of one dtype whose result does not exceed the limits.
fn pair(c: &Call<'_>) -> Result<(Tensor, Tensor)> {
    let (a, b) = (c.x(0)?, c.x(1)?);
    if a.dtype() != b.dtype() {
        return Err(Error::dtype(format!("operands of {} and {}", a.dtype(), b.dtype())).with_hint("insert a Cast"));
    }
    fits(c, &[&a, &b])?;
    Ok((a, b))
}

/// Fails if the broadcast result of tensors would exceed the limits.
pub(super) fn fits(c: &Call<'_>, operands: &[&Tensor]) -> Result<()> {
    let Some((first, rest)) = operands.split_first() else {
        return Ok(());
    };
    let mut shape = first.shape();
    for operand in rest {
        shape = shape.broadcast(&operand.shape())?;
    }
    c.limits.check(&shape, first.dtype())
}

fn binary(c: &Call<'_>, op: BinaryOp) -> Results {
    let (a, b) = pair(c)?;
    one(a.binary(op, &b)?)
}

fn compare(c: &Call<'_>, op: CompareOp) -> Results {
    let (a, b) = pair(c)?;
    one(a.compare(op, &b)?)
}

fn div(c: &Call<'_>) -> Results {
    let (a, b) = pair(c)?;
    one(divide(&a, &b)?)
}

/// Integer division rounds towards zero.
pub(super) fn divide(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    if a.dtype().is_float() {
        a.div(b)
    } else {
        a.div_rounded(b, RoundingMode::Trunc)
    }
}

fn modulo(c: &Call<'_>) -> Results {
    let (a, b) = pair(c)?;
    if !c.flag("fmod", false)? {
        return one(a.remainder(&b)?);
    }
    one(a.fmod(&b)?)
}

fn pow(c: &Call<'_>) -> Results {
    let (a, b) = (c.x(0)?, c.x(1)?);
    fits(c, &[&a, &b])?;
    let dtype = a.dtype();
    let number = c.need(1)?.on_host().is_some() && b.numel() == 1 && b.rank() <= a.rank();
    if number && dtype.is_float() {
        // The exponent is not put on the device, since kernels specialize squares.
        let exponent = c.scalar(1)?.to_f64();
        match exponent {
            // Shorter floats would be rounded twice.
            3.0 if dtype.size() >= 4 => return one(((&a * &a)? * &a)?),
            _ if exponent == 2.0 || b.dtype() == dtype => return one(a.pow(exponent)?),
            _ => {}
        }
    }
    if b.dtype() == dtype {
        return one(a.pow(&b)?);
    }
    // The base's dtype might not represent the exponent; integers wrap at the end.
    let wide = if dtype.is_float() || b.dtype().is_float() {
        c.wide()
    } else {
        DType::I64
    };
    one(a.to_dtype(wide)?.pow(&b.to_dtype(wide)?)?.to_dtype(dtype)?)
}

fn many(c: &Call<'_>, op: BinaryOp) -> Results {
    one(fold(c, op)?)
}

fn fold(c: &Call<'_>, op: BinaryOp) -> Result<Tensor> {
    let operands = c.all()?;
    fits(c, &operands.iter().collect::<Vec<_>>())?;
    let mut operands = operands.into_iter();
    let first = operands.next().ok_or_else(|| malformed("there are no operands"))?;
    operands.try_fold(first, |so_far, x| so_far.binary(op, &x))
}

fn mean(c: &Call<'_>) -> Results {
    one((fold(c, BinaryOp::Add)? / c.inputs.len() as f64)?)
}

fn bitwise_not(c: &Call<'_>) -> Results {
    let x = c.x(0)?;
    // In two's complement −x − 1 inverts all bits of x; for unsigned types, the largest value minus x does.
    one(match c.element(0)?.range() {
        Some((0, high)) if high < i64::MAX => (high - &x)?,
        _ => (-1 - &x)?,
    })
}

fn bit_shift(c: &Call<'_>) -> Results {
    let (a, b) = pair(c)?;
    let (low, high) = c
        .element(0)?
        .range()
        .ok_or_else(|| malformed("only integers are shifted"))?;
    let left = match c.text("direction", "")? {
        "LEFT" => true,
        "RIGHT" => false,
        other => return Err(malformed(format!("the direction is {other:?}, not LEFT or RIGHT"))),
    };
    let width = match high {
        // The factor for a shift by 63 is negative. That is right for a product but not for a quotient; a right shift
        // leaves only the sign.
        i64::MAX => 63 + i64::from(left),
        _ => 64 - i64::from((high - low).leading_zeros()),
    };
    let (x, by) = (a.to_dtype(DType::I64)?, b.to_dtype(DType::I64)?);
    let outside = by.lt(0i64)?.logical_or(&by.ge(width)?)?;
    let factor = x.full_like(2i64)?.pow(&by.masked_fill(&outside, 0i64)?)?;
    let shifted = if left {
        (x * factor)?.masked_fill(&outside, 0i64)?
    } else {
        // A shift by all bits leaves only the sign.
        let sign = x.lt(0i64)?.to_dtype(DType::I64)?.neg()?;
        Tensor::where_(&outside, &sign, &x.div_rounded(&factor, RoundingMode::Floor)?)?
    };
    one(if a.dtype() == DType::U8 {
        (shifted % 256)?.to_dtype(DType::U8)?
    } else {
        shifted.to_dtype(a.dtype())?
    })
}

fn choose(c: &Call<'_>) -> Results {
    let (condition, a, b) = (c.x(0)?, c.x(1)?, c.x(2)?);
    fits(c, &[&a, &b, &condition])?;
    one(Tensor::where_(&condition, &a, &b)?)
}

fn clip(c: &Call<'_>) -> Results {
    let mut x = c.x(0)?;
    if c.version < 11 {
        let (low, high) = (c.opt_float("min")?, c.opt_float("max")?);
        return one(if low.is_some() || high.is_some() {
            x.clamp(low, high)?
        } else {
            x
        });
    }
    let shape = x.shape();
    if let Some(low) = c.opt(1)? {
        x = x.maximum(&low.reshape(())?)?;
    }
    if let Some(high) = c.opt(2)? {
        x = x.minimum(&high.reshape(())?)?;
    }
    one(x.reshape(shape)?)
}
