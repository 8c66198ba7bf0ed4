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
    let (place, extent) = place(x, axis).map_err(fail)?;
    of_dtypes(&operands, &[DType::I32, DType::F32, DType::U8, DType::I32])
        .and_then(|()| one_or(scale, extent))
        .and_then(|()| one_or(zero, 1))
        .and_then(|()| bias.map_or(Ok(()), |bias| one_or(bias, extent)))
        .map_err(fail)?;
    let value = B::requantize_u8(&x.value, &scale.value, &zero.value, bias.map(|bias| &bias.value), place);
    Ok(cut(value.map_err(fail)?, &operands, "requantize_u8"))
}

/// [`requantize_u8`] of what [`conv_u8`] gives, with scale and bias for each output.
///
/// # Errors
/// When shapes, dtypes or devices do not fit.
pub fn conv_requantize_u8<B: Backend>(
    x: &Tensor<B>,
    weight: &Tensor<B>,
    zeros: [&Tensor<B>; 2],
    (scale, zero, bias): (&Tensor<B>, &Tensor<B>, Option<&Tensor<B>>),
    params: &ConvParams,
) -> Result<Tensor<B>> {
    let mut operands = vec![x, weight, zeros[0], zeros[1], scale, zero];
    operands.extend(bias);
    let fail = |e| context(e, "conv_requantize_u8", &operands);
    let shape = params.output_shape(&x.shape(), &weight.shape()).map_err(fail)?;
    let outputs = weight.shape()[0];
    alike(&operands[..4])
        .and_then(|()| of_dtypes(&operands[4..], &[DType::F32, DType::U8, DType::I32]))
        .and_then(|()| x.check_device(scale))
        .and_then(|()| one_or(zeros[0], 1))
        .and_then(|()| one_or(zeros[1], outputs))
        .and_then(|()| one_or(scale, outputs))
        .and_then(|()| one_or(zero, 1))
        .and_then(|()| bias.map_or(Ok(()), |bias| one_or(bias, outputs)))
        .map_err(fail)?;
    let zeros = zeros.map(|zero| &zero.value);
    let (scale, zero, bias) = (&scale.value, &zero.value, bias.map(|bias| &bias.value));
    let value = B::conv_requantize_u8(&x.value, &weight.value, zeros, scale, zero, bias, params);
    flops::add_products(shape.numel(), weight.shape()[1..].iter().product());
    Ok(cut(value.map_err(fail)?, &operands, "conv_requantize_u8"))
}

/// Sums of products as f32: `x · scale + bias`, where `x` is i32; scale and bias are f32, `[1]`, or one for each
/// position of an axis.
///
/// # Errors
/// When shapes, dtypes or devices do not fit, or there is no such axis.
pub fn rescale_i32<B: Backend>(
    x: &Tensor<B>,
    scale: &Tensor<B>,
    bias: Option<&Tensor<B>>,
    axis: isize,
) -> Result<Tensor<B>> {
    let mut operands = vec![x, scale];
    operands.extend(bias);
    let fail = |e| context(e, "rescale_i32", &operands);
    let (place, extent) = place(x, axis).map_err(fail)?;
    of_dtypes(&operands, &[DType::I32, DType::F32, DType::F32])
        .and_then(|()| one_or(scale, extent))
        .and_then(|()| bias.map_or(Ok(()), |bias| one_or(bias, extent)))
        .map_err(fail)?;
    let value = B::rescale_i32(&x.value, &scale.value, bias.map(|bias| &bias.value), place);
    Ok(cut(value.map_err(fail)?, &operands, "rescale_i32"))
}

/// Floats as u8: `x / scale + zero`, where the quotient is rounded to a whole number, halves to even, and what lies
/// outside 0 to 255 is cut off; NaN is 0. `scale` is f32, as which `x` is read, `zero` is u8; both are `[1]`.
///
/// # Errors
/// When shapes, dtypes or devices do not fit.
pub fn quantize_u8<B: Backend>(x: &Tensor<B>, scale: &Tensor<B>, zero: &Tensor<B>) -> Result<Tensor<B>> {
    let operands = [x, scale, zero];
    let fail = |e| context(e, "quantize_u8", &operands);
    if !x.dtype().is_float() {
        return Err(fail(Error::dtype(format!(
            "{} stands where a float is needed",
            x.dtype()
        ))));
    }
    of_dtypes(&operands, &[x.dtype(), DType::F32, DType::U8])
        .and_then(|()| one_or(scale, 1))
        .and_then(|()| one_or(zero, 1))
        .map_err(fail)?;
    let value = B::quantize_u8(&x.value, &scale.value, &zero.value).map_err(fail)?;
    Ok(cut(value, &operands, "quantize_u8"))
}

/// Numbers of u8 as f32: `(x - zero) · scale`, where `scale` is f32 and `zero` is u8; both are `[1]`.
///
/// # Errors
/// When shapes, dtypes or devices do not fit.
pub fn dequantize_u8<B: Backend>(x: &Tensor<B>, scale: &Tensor<B>, zero: &Tensor<B>) -> Result<Tensor<B>> {
    let operands = [x, scale, zero];
    let fail = |e| context(e, "dequantize_u8", &operands);
    of_dtypes(&operands, &[DType::U8, DType::F32, DType::U8])
        .and_then(|()| one_or(scale, 1))
        .and_then(|()| one_or(zero, 1))
        .map_err(fail)?;
    let value = B::dequantize_u8(&x.value, &scale.value, &zero.value).map_err(fail)?;
    Ok(cut(value, &operands, "dequantize_u8"))
}

/// An axis, which may be counted from the end, and its extent.
fn place<B: Backend>(x: &Tensor<B>, axis: isize) -> Result<(usize, usize)> {
    let shape = x.shape();
    let place = if axis < 0 { axis + shape.rank() as isize } else { axis };
    let place = usize::try_from(place).ok().filter(|&place| place < shape.rank());
    let place = place.ok_or_else(|| Error::out_of_range(format!("there is no axis {axis} in {shape}")))?;
    Ok((place, shape[place]))
}

/// Fails unless the operands have these dtypes and are on one device.
fn of_dtypes<B: Backend>(operands: &[&Tensor<B>], dtypes: &[DType]) -> Result<()> {
    for (operand, dtype) in operands.iter().zip(dtypes) {
        if operand.dtype() != *dtype {
            return Err(Error::dtype(format!(
                "{} stands where {dtype} is needed",
                operand.dtype()
            )));
        }
        operands[0].check_device(operand)?;
    }
    Ok(())
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
