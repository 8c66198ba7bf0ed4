//! Products of bytes, and quantization.

use super::integers::{cut, integer_conv};
use super::wide::{is_narrow, widen};
use crate::{Axes, Backend, BinaryOp, CompareOp, ConvParams, DType, ReduceOp, Result, Scalar, Shape, UnaryOp};

/// The most products of numbers from -255 to 255 that f32 adds exactly: their sum must stay within 2²⁴.
const TERMS: usize = (1 << 24) / (255 * 255);

/// The float dtype in which products of bytes are added, and the most products at a time: f64 is exact for fewer than
/// 2³⁶, f32 for a few.
fn exact<B: Backend>(device: &B::Device) -> (DType, usize) {
    match B::capabilities(device).dtypes.contains(&DType::F64) {
        true => (DType::F64, usize::MAX),
        false => (DType::F32, TERMS),
    }
}

/// The sum in i32 of one part for each range of at most `most` of `count` positions. Parts are exact whole numbers; the
/// sum wraps, where a cast of floats would saturate.
fn summed<B: Backend>(
    count: usize,
    most: usize,
    part: impl Fn(usize, usize) -> Result<B::Tensor>,
) -> Result<B::Tensor> {
    let (mut total, mut start): (Option<B::Tensor>, usize) = (None, 0);
    loop {
        let len = most.min(count - start);
        // Some devices convolve in ways that round.
        let y = B::unary(UnaryOp::Round, &part(start, len)?)?;
        let y = B::cast(&B::cast(&y, DType::I64)?, DType::I32)?;
        let sum = match &total {
            None => y,
            Some(sum) => B::add(sum, &y)?,
        };
        start += len;
        if start >= count {
            return Ok(sum);
        }
        total = Some(sum);
    }
}

/// Bytes minus their zero points, which have `dims`.
fn centred<B: Backend>(x: &B::Tensor, zero: &B::Tensor, dims: &[usize], dtype: DType) -> Result<B::Tensor> {
    let zero = B::reshape(&B::cast(zero, dtype)?, Shape::new(dims)?)?;
    B::sub(&B::cast(x, dtype)?, &zero)
}

/// See [`Backend::matmul_u8`].
pub(super) fn matmul_u8<B: Backend>(
    a: &B::Tensor,
    b: &B::Tensor,
    zero_a: &B::Tensor,
    zero_b: &B::Tensor,
) -> Result<B::Tensor> {
    let (dtype, most) = exact::<B>(&B::device(a));
    let a = centred::<B>(a, zero_a, &[B::shape(zero_a).numel(), 1], dtype)?;
    let b = centred::<B>(b, zero_b, &[B::shape(zero_b).numel()], dtype)?;
    let (p, q) = (B::shape(&a).rank(), B::shape(&b).rank());
    summed::<B>(B::shape(&a)[p - 1], most, |start, len| {
        B::matmul(&cut::<B>(&a, p - 1, start, len)?, &cut::<B>(&b, q - 2, start, len)?)
    })
}

/// See [`Backend::conv_u8`].
pub(super) fn conv_u8<B: Backend>(
    x: &B::Tensor,
    weight: &B::Tensor,
    zero_x: &B::Tensor,
    zero_weight: &B::Tensor,
    params: &ConvParams,
) -> Result<B::Tensor> {
    let kernel = B::shape(weight);
    let (channels, taps) = (kernel[1], kernel[2..].iter().product::<usize>().max(1));
    let (dtype, most) = exact::<B>(&B::device(x));
    // The most channels at a time within this number of products.
    let most = most / taps;
    let whole = channels <= most;
    let dtype = if whole || (params.groups == 1 && most > 0) {
        dtype
    } else {
        DType::I32
    };
    let mut dims = vec![1; kernel.rank()];
    let x = centred::<B>(x, zero_x, &dims, dtype)?;
    dims[0] = B::shape(zero_weight).numel();
    let weight = centred::<B>(weight, zero_weight, &dims, dtype)?;
    if dtype.is_int() {
        return integer_conv::<B>(&x, &weight, params);
    }
    summed::<B>(channels, most, |start, len| {
        let part = |x: &B::Tensor| {
            if whole {
                Ok(x.clone())
            } else {
                cut::<B>(x, 1, start, len)
            }
        };
        B::conv(&part(&x)?, &part(&weight)?, None, None, None, params)
    })
}

/// Reshapes `y`, one number or one for each position of an axis, so that it broadcasts against `x`.
fn spread<B: Backend>(x: &B::Tensor, y: &B::Tensor, axis: usize) -> Result<B::Tensor> {
    let mut dims = vec![1; B::shape(x).rank()];
    if let Some(extent) = dims.get_mut(axis) {
        *extent = B::shape(y).numel();
    }
    B::reshape(y, Shape::new(&dims)?)
}

/// Each number rounded to a whole number, plus a zero point, clamped to a byte.
fn bytes<B: Backend>(x: &B::Tensor, zero: &B::Tensor) -> Result<B::Tensor> {
    let y = B::unary(UnaryOp::Round, x)?;
    let y = B::add(&y, &B::cast(&spread::<B>(x, zero, 0)?, B::dtype(x))?)?;
    let y = B::binary_scalar(BinaryOp::Maximum, &y, Scalar::Float(0.0), false)?;
    let y = B::binary_scalar(BinaryOp::Minimum, &y, Scalar::Float(255.0), false)?;
    B::cast(&y, DType::U8)
}

/// Sums of products as u8, with scale and bias for each position of an axis.
fn requantized<B: Backend>(
    sums: &B::Tensor,
    (scale, zero, bias): (&B::Tensor, &B::Tensor, Option<&B::Tensor>),
    axis: usize,
) -> Result<B::Tensor> {
    let sums = match bias {
        Some(bias) => B::add(sums, &spread::<B>(sums, bias, axis)?)?,
        None => sums.clone(),
    };
    bytes::<B>(&rescaled::<B>(&sums, scale, None, axis)?, zero)
}

/// Sums of products as floats, likewise. The scale's dtype is f32, except where results are judged by wider ones.
fn rescaled<B: Backend>(
    sums: &B::Tensor,
    scale: &B::Tensor,
    bias: Option<&B::Tensor>,
    axis: usize,
) -> Result<B::Tensor> {
    let y = B::mul(&B::cast(sums, B::dtype(scale))?, &spread::<B>(sums, scale, axis)?)?;
    match bias {
        Some(bias) => B::add(&y, &spread::<B>(sums, bias, axis)?),
        None => Ok(y),
    }
}

/// See [`Backend::matmul_requantize_u8`].
pub(super) fn matmul_requantize_u8<B: Backend>(
    a: &B::Tensor,
    b: &B::Tensor,
    [zero_a, zero_b]: [&B::Tensor; 2],
    scale: &B::Tensor,
    zero: &B::Tensor,
    bias: Option<&B::Tensor>,
) -> Result<B::Tensor> {
    let sums = B::matmul_u8(a, b, zero_a, zero_b)?;
    let last = B::shape(&sums).rank() - 1;
    requantized::<B>(&sums, (scale, zero, bias), last)
}

/// See [`Backend::matmul_rescale_u8`].
pub(super) fn matmul_rescale_u8<B: Backend>(
    a: &B::Tensor,
    b: &B::Tensor,
    [zero_a, zero_b]: [&B::Tensor; 2],
    scale: &B::Tensor,
    bias: Option<&B::Tensor>,
) -> Result<B::Tensor> {
    let sums = B::matmul_u8(a, b, zero_a, zero_b)?;
    let last = B::shape(&sums).rank() - 1;
    match bias.filter(|bias| B::dtype(bias) == DType::I32) {
        Some(bias) => {
            let sums = B::add(&sums, &spread::<B>(&sums, bias, last)?)?;
            rescaled::<B>(&sums, scale, None, last)
        }
        None => rescaled::<B>(&sums, scale, bias, last),
    }
}

/// See [`Backend::conv_requantize_u8`].
pub(super) fn conv_requantize_u8<B: Backend>(
    x: &B::Tensor,
    weight: &B::Tensor,
    [zero_x, zero_weight]: [&B::Tensor; 2],
    scale: &B::Tensor,
    zero: &B::Tensor,
    bias: Option<&B::Tensor>,
    params: &ConvParams,
) -> Result<B::Tensor> {
    let sums = B::conv_u8(x, weight, zero_x, zero_weight, params)?;
    requantized::<B>(&sums, (scale, zero, bias), 1)
}

/// See [`Backend::quantize_u8`].
pub(super) fn quantize_u8<B: Backend>(x: &B::Tensor, scale: &B::Tensor, zero: &B::Tensor) -> Result<B::Tensor> {
    let x = B::cast(x, B::dtype(scale))?;
    bytes::<B>(&B::div(&x, &spread::<B>(&x, scale, 0)?)?, zero)
}

/// See [`Backend::dynamic_quantize_u8`].
pub(super) fn dynamic_quantize_u8<B: Backend>(x: &B::Tensor) -> Result<(B::Tensor, B::Tensor, B::Tensor)> {
    let dtype = DType::F32;
    let x = B::cast(x, dtype)?;
    let (shape, device) = (B::shape(&x), B::device(&x));
    let number = |value: f64| B::full(Shape::from([1]), Scalar::Float(value), dtype, &device);
    let zeros = B::full(shape, Scalar::Float(0.0), dtype, &device)?;
    let flat = B::select(&B::unary(UnaryOp::IsNan, &x)?, &zeros, &x)?;
    let flat = B::reshape(&flat, Shape::from([shape.numel()]))?;
    let end = |reduce, cut| {
        let end = B::reduce(reduce, &flat, Axes::one(0), true)?;
        B::binary_scalar(cut, &end, Scalar::Float(0.0), false)
    };
    let low = end(ReduceOp::Min, BinaryOp::Minimum)?;
    let high = end(ReduceOp::Max, BinaryOp::Maximum)?;
    let steps = B::div(&B::sub(&high, &low)?, &number(255.0)?)?;
    let scale = B::select(&B::compare(CompareOp::Eq, &high, &low)?, &number(1.0)?, &steps)?;
    let zero = bytes::<B>(&B::div(&B::sub(&number(0.0)?, &low)?, &scale)?, &number(0.0)?)?;
    Ok((B::quantize_u8(&x, &scale, &zero)?, scale, zero))
}

/// See [`Backend::dequantize_u8`].
pub(super) fn dequantize_u8<B: Backend>(x: &B::Tensor, scale: &B::Tensor, zero: &B::Tensor) -> Result<B::Tensor> {
    let dims = vec![1; B::shape(x).rank()];
    B::mul(
        &centred::<B>(x, zero, &dims, B::dtype(scale))?,
        &spread::<B>(x, scale, 0)?,
    )
}

/// See [`Backend::lookup_u8`].
pub(super) fn lookup_u8<B: Backend>(x: &B::Tensor, table: &B::Tensor) -> Result<B::Tensor> {
    let shape = B::shape(x);
    let index = B::reshape(&B::cast(x, DType::I64)?, Shape::from([shape.numel()]))?;
    B::reshape(&B::index_select(table, 0, &index)?, shape)
}

/// See [`Backend::binary_requantize_u8`].
pub(super) fn binary_requantize_u8<B: Backend>(
    op: BinaryOp,
    a: &B::Tensor,
    b: &B::Tensor,
    zeros: [&B::Tensor; 2],
    scales: [&B::Tensor; 2],
    zero: &B::Tensor,
) -> Result<B::Tensor> {
    let part = |x: &B::Tensor, zero| centred::<B>(x, zero, &vec![1; B::shape(x).rank()], B::dtype(scales[0]));
    let (a, b) = (part(a, zeros[0])?, part(b, zeros[1])?);
    let scaled = |x: &B::Tensor, scale| B::mul(x, &spread::<B>(x, scale, 0)?);
    let y = match op {
        BinaryOp::Mul => scaled(&B::mul(&a, &b)?, &B::mul(scales[0], scales[1])?)?,
        _ => B::binary(op, &scaled(&a, scales[0])?, &scaled(&b, scales[1])?)?,
    };
    bytes::<B>(&y, zero)
}

/// See [`Backend::fake_quantize`].
pub(super) fn fake_quantize<B: Backend>(
    x: &B::Tensor,
    scale: &B::Tensor,
    zero: &B::Tensor,
    bounds: [i32; 2],
    axis: usize,
) -> Result<B::Tensor> {
    if is_narrow::<B>(x) {
        let y = fake_quantize::<B>(&widen::<B>(x)?, &widen::<B>(scale)?, &widen::<B>(zero)?, bounds, axis)?;
        return B::cast(&y, B::dtype(x));
    }
    let [low, high] = bounds.map(|bound| Scalar::Float(f64::from(bound)));
    let (scale, zero) = (spread::<B>(x, scale, axis)?, spread::<B>(x, zero, axis)?);
    let q = B::add(&B::unary(UnaryOp::Round, &B::div(x, &scale)?)?, &zero)?;
    // The lower bound for NaN, too.
    let least = B::full(B::shape(&q), low, B::dtype(&q), &B::device(&q))?;
    let q = B::select(&B::compare(CompareOp::Gt, &q, &least)?, &q, &least)?;
    let q = B::binary_scalar(BinaryOp::Minimum, &q, high, false)?;
    B::mul(&B::sub(&q, &zero)?, &scale)
}
