//! Conversions of element types, and quantization.

use polygrad_core::{DType, Error, HostTensor, Result};
use polygrad_tensor::{Tensor, inference};
use smallvec::smallvec;

use super::row::{Row, rows, wrap};
use super::{text, whole};
use crate::graph::minifloat::{self, Rounding};
use crate::graph::{ElementType, Literal, malformed};
use crate::import::call::{Call, Results, one};
use crate::import::value::Value;

rows! {
    Row::new("Cast", 6, |c| {
        let to = c.element_attribute("to")?.ok_or_else(|| malformed("the attribute to is missing"))?;
        cast(c, to)
    });
    Row::new("CastLike", 15, |c| cast(c, c.element(1)?));
    Row::new("BitCast", 26, bit_cast);
    Row::new("QuantizeLinear", 10, quantize);
    Row::new("DequantizeLinear", 10, dequantize);
    Row::new("DynamicQuantizeLinear", 11, dynamic_quantize);
}

fn cast(c: &Call<'_>, to: ElementType) -> Results {
    if let Some(texts) = c.need(0)?.texts() {
        return text::cast(c, texts, to);
    }
    let dtype = to.dtype()?;
    if to.is_small_float() {
        let values = c.floats(0)?;
        return Ok(smallvec![small_floats(c, to, values, c.flag("saturate", true)?)?]);
    }
    if to.range().is_some() {
        let x = whole(c, to)?;
        return match to.is_widened() {
            true => Ok(smallvec![wrap(x.into(), to, c)?]),
            false => one(x.to_dtype(dtype)?),
        };
    }
    match c.need(0)?.on_host() {
        // If the device lacks the dtype, the conversion is done on the host.
        Some(literal) if literal.host().dtype() == DType::F64 && c.wide() != DType::F64 => {
            one(Tensor::from_host(literal.host().try_cast(dtype)?, c.device)?)
        }
        _ => one(c.x(0)?.to_dtype(dtype)?),
    }
}

/// Operand 0 as integers whose low bits are those of `to`, the same for all integer types: floats are truncated. Floats
/// outside the range of i32 (for types of 64 bits: of i64), including NaN, become its smallest number; for uint32,
/// those from 2³² on become 0. This matches PyTorch 2.13 and ONNX Runtime 1.32 on x86, where C leaves the result
/// undefined.
fn whole(c: &Call<'_>, to: ElementType) -> Result<Tensor> {
    let (low, high) = match to {
        ElementType::I64 | ElementType::U64 => (-2f64.powi(63), 2f64.powi(63)),
        ElementType::U32 => (-2f64.powi(31), 2f64.powi(32)),
        _ => (-2f64.powi(31), 2f64.powi(31)),
    };
    let is_u32 = to == ElementType::U32;
    if let Some(literal) = c.need(0)?.on_host()
        && literal.host().dtype() == DType::F64
        && c.wide() != DType::F64
    {
        let truncated = |v: f64| match v {
            _ if (low..high).contains(&v) => v as i64,
            _ if is_u32 && v >= high => 0,
            _ => low as i64,
        };
        let values = literal.host().try_to_f64_vec()?.into_iter().map(truncated);
        return c.make(values.collect::<Vec<_>>(), literal.host().shape());
    }
    let mut x = c.x(0)?;
    if !x.dtype().is_float() {
        return if to.is_widened() { x.to_dtype(DType::I64) } else { Ok(x) };
    }
    if x.dtype().size() == 2 {
        // No 16-bit float is as large as the limits.
        x = x.to_dtype(DType::F32)?;
    }
    let (device, dtype) = (c.device, x.dtype());
    let number = |value: f64| Tensor::full((), value, (device, dtype));
    if is_u32 {
        x = Tensor::where_(&x.ge(high)?, &number(0.0)?, &x)?;
    }
    let is_held = x.ge(low)?.logical_and(&x.lt(high)?)?;
    Tensor::where_(&is_held, &x, &number(low)?)?.to_dtype(DType::I64)
}

/// Values of operand 0's shape, rounded to a float type of at most 8 bits.
fn small_floats(c: &Call<'_>, to: ElementType, values: Vec<f64>, saturate: bool) -> Result<Value> {
    let powers = match c.text("round_mode", "up")? {
        "up" => Rounding::Up,
        "down" => Rounding::Down,
        "nearest" => Rounding::Nearest,
        other => return Err(malformed(format!("there is no round_mode {other:?}"))),
    };
    let encode = |v: f32| match to {
        ElementType::F8E8M0 => minifloat::encode_power(v, powers, saturate),
        _ => minifloat::encode(to, v, saturate),
    };
    let round = |v: f64| minifloat::decode(to, encode(v as f32));
    let host = HostTensor::new(c.shape(0)?, c.collect(values.into_iter().map(round))?)?;
    Ok(Literal::new(to, host)?.into())
}

fn bit_cast(c: &Call<'_>) -> Results {
    let to = c
        .element_attribute("to")?
        .ok_or_else(|| malformed("the attribute to is missing"))?;
    let (from, host) = (c.element(0)?, c.host(0)?);
    let literal = Literal::new(from, host)?;
    Ok(smallvec![literal.reinterpret(to)?.into()])
}

/// Scale or zero point in a shape that broadcasts against `x`: one number, one for each position of the axis, or one
/// for each block along it.
fn spread(c: &Call<'_>, i: usize, x: &Tensor) -> Result<Option<Tensor>> {
    let Some(scale) = c.opt(i)? else { return Ok(None) };
    let shape = x.shape();
    let block = c.count("block_size", 0)?;
    Ok(Some(match scale.rank() {
        0 => scale,
        1 if scale.numel() == 1 && shape.rank() != 1 => scale.reshape(())?,
        1 if block == 0 => {
            let axis = c
                .axis("axis", 1, shape.rank())
                .or_else(|e| if shape.rank() == 1 { Ok(0) } else { Err(e) })?;
            let mut dims = vec![1; shape.rank()];
            dims[axis] = scale.numel();
            scale.reshape(dims)?
        }
        rank if block > 0 && rank == shape.rank() => {
            let axis = c.axis("axis", 1, shape.rank())?;
            let extent = shape[axis];
            c.reserve(&[extent], DType::I64)?;
            c.reserve(&shape, DType::I64)?;
            if scale.shape()[axis] != extent.div_ceil(block) {
                return Err(Error::shape(format!(
                    "blocks of {block} do not fit {shape} and {}",
                    scale.shape()
                )));
            }
            let index: Vec<i64> = (0..extent).map(|i| (i / block) as i64).collect();
            scale.index_select(axis as isize, &c.make(index, &[extent])?)?
        }
        _ => return Err(Error::shape(format!("a scale of shape {} for {shape}", scale.shape()))),
    }))
}

/// Operand 1, which must be there, by [`spread`].
fn scale(c: &Call<'_>, x: &Tensor) -> Result<Tensor> {
    spread(c, 1, x)?.ok_or_else(|| malformed("the scale is missing"))
}

pub(super) fn quantize(c: &Call<'_>) -> Results {
    let x = c.x(0)?;
    let element = match (c.value(2), c.element_attribute("output_dtype")?) {
        (Some(_), _) => c.element(2)?,
        (None, Some(element)) => element,
        (None, None) => ElementType::U8,
    };
    if let Some(value) = as_bytes(c, &x, element)? {
        return Ok(smallvec![value]);
    }
    let scale = scale(c, &x)?;
    // The quotient is rounded in the scale's dtype, unless the file says otherwise.
    let float = match c.element_attribute("precision")? {
        Some(element) => element.dtype()?,
        None => [scale.dtype(), x.dtype()]
            .into_iter()
            .find(|dtype| dtype.is_float())
            .unwrap_or(DType::F32),
    };
    if element.is_small_float() {
        let wide = |x: Tensor| x.to_dtype(DType::F32);
        let mut q = wide((x.to_dtype(float)? / scale.to_dtype(float)?)?)?;
        if let (Some(zero), true) = (spread(c, 2, &x)?, element.bits() < 8) {
            q = (q + wide(zero)?)?;
        }
        let values = c.off_device(&q)?.try_to_f64_vec()?;
        return Ok(smallvec![small_floats(c, element, values, c.flag("saturate", true)?)?]);
    }
    let (low, high) = element
        .range()
        .ok_or_else(|| Error::dtype(format!("nothing is quantized to {element} here")))?;
    let mut q = (x.to_dtype(float)? / scale.to_dtype(float)?)?
        .round()?
        .to_dtype(DType::F32)?;
    if let Some(zero) = spread(c, 2, &x)? {
        q = (q + zero.to_dtype(DType::F32)?)?;
    }
    // The conversion saturates at the range of the dtype.
    if element.is_widened() {
        // NaN is the smallest number, too.
        q = Tensor::where_(&q.gt(low as f64)?, &q, &c.full(&[], low as f64, DType::F32)?)?;
        q = q.clamp(None, Some(high as f64))?;
    }
    Ok(smallvec![
        Value::from(q.to_dtype(element.dtype()?)?).with_element(element)
    ])
}

/// Whether operand 1 is a single f32 scale, operand 2 (if given) a single zero point of this type, and neither they nor
/// operand 0 need gradients.
fn is_plain(c: &Call<'_>, element: ElementType) -> Result<bool> {
    let one = |i: usize| Ok(c.shape(i)?.numel() == 1 && c.shape(i)?.rank() <= 1);
    let zero = !c.has(2) || (one(2)? && c.element(2)? == element);
    let tracked = [0, 1].iter().any(|&i| c.value(i).is_some_and(Value::is_tracked));
    let plain = zero && !tracked && c.count("block_size", 0)? == 0;
    Ok(plain && c.has(1) && one(1)? && c.element(1)? == ElementType::F32)
}

/// QuantizeLinear to 8 bits in one pass, for the usual operands.
fn as_bytes(c: &Call<'_>, x: &Tensor, element: ElementType) -> Result<Option<Value>> {
    let precision = c.element_attribute("precision")?.unwrap_or(ElementType::F32);
    let eight = matches!(element, ElementType::U8 | ElementType::I8);
    if x.dtype() != DType::F32 || !eight || precision != ElementType::F32 || !is_plain(c, element)? {
        return Ok(None);
    }
    let y = inference::quantize_u8(x, &whole::list(c.x(1)?)?, &whole::zero_byte(c, 2, element)?)?;
    whole::numbers(y, element).map(Some)
}

pub(super) fn dequantize(c: &Call<'_>) -> Results {
    let x = c.x(0)?;
    if c.element(0)? == ElementType::U8
        && c.element_attribute("output_dtype")?.is_none()
        && is_plain(c, ElementType::U8)?
    {
        let zero = whole::zero_byte(c, 2, ElementType::U8)?;
        return one(inference::dequantize_u8(&x, &whole::list(c.x(1)?)?, &zero)?);
    }
    let scale = scale(c, &x)?;
    let dtype = match c.element_attribute("output_dtype")? {
        Some(element) => element.dtype()?,
        None => scale.dtype(),
    };
    // The difference of integers is exact, but an i32 or i64 may not be exact as a float, unlike narrower integers.
    let narrow = c.element(0)?.bits() <= 16;
    let value = match spread(c, 2, &x)? {
        Some(zero) if !narrow && !x.dtype().is_float() && !zero.dtype().is_float() => {
            (x.to_dtype(DType::I64)? - zero.to_dtype(DType::I64)?)?.to_dtype(DType::F32)?
        }
        Some(zero) => (x.to_dtype(DType::F32)? - zero.to_dtype(DType::F32)?)?,
        None => x.to_dtype(DType::F32)?,
    };
    one((value * scale.to_dtype(DType::F32)?)?.to_dtype(dtype)?)
}

fn dynamic_quantize(c: &Call<'_>) -> Results {
    let [y, scale, zero] = dynamic(&c.untracked(0)?)?;
    Ok(smallvec![y.into(), scale.reshape(())?.into(), zero.reshape(())?.into()])
}

/// The results of DynamicQuantizeLinear: values as uint8, over the range of the values extended to 0; the scale, and
/// the zero point as uint8, both `[1]`.
pub(crate) fn dynamic(x: &Tensor) -> Result<[Tensor; 3]> {
    let x = x.to_dtype(DType::F32)?;
    if x.numel() == 0 {
        let (device, one) = (x.device(), 1.0);
        let scale = Tensor::full([1], one, (&device, DType::F32))?;
        return Ok([
            x.to_dtype(DType::U8)?,
            scale,
            Tensor::full([1], 0, (&device, DType::U8))?,
        ]);
    }
    inference::dynamic_quantize_u8(&x)
}
