//! Ops from quantized numbers to quantized numbers.
//!
//! Like ONNX Runtime, they compute in f32 and round to even. ONNX Runtime may use a table of such results.

use polygrad_core::{Activation, BinaryOp, DType, Error, Result};
use polygrad_tensor::{Tensor, inference};
use smallvec::smallvec;

use super::{channels_first, channels_last, ms, on, single};
use crate::graph::{ElementType, malformed};
use crate::import::call::{Call, List, Results};
use crate::import::ops::conv::{qlinear_conv, spatial};
use crate::import::ops::matmul::requantized;
use crate::import::ops::pool::{average_pool, max_pool};
use crate::import::ops::row::rows;
use crate::import::ops::whole;
use crate::import::value::Value;

rows! {
    ms("QLinearAdd", add);
    ms("QLinearMul", multiply);
    ms("QLinearSigmoid", |c| through(c, |x| x.activation(Activation::Sigmoid)));
    ms("QLinearLeakyRelu", |c| {
        let slope = c.float("alpha", 0.01)?;
        through(c, |x| x.activation(Activation::LeakyRelu { slope }))
    });
    ms("QLinearSoftmax", |c| through(c, |x| softmax(c, x)));
    ms("QLinearConcat", concat);
    ms("QLinearWhere", choose);
    ms("QLinearGlobalAveragePool", global_average_pool);
    ms("QLinearAveragePool", pooled);
    ms("QLinearConv", convolved);
    ms("NhwcMaxPool", |c| {
        let x = [Some(Value::from(channels_first(&c.x(0)?)?).with_element(c.element(0)?))];
        let made = max_pool(&on(c, &x))?;
        let value = made.first().ok_or_else(|| malformed("MaxPool gives nothing"))?;
        Ok(smallvec![channels_last(&value.tensor(c.device)?)?.into()])
    }).like(0);
    ms("QuantizeLinear", super::super::cast::quantize);
    ms("DequantizeLinear", super::super::cast::dequantize);
}

/// Operand `i` minus its zero point, if any: integers of at most 16 bits in f32, which represents them exactly.
pub(super) fn centered(c: &Call<'_>, i: usize, zero: usize) -> Result<Tensor> {
    let element = c.element(i)?;
    if element.range().is_none() || element.bits() > 16 {
        return Err(Error::dtype(format!("operand {i} is {element}, not quantized")));
    }
    let x = c.x(i)?.to_dtype(DType::F32)?;
    if !c.has(zero) {
        return Ok(x);
    }
    if c.element(zero)? != element {
        return Err(Error::dtype(format!(
            "operand {i} is {element}, and its zero point, operand {zero}, is {}",
            c.element(zero)?
        )));
    }
    x - single(c, zero)?.to_dtype(DType::F32)?
}

/// The real numbers that operand `i` stands for.
fn real(c: &Call<'_>, i: usize, scale: usize, zero: usize) -> Result<Tensor> {
    scaled(c, i, zero, scale_of(c, scale)?)
}

/// Operand `i` minus its zero point, times a factor.
fn scaled(c: &Call<'_>, i: usize, zero: usize, factor: Tensor) -> Result<Tensor> {
    let plain = !c.has(zero) || (c.element(zero)? == ElementType::U8 && c.shape(zero)?.numel() == 1);
    if plain && c.element(i)? == ElementType::U8 && !factor.is_tracked() {
        let zero = whole::zero_byte(c, zero, ElementType::U8)?;
        return inference::dequantize_u8(&c.x(i)?, &factor.reshape([1])?, &zero);
    }
    centered(c, i, zero)? * factor
}

fn scale_of(c: &Call<'_>, i: usize) -> Result<Tensor> {
    single(c, i)?.to_dtype(DType::F32)
}

/// Quantizes quotients by the scale of the result. The type is that of the zero point, or of operand `like` if there is
/// none.
fn rounded(c: &Call<'_>, quotients: &Tensor, zero: usize, like: usize) -> Results {
    let element = c.element(if c.has(zero) { zero } else { like })?;
    let zero = match c.has(zero) {
        true => single(c, zero)?,
        false => Tensor::full((), 0i64, (c.device, DType::I32))?,
    };
    Ok(smallvec![requantized(quotients, &zero, element)?])
}

/// Fails if the broadcast result of two operands would exceed the limits.
fn fits(c: &Call<'_>, a: usize, b: usize) -> Result<()> {
    let shape = c.shape(a)?.broadcast(&c.shape(b)?)?;
    c.reserve(&shape, DType::F32).map(drop)
}

/// A sum or a product of numbers of 8 bits, in one pass, if their scales are known on the host.
fn in_bytes(c: &Call<'_>, op: BinaryOp) -> Result<Option<Value>> {
    let eight = |i: usize| Ok::<_, Error>(matches!(c.element(i)?, ElementType::U8 | ElementType::I8));
    let plain = |scale: usize| -> Result<bool> {
        let known = c.value(scale).is_some_and(|value| value.on_host().is_some());
        let zero = scale + 1;
        let single = c.has(zero) && c.shape(zero)?.numel() == 1 && c.shape(scale)?.numel() == 1;
        Ok(known && single && eight(zero)?)
    };
    let alike = |i: usize| Ok::<_, Error>(c.element(i)? == c.element(i + 2)?);
    if !(plain(1)? && plain(4)? && plain(6)? && alike(0)? && alike(3)?) {
        return Ok(None);
    }
    let number = |i: usize| Ok::<_, Error>(c.floats(i)?[0] as f32);
    let (a, b, y) = (number(1)?, number(4)?, number(6)?);
    let factors = match op {
        BinaryOp::Mul => [a * b / y, 1.0],
        _ => [a / y, b / y],
    };
    let part = |i: usize| {
        let element = c.element(i)?;
        Ok::<_, Error>((whole::bytes(&c.x(i)?, element)?, whole::zero_byte(c, i + 2, element)?))
    };
    let ((left, left_zero), (right, right_zero)) = (part(0)?, part(3)?);
    let scales = [c.make(vec![factors[0]], &[1])?, c.make(vec![factors[1]], &[1])?];
    let element = c.element(7)?;
    let zero = whole::zero_byte(c, 7, element)?;
    let [scale, other] = &scales;
    let zeros = [&left_zero, &right_zero];
    let sum = inference::binary_requantize_u8(op, (&left, &right), zeros, [scale, other], &zero)?;
    whole::numbers(sum, element).map(Some)
}

fn add(c: &Call<'_>) -> Results {
    fits(c, 0, 3)?;
    if let Some(y) = in_bytes(c, BinaryOp::Add)? {
        return Ok(smallvec![y]);
    }
    let scale = scale_of(c, 6)?;
    let part = |i: usize| scaled(c, i, i + 2, (scale_of(c, i + 1)? / &scale)?);
    rounded(c, &(part(0)? + part(3)?)?, 7, 0)
}

fn multiply(c: &Call<'_>) -> Results {
    fits(c, 0, 3)?;
    if let Some(y) = in_bytes(c, BinaryOp::Mul)? {
        return Ok(smallvec![y]);
    }
    let scale = ((scale_of(c, 1)? * scale_of(c, 4)?)? / scale_of(c, 6)?)?;
    let product = (centered(c, 0, 2)? * centered(c, 3, 5)?)?;
    rounded(c, &(product * scale)?, 7, 0)
}

/// A function of each element, or along an axis. The operands are the values, their scale and zero point, and those of
/// the result.
fn through(c: &Call<'_>, function: impl Fn(&Tensor) -> Result<Tensor>) -> Results {
    let y = function(&real(c, 0, 1, 2)?)?;
    rounded(c, &(y / scale_of(c, 3)?)?, 4, 0)
}

/// Along one axis since version 13 of Softmax, which an attribute gives; before, along all axes from this one on.
fn softmax(c: &Call<'_>, x: &Tensor) -> Result<Tensor> {
    let axis = c.axis("axis", -1, x.rank())?;
    if c.int("opset", 13)? >= 13 {
        return x.softmax(axis as isize);
    }
    let shape = x.shape();
    let (rows, columns) = shape.split_at(axis);
    let flat = [rows.iter().product::<usize>(), columns.iter().product::<usize>()];
    x.reshape(flat)?.softmax(1)?.reshape(shape)
}

fn concat(c: &Call<'_>) -> Results {
    let count = c.inputs.len().saturating_sub(2);
    if count == 0 || !count.is_multiple_of(3) {
        return Err(malformed(format!(
            "{count} operands after the scale and the zero point: three for each part are needed"
        )));
    }
    let element = c.element(1)?;
    let floats_of = |value: &Value| value.host()?.try_to_f64_vec();
    let parts = (0..count / 3).map(|part| {
        let [values, scale, zero] = [2, 3, 4].map(|place| place + 3 * part);
        let same = |a: usize, b: usize| match (c.value(a), c.value(b)) {
            (Some(a), Some(b)) => Ok(a.on_host().is_some() && b.on_host().is_some() && floats_of(a)? == floats_of(b)?),
            _ => Ok::<_, Error>(false),
        };
        if c.element(values)? == element && same(scale, 0)? && same(zero, 1)? {
            return c.x(values);
        }
        let made = rounded(c, &(real(c, values, scale, zero)? / scale_of(c, 0)?)?, 1, 1)?;
        let value = made.first().ok_or_else(|| malformed("QuantizeLinear gives nothing"))?;
        value.tensor(c.device)
    });
    let parts = parts.collect::<Result<Vec<_>>>()?;
    let axis = c.axis("axis", 0, parts[0].rank())?;
    let joined = Tensor::cat(&parts.iter().collect::<Vec<_>>(), axis as isize)?;
    Ok(smallvec![Value::from(joined).with_element(element)])
}

fn choose(c: &Call<'_>) -> Results {
    let shape = c.shape(0)?.broadcast(&c.shape(1)?)?.broadcast(&c.shape(4)?)?;
    c.reserve(&shape, DType::F32)?;
    let y = Tensor::where_(&c.x(0)?, &real(c, 1, 2, 3)?, &real(c, 4, 5, 6)?)?;
    rounded(c, &(y / scale_of(c, 7)?)?, 8, 1)
}

fn global_average_pool(c: &Call<'_>) -> Results {
    let last = c.flag("channels_last", false)?;
    let x = centered(c, 0, 2)?;
    let shape = x.shape();
    let rank = shape.rank();
    if rank < 3 {
        return Err(Error::shape(format!("{shape} is not [N, C, spatial…]")));
    }
    let over: List<isize> = match last {
        true => (1..rank as isize - 1).collect(),
        false => (2..rank as isize).collect(),
    };
    let count: usize = over.iter().map(|&axis| shape[axis as usize]).product();
    // Sums of integers, exact if the device has f64.
    let sum = x.to_dtype(c.wide())?.sum_keepdim(over.as_slice())?;
    let scale = (scale_of(c, 1)? / (scale_of(c, 3)? * count as f64)?)?;
    rounded(c, &(sum * scale.to_dtype(c.wide())?)?, 4, 0)
}

fn pooled(c: &Call<'_>) -> Results {
    let last = c.flag("channels_last", false)?;
    // Of whole numbers, so that a mean that lies between two of them does so exactly.
    let x = centered(c, 0, 2)?;
    spatial(&x.shape())?;
    let x = [Some(Value::from(if last { channels_first(&x)? } else { x }))];
    let made = average_pool(&on(c, &x))?;
    let value = made.first().ok_or_else(|| malformed("AveragePool gives nothing"))?;
    let y = value.tensor(c.device)?;
    let y = if last { channels_last(&y)? } else { y };
    // The zero point is added before the sum is rounded.
    let mut sum = (y * (scale_of(c, 1)? / scale_of(c, 3)?)?)?;
    let element = c.element(if c.has(4) { 4 } else { 0 })?;
    if c.has(4) {
        sum = (sum + single(c, 4)?.to_dtype(DType::F32)?)?;
    }
    let zero = Tensor::full((), 0i64, (c.device, DType::I32))?;
    Ok(smallvec![requantized(&sum, &zero, element)?])
}

fn convolved(c: &Call<'_>) -> Results {
    if !c.flag("channels_last", false)? {
        return qlinear_conv(c);
    }
    let mut inputs = c.inputs.to_vec();
    let x = Value::from(channels_first(&c.x(0)?)?).with_element(c.element(0)?);
    match inputs.first_mut() {
        Some(first) => *first = Some(x),
        None => return Err(malformed("operand 0 is missing")),
    }
    let made = qlinear_conv(&on(c, &inputs))?;
    let value = made.first().ok_or_else(|| malformed("QLinearConv gives nothing"))?;
    let element = c.element(7)?;
    let y = channels_last(&value.tensor(c.device)?)?;
    Ok(smallvec![Value::from(y).with_element(element)])
}
