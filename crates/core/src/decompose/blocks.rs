//! Block-quantized weights.

use crate::{Axes, Backend, BinaryOp, BlockScheme, DType, Result, Scalar, Shape, UnaryOp};

/// See [`Backend::quantized_linear`]. Dtypes narrower than f32 are computed in f32, and rounded once.
pub(super) fn quantized_linear<B: Backend>(
    x: &B::Tensor,
    weight: &B::Tensor,
    scales: &B::Tensor,
    zeros: &B::Tensor,
    scheme: BlockScheme,
    transposed: bool,
) -> Result<B::Tensor> {
    let dtype = B::dtype(x);
    let mut weight = dequantized::<B>(weight, scales, zeros, scheme, dtype.wide())?;
    if transposed {
        weight = B::permute(&weight, Axes::new([1, 0])?)?;
    }
    B::cast(&B::linear(&B::cast(x, dtype.wide())?, &weight, None, None)?, dtype)
}

/// A part of a weight in blocks with one row after another, if it is [interleaved](BlockScheme); else as it is.
///
/// # Errors
/// Those of the ops that it is made of.
pub fn deinterleaved<B: Backend>(part: &B::Tensor) -> Result<B::Tensor> {
    let &[groups, columns, wide] = B::shape(part).dims() else {
        return Ok(part.clone());
    };
    let (rows, word) = (BlockScheme::ROWS, wide / BlockScheme::ROWS);
    let x = B::reshape(part, Shape::new(&[groups, columns, rows, word])?)?;
    let x = B::permute(&x, Axes::new([0, 2, 1, 3])?)?;
    B::reshape(&x, Shape::new(&[groups * rows, columns * word])?)
}

/// The weight of [`Backend::quantized_linear`], `[n, k]`, as f32 or f64.
///
/// # Errors
/// Those of the ops that it is made of.
pub fn dequantized<B: Backend>(
    weight: &B::Tensor,
    scales: &B::Tensor,
    zeros: &B::Tensor,
    scheme: BlockScheme,
    dtype: DType,
) -> Result<B::Tensor> {
    let (weight, scales) = (&deinterleaved::<B>(weight)?, &deinterleaved::<B>(scales)?);
    let zeros = &deinterleaved::<B>(zeros)?;
    let (rows, bytes, blocks) = (B::shape(weight)[0], B::shape(weight)[1], B::shape(scales)[1]);
    let mut numbers = B::cast(weight, dtype)?;
    if scheme.bits() == 4 {
        let by = |op, x: &B::Tensor| B::binary_scalar(op, x, Scalar::Float(16.0), false);
        let high = B::unary(UnaryOp::Floor, &by(BinaryOp::Div, &numbers)?)?;
        let low = B::sub(&numbers, &by(BinaryOp::Mul, &high)?)?;
        let apart = |x: &B::Tensor| B::reshape(x, Shape::new(&[rows, bytes, 1])?);
        numbers = B::concat(&[&apart(&low)?, &apart(&high)?], 2)?;
    }
    let numbers = B::reshape(&numbers, Shape::new(&[rows, blocks, scheme.size()])?)?;
    let spread = |x: &B::Tensor| {
        let shape = match B::shape(x).rank() {
            1 => Shape::from([1, 1, 1]),
            _ => Shape::new(&[rows, blocks, 1])?,
        };
        B::reshape(&B::cast(x, dtype)?, shape)
    };
    let values = B::mul(&B::sub(&numbers, &spread(zeros)?)?, &spread(scales)?)?;
    B::reshape(&values, Shape::new(&[rows, blocks * scheme.size()])?)
}
