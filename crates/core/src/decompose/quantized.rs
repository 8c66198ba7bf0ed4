//! Products of bytes, and what follows them.

use super::integers::{cut, integer_conv};
use super::wide::{is_narrow, widen};
use crate::{Backend, BinaryOp, ConvParams, DType, Result, Scalar, Shape, UnaryOp};

/// Numbers from -255 to 255 whose products f32 adds up exactly: as many as there are in 2²⁴.
const TERMS: usize = (1 << 24) / (255 * 255);

/// The float in which products of bytes are added, and how many of them at a time: f64 holds all sums of fewer than
/// 2³⁶, f32 a few.
fn exact<B: Backend>(device: &B::Device) -> (DType, usize) {
    match B::capabilities(device).dtypes.contains(&DType::F64) {
        true => (DType::F64, usize::MAX),
        false => (DType::F32, TERMS),
    }
}

/// The sum of parts as i32, one for each stretch of at most `most` of `count` places: exact whole numbers, which wrap
/// where a cast of floats would stop at the largest.
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
    // As many channels at a time as make so many products.
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

/// A number for each position of an axis, or one, so that it broadcasts against `x`.
fn spread<B: Backend>(x: &B::Tensor, y: &B::Tensor, axis: usize) -> Result<B::Tensor> {
    let mut dims = vec![1; B::shape(x).rank()];
    if let Some(extent) = dims.get_mut(axis) {
        *extent = B::shape(y).numel();
    }
    B::reshape(y, Shape::new(&dims)?)
}

/// The byte nearest to each number plus a zero point.
fn bytes<B: Backend>(x: &B::Tensor, zero: &B::Tensor) -> Result<B::Tensor> {
    let y = B::unary(UnaryOp::Round, x)?;
    let y = B::add(&y, &B::cast(&spread::<B>(x, zero, 0)?, B::dtype(x))?)?;
    let y = B::binary_scalar(BinaryOp::Maximum, &y, Scalar::Float(0.0), false)?;
    let y = B::binary_scalar(BinaryOp::Minimum, &y, Scalar::Float(255.0), false)?;
    B::cast(&y, DType::U8)
}

/// See [`Backend::requantize_u8`].
pub(super) fn requantize_u8<B: Backend>(
    x: &B::Tensor,
    scale: &B::Tensor,
    zero: &B::Tensor,
    bias: Option<&B::Tensor>,
    axis: usize,
) -> Result<B::Tensor> {
    let x = match bias {
        Some(bias) => B::add(x, &spread::<B>(x, bias, axis)?)?,
        None => x.clone(),
    };
    bytes::<B>(&rescale_i32::<B>(&x, scale, None, axis)?, zero)
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
    B::requantize_u8(&sums, scale, zero, bias, 1)
}

/// See [`Backend::quantize_u8`].
pub(super) fn quantize_u8<B: Backend>(x: &B::Tensor, scale: &B::Tensor, zero: &B::Tensor) -> Result<B::Tensor> {
    let x = B::cast(x, B::dtype(scale))?;
    bytes::<B>(&B::div(&x, &spread::<B>(&x, scale, 0)?)?, zero)
}

/// See [`Backend::dequantize_u8`].
pub(super) fn dequantize_u8<B: Backend>(x: &B::Tensor, scale: &B::Tensor, zero: &B::Tensor) -> Result<B::Tensor> {
    let dims = vec![1; B::shape(x).rank()];
    B::mul(
        &centred::<B>(x, zero, &dims, B::dtype(scale))?,
        &spread::<B>(x, scale, 0)?,
    )
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
    let q = B::binary_scalar(BinaryOp::Maximum, &q, low, false)?;
    let q = B::binary_scalar(BinaryOp::Minimum, &q, high, false)?;
    B::mul(&B::sub(&q, &zero)?, &scale)
}

/// See [`Backend::rescale_i32`].
pub(super) fn rescale_i32<B: Backend>(
    x: &B::Tensor,
    scale: &B::Tensor,
    bias: Option<&B::Tensor>,
    axis: usize,
) -> Result<B::Tensor> {
    // The scale's dtype is f32, except where results are judged by wider ones.
    let y = B::mul(&B::cast(x, B::dtype(scale))?, &spread::<B>(x, scale, axis)?)?;
    match bias {
        Some(bias) => B::add(&y, &spread::<B>(x, bias, axis)?),
        None => Ok(y),
    }
}
