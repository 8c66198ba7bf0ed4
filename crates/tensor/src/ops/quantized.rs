//! Products of bytes, for code that runs quantized models.

use polygrad_core::{Backend, BinaryOp, ConvParams, DType, Error, Result, Shape};

use super::context;
use crate::Tensor;
use crate::flops;
use crate::graph::cut;

/// Product of `a […, m, k]` and `b […, k, n]` of u8, minus their zero points; leading axes broadcast. The result is
/// i32, which wraps. Zero points are u8, one for all, `[1]`, or for each row of `a`, `[m]`, and each column of `b`,
/// `[n]`. An i8 is stored as a byte that is 128 larger, and so is its zero point.
///
/// # Errors
/// When shapes, dtypes or devices do not fit.
pub fn matmul_u8<B: Backend>(a: &Tensor<B>, b: &Tensor<B>, zeros: [&Tensor<B>; 2]) -> Result<Tensor<B>> {
    let operands = [a, b, zeros[0], zeros[1]];
    let fail = |e| context(e, "matmul_u8", &operands);
    let (_, k) = columns(&operands).map_err(fail)?;
    let [zero_a, zero_b] = zeros.map(|zero| &zero.value);
    let value = B::matmul_u8(&a.value, &b.value, zero_a, zero_b).map_err(fail)?;
    flops::add_products(B::shape(&value).numel(), k);
    Ok(cut(value, &operands, "matmul_u8"))
}

/// How many columns a product has, and how many terms each element, if the operands fit.
fn columns<B: Backend>(operands: &[&Tensor<B>; 4]) -> Result<(usize, usize)> {
    let [a, b, zero_a, zero_b] = operands;
    let (left, right) = (a.shape(), b.shape());
    let (&[ref lead @ .., m, k], &[ref others @ .., rows, n]) = (left.dims(), right.dims()) else {
        return Err(Error::shape("takes matrices […, m, k] and […, k, n]"));
    };
    if k != rows {
        return Err(Error::shape(format!(
            "{k} columns on the left, {rows} rows on the right"
        )));
    }
    Shape::new(lead)?.broadcast(&Shape::new(others)?)?;
    one_or(zero_a, m)?;
    one_or(zero_b, n)?;
    alike(operands)?;
    Ok((n, k))
}

/// [`matmul_u8`] as u8: `(sum + bias) · scale + zero`, where the bias is i32, the product with `scale`, which is f32,
/// is rounded to a whole number, halves to even, and what lies outside 0 to 255 is cut off. `zero` is u8, `[1]`; scale
/// and bias are `[1]`, or one for each column, `[n]`.
///
/// # Errors
/// When shapes, dtypes or devices do not fit.
pub fn matmul_requantize_u8<B: Backend>(
    a: &Tensor<B>,
    b: &Tensor<B>,
    zeros: [&Tensor<B>; 2],
    (scale, zero, bias): (&Tensor<B>, &Tensor<B>, Option<&Tensor<B>>),
) -> Result<Tensor<B>> {
    let factors = [a, b, zeros[0], zeros[1]];
    let mut operands = vec![a, b, zeros[0], zeros[1], scale, zero];
    operands.extend(bias);
    let fail = |e| context(e, "matmul_requantize_u8", &operands);
    let (n, k) = columns(&factors).map_err(fail)?;
    rescaling(a, scale, Some(zero), bias.map(|bias| (bias, DType::I32)), n).map_err(fail)?;
    let zeros = zeros.map(|zero| &zero.value);
    let bias = bias.map(|bias| &bias.value);
    let value = B::matmul_requantize_u8(&a.value, &b.value, zeros, &scale.value, &zero.value, bias).map_err(fail)?;
    flops::add_products(B::shape(&value).numel(), k);
    Ok(cut(value, &operands, "matmul_requantize_u8"))
}

/// [`matmul_u8`] as f32: `sum · scale + bias`; scale and bias are f32, `[1]`, or one for each column, `[n]`. A bias of
/// i32 is added to the sum.
///
/// # Errors
/// When shapes, dtypes or devices do not fit.
pub fn matmul_rescale_u8<B: Backend>(
    a: &Tensor<B>,
    b: &Tensor<B>,
    zeros: [&Tensor<B>; 2],
    scale: &Tensor<B>,
    bias: Option<&Tensor<B>>,
) -> Result<Tensor<B>> {
    let factors = [a, b, zeros[0], zeros[1]];
    let mut operands = vec![a, b, zeros[0], zeros[1], scale];
    operands.extend(bias);
    let fail = |e| context(e, "matmul_rescale_u8", &operands);
    let (n, k) = columns(&factors).map_err(fail)?;
    let of = |bias: &Tensor<B>| {
        if bias.dtype() == DType::I32 {
            DType::I32
        } else {
            DType::F32
        }
    };
    rescaling(a, scale, None, bias.map(|bias| (bias, of(bias))), n).map_err(fail)?;
    let zeros = zeros.map(|zero| &zero.value);
    let bias = bias.map(|bias| &bias.value);
    let value = B::matmul_rescale_u8(&a.value, &b.value, zeros, &scale.value, bias).map_err(fail)?;
    flops::add_products(B::shape(&value).numel(), k);
    Ok(cut(value, &operands, "matmul_rescale_u8"))
}

/// Fails unless this makes bytes or floats of sums for `count` columns or outputs, on the device of `x`.
fn rescaling<B: Backend>(
    x: &Tensor<B>,
    scale: &Tensor<B>,
    zero: Option<&Tensor<B>>,
    bias: Option<(&Tensor<B>, DType)>,
    count: usize,
) -> Result<()> {
    let zero = zero.map(|zero| (zero, DType::U8, 1));
    let bias = bias.map(|(bias, dtype)| (bias, dtype, count));
    for (operand, dtype, count) in [(scale, DType::F32, count)].into_iter().chain(zero).chain(bias) {
        of_dtypes(&[operand], &[dtype])?;
        x.check_device(operand)?;
        one_or(operand, count)?;
    }
    Ok(())
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

/// What [`conv_u8`] gives, as [`matmul_requantize_u8`], with scale and bias for each output.
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
        .and_then(|()| one_or(zeros[0], 1))
        .and_then(|()| one_or(zeros[1], outputs))
        .and_then(|()| rescaling(x, scale, Some(zero), bias.map(|bias| (bias, DType::I32)), outputs))
        .map_err(fail)?;
    let zeros = zeros.map(|zero| &zero.value);
    let (scale, zero, bias) = (&scale.value, &zero.value, bias.map(|bias| &bias.value));
    let value = B::conv_requantize_u8(&x.value, &weight.value, zeros, scale, zero, bias, params);
    flops::add_products(shape.numel(), weight.shape()[1..].iter().product());
    Ok(cut(value.map_err(fail)?, &operands, "conv_requantize_u8"))
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

/// [`quantize_u8`] with the scale and the zero point of its own numbers: from the smallest to the largest of them and
/// 0 in 255 steps, as ONNX's DynamicQuantizeLinear; NaN is left out, and the scale is 1 where all are 0. Returns the
/// bytes, the scale and the zero point, both `[1]`.
///
/// # Errors
/// When there is no element, or they are no floats.
pub fn dynamic_quantize_u8<B: Backend>(x: &Tensor<B>) -> Result<[Tensor<B>; 3]> {
    let fail = |e| context(e, "dynamic_quantize_u8", &[x]);
    if !x.dtype().is_float() {
        return Err(fail(Error::dtype(format!(
            "{} stands where a float is needed",
            x.dtype()
        ))));
    }
    if x.numel() == 0 {
        return Err(fail(Error::shape("there is no number whose range would give a scale")));
    }
    let (y, scale, zero) = B::dynamic_quantize_u8(&x.value).map_err(fail)?;
    Ok([y, scale, zero].map(|value| cut(value, &[x], "dynamic_quantize_u8")))
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

/// For each byte of `x` the number in its place of a table, `[256]`, whose dtype the result has.
///
/// # Errors
/// When shapes, dtypes or devices do not fit.
pub fn lookup_u8<B: Backend>(x: &Tensor<B>, table: &Tensor<B>) -> Result<Tensor<B>> {
    let operands = [x, table];
    let fail = |e| context(e, "lookup_u8", &operands);
    if table.shape().dims() != [256] {
        return Err(fail(Error::shape(format!(
            "a table of shape {}, not [256]",
            table.shape()
        ))));
    }
    of_dtypes(&operands, &[DType::U8, table.dtype()]).map_err(fail)?;
    let value = B::lookup_u8(&x.value, &table.value).map_err(fail)?;
    Ok(cut(value, &operands, "lookup_u8"))
}

/// `(a - zeros[0]) · scales[0]` op `(b - zeros[1]) · scales[1]` for bytes that broadcast, rounded to a whole number,
/// halves to even, plus `zero`, clamped to 0 to 255. A product is that of the whole numbers and of the two scales.
/// Scales are f32, zero points u8, all `[1]`.
///
/// # Errors
/// When shapes, dtypes or devices do not fit, or the op neither adds nor multiplies.
pub fn binary_requantize_u8<B: Backend>(
    op: BinaryOp,
    (a, b): (&Tensor<B>, &Tensor<B>),
    zeros: [&Tensor<B>; 2],
    scales: [&Tensor<B>; 2],
    zero: &Tensor<B>,
) -> Result<Tensor<B>> {
    let operands = [a, b, zeros[0], zeros[1], zero, scales[0], scales[1]];
    let fail = |e| context(e, "binary_requantize_u8", &operands);
    if !matches!(op, BinaryOp::Add | BinaryOp::Mul) {
        return Err(fail(Error::invalid(format!("{} is neither add nor mul", op.name()))));
    }
    let (bytes, real) = (DType::U8, DType::F32);
    a.shape().broadcast(&b.shape()).map_err(fail)?;
    of_dtypes(&operands, &[bytes, bytes, bytes, bytes, bytes, real, real])
        .and_then(|()| operands[2..].iter().try_for_each(|number| one_or(number, 1)))
        .map_err(fail)?;
    let [zeros, scales] = [zeros, scales].map(|pair| pair.map(|number| &number.value));
    let value = B::binary_requantize_u8(op, &a.value, &b.value, zeros, scales, &zero.value).map_err(fail)?;
    Ok(cut(value, &operands, "binary_requantize_u8"))
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

/// Fails unless `x` has shape `[1]` or `[count]`.
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
