//! Products of quantized matrices whose results are real or optionally quantized.

use polygrad_core::{DType, Error, Result};
use polygrad_tensor::Tensor;
use smallvec::smallvec;

use super::{ms, on, single};
use crate::graph::ElementType;
use crate::import::call::{Call, Results, one};
use crate::import::ops::cast::dynamic;
use crate::import::ops::matmul::{byte_operands, matrices, requantized, whole_product};
use crate::import::ops::row::rows;
use crate::import::ops::whole;
use crate::import::value::Value;

rows! {
    ms("QGemm", gemm);
    ms("MatMulIntegerToFloat", |c| {
        one(real_product(c, &Factors { a: 0, b: 1, scales: [2, 3], zeros: [4, 5], bias: 6 })?)
    });
    ms("DynamicQuantizeMatMul", dynamic_matmul);
}

/// The operand indices of a product.
pub(super) struct Factors {
    pub(super) a: usize,
    pub(super) b: usize,
    pub(super) scales: [usize; 2],
    pub(super) zeros: [usize; 2],
    pub(super) bias: usize,
}

/// Operand `i`, which is a single number or has one for each column.
fn by_column(c: &Call<'_>, i: usize, columns: usize) -> Result<Tensor> {
    let x = c.x(i)?;
    match x.numel() {
        1 => x.reshape(()),
        count if count == columns && x.shape().last() == Some(&columns) => x.reshape([columns]),
        _ => Err(Error::shape(format!(
            "operand {i} of shape {} for {columns} columns",
            x.shape()
        ))),
    }
}

/// Operand `i` as a single zero point, or one for each column.
fn zero(c: &Call<'_>, i: usize, of: ElementType, columns: Option<usize>) -> Result<Option<Value>> {
    if !c.has(i) {
        return Ok(None);
    }
    let element = c.element(i)?;
    if element != of {
        return Err(Error::dtype(format!(
            "operand {i} is {element}, the zero point of {of}"
        )));
    }
    let shape = c.shape(i)?;
    if shape.rank() <= 1 && (shape.numel() == 1 || Some(shape.numel()) == columns) {
        return Ok(Some(c.need(i)?.clone()));
    }
    let x = match columns {
        None => single(c, i)?,
        Some(columns) => by_column(c, i, columns)?,
    };
    Ok(Some(Value::from(x).with_element(element)))
}

/// Two operands, each with its zero point.
type Operands = [(Value, Option<Value>); 2];

/// What [`whole_product`] takes.
fn inputs([(a, a_zero), (b, b_zero)]: Operands) -> [Option<Value>; 4] {
    [Some(a), Some(b), a_zero, b_zero]
}

fn columns(c: &Call<'_>, b: usize) -> Result<usize> {
    let shape = c.shape(b)?;
    let last = shape.last().copied().filter(|_| shape.rank() >= 2);
    last.ok_or_else(|| Error::shape(format!("operand {b} of shape {shape} is no matrix")))
}

/// The product of two integer operands with their scales and zero points, plus the bias, as f32.
pub(super) fn real_product(c: &Call<'_>, f: &Factors) -> Result<Tensor> {
    let columns = columns(c, f.b)?;
    let a = (c.need(f.a)?.clone(), zero(c, f.zeros[0], c.element(f.a)?, None)?);
    let b = (
        c.need(f.b)?.clone(),
        zero(c, f.zeros[1], c.element(f.b)?, Some(columns))?,
    );
    let scale = match whole::rescale(c, f.scales, None, columns)? {
        Some(scale) => scale,
        None => (single(c, f.scales[0])? * by_column(c, f.scales[1], columns)?)?,
    };
    real(c, &inputs([a, b]), &scale, f.bias)
}

/// A product by a scale, which is one or has one for each column, plus the bias, operand `bias`, if there is one.
fn real(c: &Call<'_>, inputs: &[Option<Value>], scale: &Tensor, bias: usize) -> Result<Tensor> {
    let factors = on(c, inputs);
    let columns = factors.shape(1)?.last().copied();
    let plain = |bias: &Tensor| Some(bias.numel()) == columns && bias.rank() == 1 && bias.dtype() == DType::F32;
    let given = c.opt(bias)?;
    if !scale.is_tracked()
        && given.as_ref().is_none_or(|bias| plain(bias) && !bias.is_tracked())
        && let Some(pair) = byte_operands(&factors, [0, 1], [2, 3])?
    {
        return pair.real(&whole::list(scale.clone())?, given.as_ref());
    }
    let sums = whole_product(&factors, [0, 1], [2, 3])?;
    with_bias(c, (sums.to_dtype(DType::F32)? * scale)?, bias)
}

pub(super) fn with_bias(c: &Call<'_>, y: Tensor, i: usize) -> Result<Tensor> {
    match c.opt(i)? {
        None => Ok(y),
        Some(bias) if bias.rank() == 1 && y.shape().last() == Some(&bias.numel()) => y + bias,
        Some(bias) => Err(Error::shape(format!(
            "a bias of shape {} for {}",
            bias.shape(),
            y.shape()
        ))),
    }
}

/// A product with an integer matrix, for which the other operand is quantized to uint8.
fn dynamic_matmul(c: &Call<'_>) -> Results {
    let columns = columns(c, 1)?;
    let [a, scale, a_zero] = dynamic(&c.untracked(0)?)?;
    let a = (Value::from(a), Some(Value::from(a_zero)));
    let b = (c.need(1)?.clone(), zero(c, 3, c.element(1)?, Some(columns))?);
    let scale = (scale * by_column(c, 2, columns)?)?;
    one(real(c, &inputs([a, b]), &scale, 4)?)
}

fn gemm(c: &Call<'_>) -> Results {
    let turn = |i: usize, name: &str| -> Result<Value> {
        if !c.flag(name, false)? {
            // Unchanged, since it may be packed.
            return Ok(c.need(i)?.clone());
        }
        Ok(Value::from(c.x(i)?.t()?).with_element(c.element(i)?))
    };
    for i in [0, 3] {
        matrices(&c.x(i)?)?;
    }
    let (a, b) = (turn(0, "transA")?, turn(3, "transB")?);
    let columns = b.shape().map_or(0, |shape| shape[1]);
    let zeros = (
        zero(c, 2, c.element(0)?, None)?,
        zero(c, 5, c.element(3)?, Some(columns))?,
    );
    let inputs = inputs([(a, zeros.0), (b, zeros.1)]);
    let factors = on(c, &inputs);
    let bias = c.opt(6)?;
    let fits = bias
        .as_ref()
        .is_none_or(|bias| bias.dims() == [columns] && bias.dtype() == DType::I32);
    if fits && c.float("alpha", 1.0)? == 1.0 && (!c.has(7) || c.has(8)) {
        let result = c.has(7).then_some(7);
        if let Some(scale) = whole::rescale(c, [1, 4], result, columns)?
            && !scale.is_tracked()
            && let Some(pair) = byte_operands(&factors, [0, 1], [2, 3])?
        {
            if result.is_none() {
                return one(pair.real(&scale, bias.as_ref())?);
            }
            if let Some(value) = pair.quantized(&scale, bias.as_ref(), (c, 8))? {
                return Ok(smallvec![value]);
            }
        }
    }
    // In f32, as ONNX Runtime multiplies its scales.
    let scale = ((single(c, 1)? * by_column(c, 4, columns)?)? * c.float("alpha", 1.0)?)?;
    let sums = whole_product(&factors, [0, 1], [2, 3])?;
    let sums = match bias {
        Some(bias) => (&sums + bias.expand(sums.shape())?.to_dtype(DType::I32)?)?,
        None => sums,
    };
    let sums = sums.to_dtype(DType::F32)?;
    if !c.has(7) {
        return one((sums * scale)?);
    }
    let quotients = (sums * (scale / single(c, 7)?)?)?;
    let (zero, element) = match c.has(8) {
        true => (single(c, 8)?, c.element(8)?),
        false => (Tensor::full((), 0i64, (c.device, DType::I32))?, c.element(0)?),
    };
    Ok(smallvec![requantized(&quotients, &zero, element)?])
}
