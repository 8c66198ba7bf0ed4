//! Operands and results of products of whole numbers.
//!
//! An operand of 8 bits is held as bytes for the ops of the backend: an i8 as the byte that is 128 more, with a zero
//! point that is 128 more, which is the same number. Other integers are i32, whose products wrap.

use polygrad_core::{DType, Error, Result};
use polygrad_tensor::{Tensor, inference};

use crate::graph::ElementType;
use crate::import::call::Call;
use crate::import::value::Value;

/// What an i8 is held above itself.
const SIGN: i64 = 128;

/// An operand of bytes.
pub(super) struct Bytes {
    pub(super) values: Tensor,
    /// `[1]`, or as many as were asked for.
    pub(super) zero: Tensor,
}

impl Bytes {
    /// Operand `i` with its zero point, operand `zero`: one, or one for each of `count`. `None` if it is of another
    /// type, or has other zero points.
    pub(super) fn read(c: &Call<'_>, i: usize, zero: usize, count: usize) -> Result<Option<Self>> {
        let element = c.element(i)?;
        if !matches!(element, ElementType::U8 | ElementType::I8) {
            return Ok(None);
        }
        let zero = match c.value(zero) {
            None => c.make(vec![if element == ElementType::I8 { SIGN as u8 } else { 0 }], &[1])?,
            Some(_) => {
                let shape = c.shape(zero)?;
                let fits = shape.numel() == 1 || shape.dims() == [count];
                if !fits || c.element(zero)? != element {
                    return Ok(None);
                }
                bytes(&c.x(zero)?.reshape([shape.numel()])?, element)?
            }
        };
        let values = bytes(&c.x(i)?, element)?;
        Ok(Some(Self { values, zero }))
    }
}

/// Numbers of 8 bits as bytes.
pub(crate) fn bytes(x: &Tensor, element: ElementType) -> Result<Tensor> {
    match element {
        ElementType::I8 => (x + SIGN)?.to_dtype(DType::U8),
        _ => Ok(x.clone()),
    }
}

/// Bytes as numbers of 8 bits.
fn numbers(x: Tensor, element: ElementType) -> Result<Value> {
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

/// What sums of products are multiplied by to become numbers of the result, from the scales of the two operands and the
/// result: one, or one for each of `outputs`, in f32, as ONNX Runtime computes it. `None` if there are others.
pub(crate) fn rescale(c: &Call<'_>, [a, b, y]: [usize; 3], outputs: usize) -> Result<Option<Tensor>> {
    let shape = c.shape(b)?;
    let fits = c.shape(a)?.numel() == 1 && c.shape(y)?.numel() == 1;
    if !fits || !(shape.numel() == 1 || shape.dims() == [outputs]) {
        return Ok(None);
    }
    if [a, b, y]
        .iter()
        .all(|&i| c.value(i).is_some_and(|value| value.on_host().is_some()))
    {
        let [a, b, y] = [c.floats(a)?, c.floats(b)?, c.floats(y)?];
        let (a, y) = (a[0] as f32, y[0] as f32);
        let scales = c.collect(b.into_iter().map(|b| a * b as f32 / y))?;
        return c.make(scales, &[shape.numel()]).map(Some);
    }
    let scale = |i: usize| c.x(i)?.to_dtype(DType::F32)?.reshape([c.shape(i)?.numel()]);
    ((scale(a)? * scale(b)?)? / scale(y)?).map(Some)
}

/// Sums of products plus a bias as numbers of the type of operand `zero`, which is their zero point. Scale and bias are
/// one number, or one for each position of an axis. `None` if the type is not of 8 bits, or there are several zero
/// points.
pub(crate) fn requantized(
    c: &Call<'_>,
    sums: &Tensor,
    scale: &Tensor,
    zero: usize,
    bias: Option<&Tensor>,
    axis: isize,
) -> Result<Option<Value>> {
    let element = c.element(zero)?;
    if !matches!(element, ElementType::U8 | ElementType::I8) || c.shape(zero)?.numel() != 1 {
        return Ok(None);
    }
    let zero = bytes(&c.x(zero)?.reshape([1])?, element)?;
    let y = inference::requantize_u8(sums, scale, &zero, bias, axis)?;
    numbers(y, element).map(Some)
}
