//! Products of matrices.

use polygrad_core::{DType, Error, Result, Shape};
use polygrad_tensor::{Tensor, inference};
use smallvec::smallvec;

use super::contraction;
use super::row::{Row, rows};
use super::whole::{self, Bytes, Pair};
use crate::graph::{ElementType, malformed};
use crate::import::call::{Call, Results, one};
use crate::import::value::Value;

rows! {
    Row::new("MatMul", 1, |c| one(product(c, &c.x(0)?, &c.x(1)?)?)).like(0);
    Row::new("Gemm", 7, gemm).like(0);
    Row::new("Einsum", 12, einsum).like(0);
    Row::new("MatMulInteger", 10, matmul_integer);
    Row::new("QLinearMatMul", 10, qlinear_matmul);
    Row::new("Det", 11, det);
}

/// A product that does not exceed the limits.
pub(crate) fn product(c: &Call<'_>, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let (left, right) = (a.shape(), b.shape());
    if left.rank() >= 2 && right.rank() >= 2 {
        let mut dims = Shape::new(&left[..left.rank() - 2])?
            .broadcast(&Shape::new(&right[..right.rank() - 2])?)?
            .to_vec();
        dims.extend([left[left.rank() - 2], right[right.rank() - 1]]);
        c.reserve(&dims, a.dtype())?;
    }
    a.matmul(b)
}

/// Fails if it is not a matrix, as Gemm requires.
pub(crate) fn matrices(x: &Tensor) -> Result<()> {
    if x.rank() == 2 {
        return Ok(());
    }
    Err(Error::shape(format!("{} is no matrix", x.shape())))
}

pub(super) fn gemm(c: &Call<'_>) -> Results {
    let turn = |x: Tensor, name: &str| {
        matrices(&x)?;
        if c.flag(name, false)? { x.t() } else { Ok(x) }
    };
    let (a, b, bias) = (turn(c.x(0)?, "transA")?, turn(c.x(1)?, "transB")?, c.opt(2)?);
    let (alpha, beta) = (c.float("alpha", 1.0)?, c.float("beta", 1.0)?);
    if alpha == 1.0 && bias.is_none() {
        return one(product(c, &a, &b)?);
    }
    // The product without the factor may exceed the range of f16.
    let dtype = a.dtype();
    let wide = |x: &Tensor| x.to_dtype(x.dtype().wide());
    let y = scaled(c, product(c, &wide(&a)?, &wide(&b)?)?, alpha)?;
    let y = match bias {
        // If beta is 0 its values do not matter, not even NaN.
        Some(bias) if beta != 0.0 => (&y + scaled(c, wide(&bias)?.expand(y.shape())?, beta)?)?,
        _ => y,
    };
    one(y.to_dtype(dtype)?)
}

/// A matrix times a factor, in its own dtype: an integer matrix times a whole number wraps.
pub(super) fn scaled(c: &Call<'_>, x: Tensor, factor: f64) -> Result<Tensor> {
    let dtype = x.dtype();
    if factor == 1.0 {
        Ok(x)
    } else if dtype.is_float() {
        x * factor
    } else if factor.fract() == 0.0 && factor.abs() < i64::MAX as f64 {
        x * (factor as i64)
    } else {
        (x.to_dtype(c.wide())? * factor)?.to_dtype(dtype)
    }
}

fn einsum(c: &Call<'_>) -> Results {
    let operands = c.all()?;
    let equation = c.text("equation", "")?;
    let shapes: Vec<_> = operands.iter().map(Tensor::shape).collect();
    contraction::check(c, equation, &shapes)?;
    let y = Tensor::einsum(equation, &operands.iter().collect::<Vec<_>>())?;
    // Sums of narrower integers are i64.
    one(match operands.first() {
        Some(first) => y.to_dtype(first.dtype())?,
        None => y,
    })
}

/// The product of two operands of whole numbers minus their zero points, which broadcast along rows of the left, along
/// columns of the right, as i32, which wraps.
pub(crate) fn whole_product(c: &Call<'_>, operands: [usize; 2], zeros: [usize; 2]) -> Result<Tensor> {
    if let Some(Pair(x, y)) = byte_operands(c, operands, zeros)? {
        return inference::matmul_u8(&x.values, &y.values, [&x.zero, &y.zero]);
    }
    let ([a, b], [left, right]) = (operands, zeros);
    let by_row = match c.opt(left)? {
        Some(zero) if zero.rank() == 1 && zero.numel() != 1 => Some(zero.unsqueeze(-1)?),
        other => other,
    };
    product(c, &whole::centred(c, a, by_row)?, &whole::centred(c, b, c.opt(right)?)?)
}

/// Operands of [`whole_product`], if they are stacks of matrices of bytes with a zero point for each row or column at
/// most. Fails if there is no room for the product.
pub(crate) fn byte_operands(c: &Call<'_>, [a, b]: [usize; 2], [left, right]: [usize; 2]) -> Result<Option<Pair>> {
    let (p, q) = (c.shape(a)?, c.shape(b)?);
    let (&[ref outer @ .., m, _], &[ref others @ .., _, n]) = (p.dims(), q.dims()) else {
        return Ok(None);
    };
    let (Some(x), Some(y)) = (Bytes::read(c, a, left, m)?, Bytes::read(c, b, right, n)?) else {
        return Ok(None);
    };
    let lead = Shape::new(outer)?.broadcast(&Shape::new(others)?)?;
    c.reserve(&[lead.dims(), &[m, n]].concat(), DType::I32)?;
    Ok(Some(Pair(x, y)))
}

fn matmul_integer(c: &Call<'_>) -> Results {
    one(whole_product(c, [0, 1], [2, 3])?)
}

fn qlinear_matmul(c: &Call<'_>) -> Results {
    let columns = c.shape(3)?.last().copied().unwrap_or(1);
    if let Some(scale) = whole::rescale(c, [1, 4], Some(6), columns)?
        && let Some(pair) = byte_operands(c, [0, 3], [2, 5])?
        && let Some(value) = pair.quantized(&scale, None, (c, 7))?
    {
        return Ok(smallvec![value]);
    }
    let y = whole_product(c, [0, 3], [2, 5])?;
    let scale = |i| c.x(i)?.to_dtype(c.wide());
    let y = (((y.to_dtype(c.wide())? * scale(1)?)? * scale(4)?)? / scale(6)?)?;
    let element = c.element(7)?;
    Ok(smallvec![requantized(&y, &c.x(7)?, element)?])
}

/// Rounds, adds the zero point and clamps to the range of a type.
pub(crate) fn requantized(y: &Tensor, zero: &Tensor, element: ElementType) -> Result<Value> {
    let eight = matches!(element, ElementType::U8 | ElementType::I8);
    if eight && y.dtype() == DType::F32 && zero.numel() == 1 && !y.is_tracked() {
        let one = Tensor::full([1], 1.0, (&y.device(), DType::F32))?;
        let zero = whole::bytes(&zero.reshape([1])?, element)?.to_dtype(DType::U8)?;
        return whole::numbers(inference::quantize_u8(y, &one, &zero)?, element);
    }
    let (low, high) = element
        .range()
        .ok_or_else(|| malformed(format!("a zero point of {element}")))?;
    let y = (y.round()? + zero.to_dtype(y.dtype())?)?.clamp(Some(low as f64), Some(high as f64))?;
    Ok(Value::from(y.to_dtype(element.dtype()?)?).with_element(element))
}

fn det(c: &Call<'_>) -> Results {
    let host = c.host(0)?;
    let shape = *host.shape();
    let [outer @ .., n, m] = shape.dims() else {
        return Err(Error::shape(format!("{shape} is no matrix")));
    };
    if n != m {
        return Err(Error::shape(format!("{shape} holds no square matrices")));
    }
    let values = c.floats(0)?;
    let count: usize = outer.iter().product();
    let mut dets = c.list(count)?;
    for i in 0..count {
        let mut matrix = c.list(n * n)?;
        matrix.extend_from_slice(&values[i * n * n..][..n * n]);
        dets.push(determinant(matrix, *n));
    }
    one(c.make_as(dets, outer, host.dtype())?)
}

/// By Gaussian elimination with pivoting.
fn determinant(mut a: Vec<f64>, n: usize) -> f64 {
    let mut det = 1.0;
    for column in 0..n {
        let pivot = (column..n).max_by(|&i, &j| a[i * n + column].abs().total_cmp(&a[j * n + column].abs()));
        let Some(pivot) = pivot.filter(|&i| a[i * n + column] != 0.0) else {
            return 0.0;
        };
        if pivot != column {
            (0..n).for_each(|k| a.swap(pivot * n + k, column * n + k));
            det = -det;
        }
        let top = a[column * n + column];
        det *= top;
        for row in column + 1..n {
            let factor = a[row * n + column] / top;
            (column..n).for_each(|k| a[row * n + k] -= factor * a[column * n + k]);
        }
    }
    det
}
