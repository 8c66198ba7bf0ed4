//! Operands and results of integer products.
//!
//! An operand of 8 bits is stored as bytes for the ops of the backend. For i8, 128 is added to both the values and the
//! zero point, which represents the same numbers. Other integers are i32, whose products wrap.

use polygrad_core::{DType, Error, Result};
use polygrad_tensor::{Tensor, inference};

use crate::graph::ElementType;
use crate::import::call::Call;
use crate::import::value::Value;

/// The offset that is added to an i8.
const SIGN: i64 = 128;

/// An operand of bytes.
pub(super) struct Bytes {
    pub(super) values: Tensor,
    /// `[1]`, or one for each of `count`.
    pub(super) zero: Tensor,
}

impl Bytes {
    /// Operand `i` with its zero point, operand `zero`: a single one, or one for each of `count`. `None` if it has
    /// another type or other zero points.
    pub(super) fn read(c: &Call<'_>, i: usize, zero: usize, count: usize) -> Result<Option<Self>> {
        let element = c.element(i)?;
        if !matches!(element, ElementType::U8 | ElementType::I8) {
            return Ok(None);
        }
        if c.has(zero) {
            let shape = c.shape(zero)?;
            let fits = shape.numel() == 1 || shape.dims() == [count];
            if !fits || c.element(zero)? != element {
                return Ok(None);
            }
        }
        let zero = zero_byte(c, zero, element)?;
        let values = bytes(&c.x(i)?, element)?;
        Ok(Some(Self { values, zero }))
    }
}

/// The 8-bit zero points in operand `i` as a list of bytes. If it is missing, the byte that stands for 0.
pub(super) fn zero_byte(c: &Call<'_>, i: usize, element: ElementType) -> Result<Tensor> {
    if !c.has(i) {
        return c.make(vec![if element == ElementType::I8 { SIGN as u8 } else { 0 }], &[1]);
    }
    bytes(&list(c.x(i)?)?, element)
}

/// A number or a list as a list.
pub(crate) fn list(x: Tensor) -> Result<Tensor> {
    match x.rank() {
        1 => Ok(x),
        _ => x.reshape([x.numel()]),
    }
}

/// 8-bit numbers as bytes.
pub(crate) fn bytes(x: &Tensor, element: ElementType) -> Result<Tensor> {
    match element {
        ElementType::I8 => (x + SIGN)?.to_dtype(DType::U8),
        _ => Ok(x.clone()),
    }
}

/// Bytes as 8-bit numbers.
pub(super) fn numbers(x: Tensor, element: ElementType) -> Result<Value> {
    Ok(match element {
        ElementType::I8 => Value::from((x.to_dtype(DType::I32)? - SIGN)?).with_element(element),
        _ => x.into(),
    })
}

/// Operand `i` as i32, minus a zero point that broadcasts against it.
pub(super) fn centred(c: &Call<'_>, i: usize, zero: Option<Tensor>) -> Result<Tensor> {
    let element = c.element(i)?;
    if element.range().is_none() || element.bits() > 16 {
        let message = format!("operand {i} is {element}, not integers of 8 bits");
        return Err(Error::dtype(message).with_hint("MatMul and Conv multiply numbers of other types"));
    }
    let values = c.x(i)?.to_dtype(DType::I32)?;
    match zero {
        Some(zero) => values - zero.to_dtype(DType::I32)?,
        None => Ok(values),
    }
}

/// The factor from sums of products to values of the result: from the scales of the two operands, and of the result if
/// that is quantized. A single one, or one for each of `outputs`, in f32, as ONNX Runtime computes it. `None` if the
/// scales have other shapes.
pub(crate) fn rescale(c: &Call<'_>, [a, b]: [usize; 2], y: Option<usize>, outputs: usize) -> Result<Option<Tensor>> {
    let shape = c.shape(b)?;
    let fits = c.shape(a)?.numel() == 1 && y.map_or(Ok(1), |y| Ok(c.shape(y)?.numel()))? == 1;
    if !fits || !(shape.numel() == 1 || shape.dims() == [outputs]) {
        return Ok(None);
    }
    let on_host = |i: usize| c.value(i).is_some_and(|value| value.on_host().is_some());
    if on_host(a) && on_host(b) && y.is_none_or(on_host) {
        let number = |i: usize| Ok(c.floats(i)?[0] as f32);
        let (a, y) = (number(a)?, y.map(number).transpose()?);
        let scale = |b: f64| a * b as f32 / y.unwrap_or(1.0);
        let scales = c.collect(c.floats(b)?.into_iter().map(scale))?;
        return c.make(scales, &[shape.numel()]).map(Some);
    }
    let scale = |i: usize| c.x(i)?.to_dtype(DType::F32)?.reshape([c.shape(i)?.numel()]);
    let product = (scale(a)? * scale(b)?)?;
    match y {
        Some(y) => (product / scale(y)?).map(Some),
        None => Ok(Some(product)),
    }
}

/// Two operands of bytes.
pub(crate) struct Pair(pub(super) Bytes, pub(super) Bytes);

impl Pair {
    /// The product as f32, by a scale and plus a bias, each one number or one for each column; a bias of i32 is added
    /// before.
    pub(super) fn real(&self, scale: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        let Self(x, y) = self;
        inference::matmul_rescale_u8(&x.values, &y.values, [&x.zero, &y.zero], scale, bias)
    }

    /// The product plus a bias of i32, by a scale, as numbers of the type of operand `zero` of another call, which is
    /// their zero point. `None` if the type is not of 8 bits, or there are several zero points.
    pub(super) fn quantized(
        &self,
        scale: &Tensor,
        bias: Option<&Tensor>,
        (c, zero): (&Call<'_>, usize),
    ) -> Result<Option<Value>> {
        let Some((element, zero)) = result_zero(c, zero)? else {
            return Ok(None);
        };
        let Self(x, y) = self;
        let rescale = (scale, &zero, bias);
        let made = inference::matmul_requantize_u8(&x.values, &y.values, [&x.zero, &y.zero], rescale)?;
        numbers(made, element).map(Some)
    }
}

/// The type of a result and its zero point, operand `i`. `None` if the type is not of 8 bits, or there are several.
pub(super) fn result_zero(c: &Call<'_>, i: usize) -> Result<Option<(ElementType, Tensor)>> {
    let element = c.element(i)?;
    if !matches!(element, ElementType::U8 | ElementType::I8) || c.shape(i)?.numel() != 1 {
        return Ok(None);
    }
    Ok(Some((element, zero_byte(c, i, element)?)))
}
