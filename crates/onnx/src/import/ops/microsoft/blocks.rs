//! Weights of few bits in blocks, each with a scale and a zero point.

use polygrad_core::{BlockScheme, DType, Error, Result};
use polygrad_tensor::{RoundingMode, Tensor};

use super::ms;
use crate::graph::malformed;
use crate::import::call::{Call, List, Results, one};
use crate::import::ops::gather::take;
use crate::import::ops::row::rows;

rows! {
    ms("MatMulNBits", product);
    ms("MatMulBnb4", looked_up_product);
    ms("GatherBlockQuantized", gathered);
}

/// The numbers that four bits stand for with the `quant_type` 0 (FP4) and 1 (NF4).
///
/// Source: bitsandbytes, whose weights MatMulBnb4 holds.
const TABLES: [[f32; 16]; 2] = [
    [
        0.0,
        0.0052083333,
        0.6666667,
        1.0,
        0.33333334,
        0.5,
        0.16666667,
        0.25,
        -0.0,
        -0.0052083333,
        -0.6666667,
        -1.0,
        -0.33333334,
        -0.5,
        -0.16666667,
        -0.25,
    ],
    [
        -1.0,
        -0.6961928,
        -0.52507305,
        -0.3949175,
        -0.28444138,
        -0.18477343,
        -0.091050036,
        0.0,
        0.0795803,
        0.1609302,
        0.2461123,
        0.33791524,
        0.44070983,
        0.562617,
        0.72295684,
        1.0,
    ],
];

/// The `accuracy_level` that lets the operand be rounded to int8.
const ROUNDED: i64 = 4;

/// The attribute `bits`, which says how many numbers of a byte there are.
fn bits(c: &Call<'_>) -> Result<usize> {
    match c.int("bits", 4)? {
        bits @ (2 | 4 | 8) => Ok(bits as usize),
        bits => Err(malformed(format!("numbers of {bits} bits: they have 2, 4 or 8"))),
    }
}

fn block_size(c: &Call<'_>, default: usize) -> Result<usize> {
    match c.count("block_size", default)? {
        size if size >= 16 && size.is_power_of_two() => Ok(size),
        size => Err(malformed(format!(
            "a block_size of {size}: it is a power of two from 16 on"
        ))),
    }
}

/// Unpacks `count` numbers from bytes along the last axis; the low bits come first.
fn unpacked(c: &Call<'_>, bytes: &Tensor, bits: usize, count: usize) -> Result<Tensor> {
    let mut dims = bytes.dims();
    let each = 8 / bits;
    let Some(last) = dims.last_mut() else {
        return Err(Error::shape("packed numbers without an axis"));
    };
    *last *= each;
    if *last < count {
        return Err(Error::shape(format!("{last} packed numbers of {count}")));
    }
    c.reserve(&dims, DType::I32)?;
    let x = bytes.to_dtype(DType::I32)?;
    let mut parts = List::new();
    for i in 0..each {
        let shifted = match i {
            0 => x.clone(),
            _ => x.div_rounded(&x.full_like(1i64 << (bits * i))?, RoundingMode::Floor)?,
        };
        parts.push((shifted % (1i64 << bits))?);
    }
    let parts: Vec<&Tensor> = parts.iter().collect();
    Tensor::stack(&parts, -1)?.reshape(dims)?.narrow(-1, 0, count)
}

/// The weight of MatMulNBits as it stays packed: bytes, scales and zero points, from operands `[N, blocks, bytes of a
/// block]`, and scales and zero points of each block. Elements of 2 bits are widened to 4.
pub(crate) fn packed_weight(c: &Call<'_>) -> Result<([Tensor; 3], BlockScheme)> {
    let (rows, columns, bits, size) = (c.count("N", 0)?, c.count("K", 0)?, bits(c)?, block_size(c, 0)?);
    let (packed, blocks) = (c.x(1)?, columns.div_ceil(size));
    let scheme = BlockScheme::new(bits.max(4), size)?;
    let bytes = size / 8 * bits;
    if packed.dtype() != DType::U8 || Some(packed.numel()) != rows.checked_mul(blocks * bytes) {
        return Err(Error::shape(format!(
            "a weight of shape {} for {columns} to {rows} features in blocks of {size}",
            packed.shape()
        )));
    }
    let mut packed = packed.reshape([rows, blocks * bytes])?;
    if bits == 2 {
        let pairs = unpacked(c, &packed, bits, blocks * size)?.reshape([rows, blocks * size / 2, 2])?;
        let high = (pairs.select(-1, 1)? * 16i64)?;
        packed = pairs.select(-1, 0)?.add(&high)?.to_dtype(DType::U8)?;
    }
    let each = |i: usize, x: Tensor| match x.numel() == rows * blocks {
        true => x.reshape([rows, blocks]),
        false => Err(Error::shape(format!(
            "operand {i} of shape {} for {rows} rows of {blocks} blocks",
            x.shape()
        ))),
    };
    let scales = each(2, c.x(2)?)?;
    let zeros = match c.opt(3)? {
        None => c.full(&[1], 1i64 << (bits - 1), DType::U8)?,
        Some(zero) if zero.dtype().is_float() => each(3, zero)?,
        Some(zero) => {
            let bytes = (blocks * bits).div_ceil(8);
            if zero.numel() != rows * bytes {
                return Err(Error::shape(format!(
                    "operand 3 of shape {} for {rows} rows of {blocks} blocks of {bits} bits",
                    zero.shape()
                )));
            }
            unpacked(c, &zero.reshape([rows, bytes])?, bits, blocks)?.to_dtype(DType::U8)?
        }
    };
    // Where ONNX Runtime multiplies whole numbers; it has no such product of floats as zero points, nor of 2 bits in
    // the smallest blocks.
    let rounds = c.int("accuracy_level", 0)? == ROUNDED && !zeros.dtype().is_float() && (bits, size) != (2, 16);
    Ok(([packed, scales, zeros], scheme.with_rounded_input(rounds)))
}

/// The product of operand 0 of MatMulNBits and its weight from [`packed_weight`], with an optional bias.
pub(crate) fn packed_product(
    c: &Call<'_>,
    [weight, scales, zeros]: [&Tensor; 3],
    scheme: BlockScheme,
    bias: Option<&Tensor>,
) -> Result<Tensor> {
    let mut x = c.x(0)?;
    let shape = x.shape();
    let (rows, columns) = (c.count("N", 0)?, c.count("K", 0)?);
    if shape.last() != Some(&columns) {
        return Err(Error::shape(format!(
            "{shape} for a weight of {columns} to {rows} features"
        )));
    }
    let mut dims = shape.to_vec();
    dims[shape.rank() - 1] = rows;
    c.reserve(&dims, x.dtype())?;
    if let Some(bias) = bias.filter(|bias| bias.shape().dims() != [rows]) {
        return Err(Error::shape(format!(
            "a bias of shape {} for {rows} features",
            bias.shape()
        )));
    }
    // The last block of a row may extend past the row's end.
    let rest = columns.next_multiple_of(scheme.size()) - columns;
    if rest > 0 {
        let mut border = vec![(0, 0); shape.rank()];
        border[shape.rank() - 1].1 = rest;
        x = x.pad(&border, 0.0)?;
    }
    let y = x.quantized_linear([weight, scales, zeros], scheme)?;
    bias.map_or(Ok(y.clone()), |bias| y.add(bias))
}

fn product(c: &Call<'_>) -> Results {
    if c.has(4) || c.flag("weight_prepacked", false)? {
        return Err(Error::unsupported("g_idx and weight_prepacked are not computed here")
            .with_hint("quantize the model without an order of its own, for the CPU"));
    }
    let ([weight, scales, zeros], scheme) = packed_weight(c)?;
    let bias = c.opt(5)?;
    one(packed_product(c, [&weight, &scales, &zeros], scheme, bias.as_ref())?)
}

/// The real weight of MatMulBnb4, `[N, K]`: four bits are a place in a table, and blocks go on from row to row.
pub(crate) fn looked_up_weight(c: &Call<'_>) -> Result<Tensor> {
    let (rows, columns, size) = (c.count("N", 0)?, c.count("K", 0)?, block_size(c, 0)?);
    let table = match c.int("quant_type", -1)? {
        kind @ (0 | 1) => TABLES[kind as usize].to_vec(),
        kind => {
            return Err(malformed(format!(
                "a quant_type of {kind}: it is 0 for FP4 or 1 for NF4"
            )));
        }
    };
    if !c.flag("transB", true)? {
        return Err(Error::unsupported("a transB of 0 is not computed here").with_hint(
            "write the node with transB = 1, as ONNX Runtime's quantizer does; its own CPU kernel ignores 0",
        ));
    }
    let (packed, scales) = (c.x(1)?, c.x(2)?);
    let count = rows.saturating_mul(columns);
    if packed.dtype() != DType::U8 || packed.numel() != count.div_ceil(2) || scales.numel() != count.div_ceil(size) {
        return Err(Error::shape(format!(
            "a weight of shape {} and scales of shape {} for {columns} to {rows} features in blocks of {size}",
            packed.shape(),
            scales.shape()
        )));
    }
    c.reserve(&[count], DType::F32)?;
    let pairs = packed.reshape([packed.numel()])?.to_dtype(DType::I32)?;
    // The high bits come first.
    let high = pairs.div_rounded(&pairs.full_like(16i64)?, RoundingMode::Floor)?;
    let places = Tensor::stack(&[&high, &(&pairs % 16i64)?], -1)?.reshape([2 * packed.numel()])?;
    let values = c.make(table, &[16])?.index_select(0, &places.narrow(0, 0, count)?)?;
    let scales = scales.reshape([scales.numel()])?;
    let weight = (values * blocks_along(c, &scales.to_dtype(DType::F32)?, 0, &places.narrow(0, 0, count)?, size)?)?;
    weight.to_dtype(scales.dtype())?.reshape([rows, columns])
}

fn looked_up_product(c: &Call<'_>) -> Results {
    let x = c.x(0)?;
    let weight = looked_up_weight(c)?;
    let mut dims = x.dims();
    if dims.last() != Some(&weight.shape()[1]) {
        return Err(Error::shape(format!(
            "{} for a weight of {} to {} features",
            x.shape(),
            weight.shape()[1],
            weight.shape()[0]
        )));
    }
    let last = dims.len() - 1;
    dims[last] = weight.shape()[0];
    c.reserve(&dims, x.dtype())?;
    one(x.matmul(&weight.t()?)?)
}

fn gathered(c: &Call<'_>) -> Results {
    let (element, data, index) = (c.element(0)?, c.x(0)?, c.x(1)?);
    let Some((low, _)) = element.range().filter(|_| element.bits() <= 8) else {
        return Err(Error::dtype(format!(
            "rows of {element}: they are int4, uint4 or uint8"
        )));
    };
    let packed = element.bits() == 8;
    if packed && low < 0 {
        return Err(Error::dtype("rows of int8: they are int4, uint4 or uint8"));
    }
    let (bits, size, rank) = (if packed { bits(c)? } else { 4 }, block_size(c, 128)?, data.rank());
    let (along, across) = (c.axis("gather_axis", 0, rank)?, c.axis("quantize_axis", 1, rank)?);
    if along == across || (packed && along != 0) {
        return Err(malformed(format!(
            "rows are gathered along axis {along}, and in blocks along {across}"
        )));
    }
    // Rows out of range are zeros.
    let extent = data.shape()[along] as i64;
    let index = index.to_dtype(DType::I64)?;
    let inside = index.ge(-extent)?.logical_and(&index.lt(extent)?)?;
    let index = index.masked_fill(&inside.logical_not()?, 0i64)?;
    let count = |extent: usize| if packed { extent * (8 / bits) } else { extent };
    let pick = |i: usize, x: Tensor, last: Option<usize>| -> Result<Tensor> {
        if x.rank() != rank || x.shape()[along] != data.shape()[along] {
            return Err(Error::shape(format!(
                "operand {i} of shape {} for {}",
                x.shape(),
                data.shape()
            )));
        }
        let x = take(c, &x, along, &index)?;
        match last {
            Some(last) if packed && bits < 8 => unpacked(c, &x, bits, last),
            _ => Ok(x),
        }
    };
    let scale = c.x(2)?;
    let dtype = scale.dtype();
    let last = |x: &Tensor| x.shape().last().copied();
    let values = pick(0, data.clone(), last(&data).map(count))?.to_dtype(DType::F32)?;
    let zero = match c.opt(3)? {
        Some(zero) => Some(pick(3, zero, last(&scale))?.to_dtype(DType::F32)?),
        None => None,
    };
    let scale = pick(2, scale, None)?.to_dtype(DType::F32)?;
    let axis = if across > along {
        across + index.rank() - 1
    } else {
        across
    };
    let spread = |x: &Tensor| blocks_along(c, x, axis, &values, size);
    let centered = match &zero {
        Some(zero) => (&values - spread(zero)?)?,
        None if packed => (&values - (1i64 << (bits - 1)) as f64)?,
        None => values.clone(),
    };
    let y = (centered * spread(&scale)?)?;
    let mut dims = vec![1; y.rank()];
    dims[along..along + index.rank()].copy_from_slice(&index.shape());
    let outside = inside.logical_not()?.reshape(dims)?.expand(y.shape())?;
    one(y.masked_fill(&outside, 0.0)?.to_dtype(dtype)?)
}

/// Expands a number for each block of `values` along an axis to each element of the block.
fn blocks_along(c: &Call<'_>, x: &Tensor, axis: usize, values: &Tensor, size: usize) -> Result<Tensor> {
    let extent = values.shape()[axis];
    if x.shape()[axis] != extent.div_ceil(size) {
        return Err(Error::shape(format!(
            "blocks of {size} do not fit {} and {}",
            values.shape(),
            x.shape()
        )));
    }
    let index = c.collect((0..extent).map(|i| (i / size) as i64))?;
    x.index_select(axis as isize, &c.make(index, &[extent])?)
}
