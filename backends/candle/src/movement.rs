//! Ops that move elements without reading their values.

use candle_core::Tensor;
use polygrad_core::{Axes, Element, Error, Result, Scalar, Shape, SliceRange, collect, dispatch_dtype};

use crate::engine::{afford, engine};
use crate::tensor::CandleTensor;
use crate::values::Item;

/// A view if candle can make one: if the elements are in order.
pub(crate) fn reshape(x: &CandleTensor, shape: Shape) -> Result<CandleTensor> {
    if x.shape() == shape {
        return Ok(x.clone());
    }
    let dense = x.raw().is_contiguous();
    if !dense {
        afford(shape.numel(), x.dtype()).map_err(|e| e.with_op("reshape"))?;
    }
    let reshaped = engine("reshape", || x.raw().reshape(shape.dims()))?;
    if dense {
        x.view(reshaped)
    } else {
        CandleTensor::fresh(reshaped, x.dtype())
    }
}

pub(crate) fn permute(x: &CandleTensor, axes: Axes) -> Result<CandleTensor> {
    if axes.iter().enumerate().all(|(i, axis)| i == axis) {
        return Ok(x.clone());
    }
    let axes: Vec<usize> = axes.iter().collect();
    x.view(engine("permute", || x.raw().permute(axes))?)
}

pub(crate) fn expand(x: &CandleTensor, shape: Shape) -> Result<CandleTensor> {
    if x.shape() == shape {
        return Ok(x.clone());
    }
    x.view(engine("expand", || x.raw().broadcast_as(shape.dims()))?)
}

/// A view for ranges without steps; since candle's strides are at least 0 and cannot be set, other ranges are gathered.
pub(crate) fn slice(x: &CandleTensor, ranges: &[SliceRange]) -> Result<CandleTensor> {
    let mut out = x.clone();
    for (axis, range) in ranges.iter().enumerate() {
        if range.is_full(x.shape()[axis]) {
            continue;
        }
        out = if range.step == 1 || range.len <= 1 {
            let start = if range.len == 0 { 0 } else { range.start };
            out.view(engine("slice", || out.raw().narrow(axis, start, range.len))?)?
        } else {
            let places = (0..range.len).map(|i| range.start as i64 + i as i64 * range.step as i64);
            let places = CandleTensor::of(Shape::from([range.len]), collect(places)?, &x.device())?;
            pick(&out, axis, &places)?
        };
    }
    Ok(out)
}

/// [`crate::index::index_select`], for an index that is known to be valid.
pub(crate) fn pick(x: &CandleTensor, axis: usize, index: &CandleTensor) -> Result<CandleTensor> {
    let shape = Shape::new(&x.shape().with_dim(axis, index.shape().numel()))?;
    if shape.numel() == 0 {
        return CandleTensor::full(shape, Scalar::Int(0), x.dtype(), &x.device());
    }
    let (dense, index) = (x.dense("index_select")?, index.dense("index_select")?);
    CandleTensor::made("index_select", shape.numel(), x.dtype(), || {
        dense.index_select(&index, axis)
    })
}

/// Pads axis by axis, by concatenation with the borders.
pub(crate) fn pad(x: &CandleTensor, padding: &[(usize, usize)], value: Scalar) -> Result<CandleTensor> {
    let padded = x.shape();
    let dims: Vec<usize> = padded
        .iter()
        .zip(padding)
        .map(|(&dim, &(before, after))| dim.saturating_add(before).saturating_add(after))
        .collect();
    // Fails before anything is allocated.
    let shape = Shape::new(&dims)?;
    if x.device().is_cpu() {
        return dispatch_dtype!(x.dtype(), T => framed::<T>(x, padding, shape, <T as Element>::from_scalar(value)));
    }
    let mut out = x.clone();
    for (axis, &(before, after)) in padding.iter().enumerate() {
        if before + after > 0 {
            let border = |dim| CandleTensor::full(out.shape().with_dim(axis, dim), value, x.dtype(), &x.device());
            out = concat(&[&border(before)?, &out, &border(after)?], axis)?;
        }
    }
    Ok(out)
}

/// Writes the border and its content once, while candle pads by concatenation, axis by axis.
fn framed<T: Item>(x: &CandleTensor, padding: &[(usize, usize)], shape: Shape, value: T) -> Result<CandleTensor> {
    let mut out = crate::engine::filled(shape.numel(), value).map_err(|e| e.with_op("pad"))?;
    let held = x.held("pad")?;
    let values = held.values::<T>()?;
    let inner = x.shape();
    let strides = shape.contiguous_strides();
    let first: isize = padding
        .iter()
        .zip(strides)
        .map(|(&(before, _), stride)| before as isize * stride)
        .sum();
    let target = polygrad_core::Layout::strided(inner, &strides[..inner.rank()], first as usize);
    let mut at = 0;
    target.rows(|start, count, _| {
        out[start..start + count].copy_from_slice(&values[at..at + count]);
        at += count;
    });
    CandleTensor::of(shape, out, &x.device())
}

pub(crate) fn concat(xs: &[&CandleTensor], axis: usize) -> Result<CandleTensor> {
    let Some(first) = xs.first() else {
        return Err(Error::invalid("there is nothing to join").with_op("cat"));
    };
    let dim = xs.iter().map(|x| x.shape()[axis]).sum();
    let shape = Shape::new(&first.shape().with_dim(axis, dim))?;
    // Empty tensors add nothing, and a single tensor is returned as it is.
    let parts: Vec<&CandleTensor> = xs.iter().copied().filter(|x| x.shape()[axis] > 0).collect();
    match parts[..] {
        [] => Ok((*first).clone()),
        [one] => Ok(one.clone()),
        _ if shape.numel() == 0 => CandleTensor::full(shape, Scalar::Int(0), first.dtype(), &first.device()),
        _ => CandleTensor::made("cat", shape.numel(), first.dtype(), || {
            Tensor::cat(&parts.iter().map(|x| x.raw()).collect::<Vec<_>>(), axis)
        }),
    }
}

/// Evenly spaced numbers, computed from their positions.
pub(crate) fn iota(
    len: usize,
    start: Scalar,
    step: Scalar,
    dtype: polygrad_core::DType,
    device: &crate::CandleDevice,
) -> Result<CandleTensor> {
    fn made<T: Item>(len: usize, f: impl Fn(usize) -> T, device: &crate::CandleDevice) -> Result<CandleTensor> {
        CandleTensor::of(Shape::new(&[len])?, collect((0..len).map(f))?, device)
    }
    dispatch_dtype!(dtype, T => match (start, step) {
        (Scalar::Float(_), _) | (_, Scalar::Float(_)) => {
            made(len, |i| <T as Element>::from_f64(start.to_f64() + i as f64 * step.to_f64()), device)
        }
        _ => made(len, |i| {
            <T as Element>::from_i64(start.to_i64().wrapping_add((i as i64).wrapping_mul(step.to_i64())))
        }, device),
    })
}
