//! Products of bytes, for code that runs quantized models.

use polygrad_core::{Backend, ConvParams, DType, Error, Result, Shape};

use super::context;
use crate::Tensor;
use crate::flops;
use crate::graph::cut;

/// Products of `a […, m, k]` and `b […, k, n]` of u8 minus their zero points, whose leading axes broadcast: i32, which
/// wraps. Zero points are u8, one for all, `[1]`, or for each row of `a`, `[m]`, and each column of `b`, `[n]`. An i8
/// is held as the byte that is 128 more, and so is its zero point.
///
/// # Errors
/// When shapes, dtypes or devices do not fit.
pub fn matmul_u8<B: Backend>(a: &Tensor<B>, b: &Tensor<B>, zeros: [&Tensor<B>; 2]) -> Result<Tensor<B>> {
    let operands = [a, b, zeros[0], zeros[1]];
    let fail = |e| context(e, "matmul_u8", &operands);
    let (left, right) = (a.shape(), b.shape());
    let (&[ref lead @ .., m, k], &[ref others @ .., rows, n]) = (left.dims(), right.dims()) else {
        return Err(fail(Error::shape("takes matrices […, m, k] and […, k, n]")));
    };
    if k != rows {
        return Err(fail(Error::shape(format!(
            "{k} columns on the left, {rows} rows on the right"
        ))));
    }
    Shape::new(lead)
        .and_then(|lead| lead.broadcast(&Shape::new(others)?))
        .and_then(|_| one_or(zeros[0], m))
        .and_then(|()| one_or(zeros[1], n))
        .and_then(|()| alike(&operands))
        .map_err(fail)?;
    let [zero_a, zero_b] = zeros.map(|zero| &zero.value);
    let value = B::matmul_u8(&a.value, &b.value, zero_a, zero_b).map_err(fail)?;
    flops::add_products(B::shape(&value).numel(), k);
    Ok(cut(value, &operands, "matmul_u8"))
}

/// [`Tensor::conv`] of u8, as [`matmul_u8`]: one zero point `[1]` for the input, which is also what its border is, and
/// one for the weight, `[1]`, or for each of its outputs, `[O]`.
///
/// # Errors
/// When shapes, dtypes or devices do not fit.
pub fn conv_u8<B: Backend>(
    x: &Tensor<B>,
    weight: &Tensor<B>,
    zeros: [&Tensor<B>; 2],
    params: &ConvParams,
) -> Result<Tensor<B>> {
    let operands = [x, weight, zeros[0], zeros[1]];
    let fail = |e| context(e, "conv_u8", &operands);
    let shape = params.output_shape(&x.shape(), &weight.shape()).map_err(fail)?;
    one_or(zeros[0], 1)
        .and_then(|()| one_or(zeros[1], weight.shape()[0]))
        .and_then(|()| alike(&operands))
        .map_err(fail)?;
    let [zero_x, zero_weight] = zeros.map(|zero| &zero.value);
    let value = B::conv_u8(&x.value, &weight.value, zero_x, zero_weight, params).map_err(fail)?;
    flops::add_products(shape.numel(), weight.shape()[1..].iter().product());
    Ok(cut(value, &operands, "conv_u8"))
}

/// Sums of products as u8: `(x + bias) · scale + zero`, where `x` and the bias are i32, the product with `scale`, which
/// is f32, is rounded to a whole number, halves to even, and what lies outside 0 to 255 is cut off. `zero` is u8,
/// `[1]`; scale and bias are `[1]`, or one for each position of an axis.
///
/// # Errors
/// When shapes, dtypes or devices do not fit, or there is no such axis.
pub fn requantize_u8<B: Backend>(
    x: &Tensor<B>,
    scale: &Tensor<B>,
    zero: &Tensor<B>,
    bias: Option<&Tensor<B>>,
    axis: isize,
) -> Result<Tensor<B>> {
    let mut operands = vec![x, scale, zero];
    operands.extend(bias);
    let fail = |e| context(e, "requantize_u8", &operands);
    let shape = x.shape();
    let place = if axis < 0 { axis + shape.rank() as isize } else { axis };
    let place = usize::try_from(place).ok().filter(|&place| place < shape.rank());
    let place = place.ok_or_else(|| fail(Error::out_of_range(format!("there is no axis {axis} in {shape}"))))?;
    for (operand, dtype) in operands.iter().zip([DType::I32, DType::F32, DType::U8, DType::I32]) {
        if operand.dtype() != dtype {
            return Err(fail(Error::dtype(format!(
                "{} stands where {dtype} is needed",
                operand.dtype()
            ))));
        }
        x.check_device(operand).map_err(fail)?;
    }
    one_or(scale, shape[place])
        .and_then(|()| one_or(zero, 1))
        .and_then(|()| bias.map_or(Ok(()), |bias| one_or(bias, shape[place])))
        .map_err(fail)?;
    let value = B::requantize_u8(&x.value, &scale.value, &zero.value, bias.map(|bias| &bias.value), place);
    Ok(cut(value.map_err(fail)?, &operands, "requantize_u8"))
}

/// Fails unless this is one number, or one for each of `count`.
fn one_or<B: Backend>(x: &Tensor<B>, count: usize) -> Result<()> {
    let shape = x.shape();
    if shape.dims() == [1] || shape.dims() == [count] {
        return Ok(());
    }
    Err(Error::shape(format!("{shape} is neither [1] nor [{count}]")))
}

/// Fails unless all are bytes on one device.
fn alike<B: Backend>(operands: &[&Tensor<B>]) -> Result<()> {
    for operand in operands {
        if operand.dtype() != DType::U8 {
            let error = Error::dtype(format!("{} stands where bytes are needed", operand.dtype()));
            return Err(error.with_hint("convert it to u8; hold an i8 as the byte that is 128 more"));
        }
        operands[0].check_device(operand)?;
    }
    Ok(())
}
