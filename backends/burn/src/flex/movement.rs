//! Ops that move elements without reading their values. Views change only the layout.

use burn_flex::ops::{cat, slice as flex_slice};
use burn_std::Slice;
use polygrad_core::{Axes, DType, Error, Result, Scalar, Shape, SliceRange};

use crate::flex::compare::{as_dtype, plain};
use crate::flex::tensor::{BurnTensor, ensure_room};

pub(crate) fn reshape(x: &BurnTensor, shape: Shape) -> Result<BurnTensor> {
    match x.layout().reshape(shape) {
        Some(layout) => Ok(x.view(&layout)),
        None => {
            let copy = x.contiguous()?;
            match copy.layout().reshape(shape) {
                Some(layout) => Ok(copy.view(&layout)),
                None => unreachable!("what lies in row-major order has any shape of as many elements"),
            }
        }
    }
}

pub(crate) fn permute(x: &BurnTensor, axes: Axes) -> BurnTensor {
    x.view(&x.layout().permute(axes))
}

pub(crate) fn expand(x: &BurnTensor, shape: Shape) -> BurnTensor {
    if x.shape() == shape {
        return x.clone();
    }
    x.view(&x.layout().expand(shape))
}

pub(crate) fn slice(x: &BurnTensor, ranges: &[SliceRange]) -> BurnTensor {
    x.view(&x.layout().slice(ranges))
}

/// The part of a tensor between two bounds on one axis.
pub(crate) fn part(x: &BurnTensor, axis: usize, start: usize, len: usize) -> BurnTensor {
    let mut ranges: Vec<_> = x.shape().iter().map(|&dim| SliceRange::full(dim)).collect();
    ranges[axis] = SliceRange::new(start, len, 1);
    slice(x, &ranges)
}

/// Creates a border all around, and writes the tensor into it.
pub(crate) fn pad(x: &BurnTensor, padding: &[(usize, usize)], value: Scalar) -> Result<BurnTensor> {
    let shape = x.shape();
    let dims = shape.iter().zip(padding);
    let dims: Vec<usize> = dims
        .map(|(&dim, &(before, after))| dim.saturating_add(before).saturating_add(after))
        .collect();
    let out = BurnTensor::full(Shape::new(&dims)?, value, x.dtype())?;
    if shape.numel() == 0 {
        return Ok(out);
    }
    let place =
        |(&dim, &(before, _)): (&usize, &(usize, usize))| Slice::new(before as isize, Some((before + dim) as isize), 1);
    let places: Vec<Slice> = shape.iter().zip(padding).map(place).collect();
    write(out, &places, x)
}

/// Writes `x` over a part of `out`, in place if `out` is not shared.
pub(crate) fn write(out: BurnTensor, places: &[Slice], x: &BurnTensor) -> Result<BurnTensor> {
    if places.is_empty() {
        return Ok(x.clone());
    }
    let dtype = out.dtype();
    let x = plain(&x.contiguous()?);
    // Not through `plain`, which would make a second owner.
    let out = burn_flex::FlexTensor::from(out);
    Ok(as_dtype(
        BurnTensor::new(flex_slice::slice_assign(out, places, x.flex().clone())),
        dtype,
    ))
}

pub(crate) fn concat(xs: &[&BurnTensor], axis: usize) -> Result<BurnTensor> {
    let Some(first) = xs.first() else {
        return Err(Error::invalid("there is nothing to join").with_op("cat"));
    };
    let dim = xs.iter().map(|x| x.shape()[axis]).fold(0usize, usize::saturating_add);
    let shape = Shape::new(&first.shape().with_dim(axis, dim))?;
    let dtype = first.dtype();
    ensure_room(&shape, dtype)?;
    let parts = xs
        .iter()
        .map(|x| Ok(x.contiguous()?.flex().clone()))
        .collect::<Result<Vec<_>>>()?;
    Ok(as_dtype(BurnTensor::new(cat::cat(parts, axis)), dtype))
}

/// `start + i * step`, computed from `i`. Burn supports only integers with step 1.
pub(crate) fn iota(len: usize, start: Scalar, step: Scalar, dtype: DType) -> Result<BurnTensor> {
    let shape = Shape::new(&[len])?;
    ensure_room(&shape, DType::F64)?;
    let real = |i: usize| start.to_f64() + i as f64 * step.to_f64();
    let int = |i: usize| start.to_i64().wrapping_add((i as i64).wrapping_mul(step.to_i64()));
    let x = match (start, step) {
        (Scalar::Float(_), _) | (_, Scalar::Float(_)) => BurnTensor::from_values(shape, (0..len).map(real).collect()),
        _ => BurnTensor::from_values(shape, (0..len).map(int).collect::<Vec<i64>>()),
    };
    crate::flex::compare::cast(&x, dtype)
}
