//! Indexing ops. The index's values are checked here, since Burn panics on values outside an axis.

use burn_flex::FlexTensor;
use burn_flex::ops::gather_scatter as flex;
use burn_std::Slice;
use polygrad_core::{DType, Element, Error, Result, Scalar, Shape, SliceRange};

use crate::flex::compare::{as_dtype, cast, plain};
use crate::flex::integer::stored;
use crate::flex::movement::{slice, write};
use crate::flex::support::refused;
use crate::flex::tensor::{BurnTensor, ensure_room};

/// The index in row-major order, with values checked against the axis.
pub(crate) fn checked(op: &'static str, index: &BurnTensor, axis: usize, dim: usize) -> Result<BurnTensor> {
    let index = index.contiguous()?;
    let values = index.values::<i64>().ok_or_else(|| refused(op, index.dtype()))?;
    match values.iter().find(|&&i| usize::try_from(i).map_or(true, |i| i >= dim)) {
        None => Ok(index),
        Some(i) => Err(Error::out_of_range(format!("index {i} is outside 0..{dim} of axis {axis}")).with_op(op)),
    }
}

/// The leading corner of a tensor that has the extents of an index on all axes except one.
fn corner(x: &BurnTensor, axis: usize, like: &Shape) -> BurnTensor {
    let shape = x.shape();
    let extent = |i: usize| if i == axis { shape[i] } else { like[i] };
    let ranges: Vec<_> = (0..shape.rank()).map(|i| SliceRange::full(extent(i))).collect();
    slice(x, &ranges)
}

pub(crate) fn gather(x: &BurnTensor, axis: usize, index: &BurnTensor) -> Result<BurnTensor> {
    let dtype = x.dtype();
    let index = checked("gather", index, axis, x.shape()[axis])?;
    let out = index.shape();
    if out.numel() == 0 {
        return BurnTensor::full(out, Scalar::Int(0), dtype);
    }
    ensure_room(&out, dtype)?;
    let x = plain(&corner(x, axis, &out)).contiguous()?.into();
    let found = stored!(dtype, T => flex::gather::<T>(x, axis, index.into()));
    Ok(as_dtype(BurnTensor::new(found), dtype))
}

/// Runs `update` on the corner of `x` that the index covers.
fn in_corner(
    x: &BurnTensor,
    axis: usize,
    index: &Shape,
    update: impl FnOnce(BurnTensor) -> Result<BurnTensor>,
) -> Result<BurnTensor> {
    let shape = x.shape();
    if index.numel() == 0 {
        return Ok(x.clone());
    }
    ensure_room(&shape, x.dtype())?;
    if shape.with_dim(axis, 1) == index.with_dim(axis, 1) {
        return update(x.contiguous()?);
    }
    let changed = update(corner(x, axis, index).contiguous()?)?;
    let places: Vec<_> = changed
        .shape()
        .iter()
        .map(|&dim| Slice::new(0, Some(dim as isize), 1))
        .collect();
    // `x` stays unchanged: `write` copies shared memory once.
    write(x.contiguous()?, &places, &changed)
}

fn like_index(src: &BurnTensor, index: &Shape) -> BurnTensor {
    let ranges: Vec<_> = index.iter().map(|&dim| SliceRange::full(dim)).collect();
    slice(src, &ranges)
}

pub(crate) fn scatter(x: &BurnTensor, axis: usize, index: &BurnTensor, src: &BurnTensor) -> Result<BurnTensor> {
    let dtype = x.dtype();
    let index = checked("scatter", index, axis, x.shape()[axis])?;
    let shape = index.shape();
    let src: FlexTensor = plain(&like_index(src, &shape)).contiguous()?.into();
    in_corner(x, axis, &shape, |x| {
        let x = plain(&x).into();
        let out = stored!(dtype, T => flex::scatter_assign::<T>(x, axis, index.into(), src));
        Ok(as_dtype(BurnTensor::new(out), dtype))
    })
}

pub(crate) fn scatter_add(x: &BurnTensor, axis: usize, index: &BurnTensor, src: &BurnTensor) -> Result<BurnTensor> {
    let dtype = x.dtype();
    if matches!(dtype, DType::F16 | DType::BF16) {
        let (x, src) = (cast(x, DType::F32)?, cast(src, DType::F32)?);
        return cast(&scatter_add(&x, axis, index, &src)?, dtype);
    }
    let index = checked("scatter_add", index, axis, x.shape()[axis])?;
    let shape = index.shape();
    let src = like_index(src, &shape).contiguous()?;
    in_corner(x, axis, &shape, |x| match dtype {
        DType::F32 => Ok(BurnTensor::new(flex::scatter_add::<f32>(
            x.into(),
            axis,
            index.into(),
            src.into(),
        ))),
        DType::F64 => Ok(BurnTensor::new(flex::scatter_add::<f64>(
            x.into(),
            axis,
            index.into(),
            src.into(),
        ))),
        DType::Bool => Err(refused("scatter_add", dtype)),
        _ => add_integers(&x, axis, &index, &src),
    })
}

/// Adds with wrapping, while Burn's addition panics on overflow in a debug build.
fn add_integers(x: &BurnTensor, axis: usize, index: &BurnTensor, src: &BurnTensor) -> Result<BurnTensor> {
    let (shape, count) = (x.shape(), index.shape()[axis]);
    let (dim, inner) = (shape[axis], shape[axis + 1..].iter().product::<usize>());
    stored!(x.dtype(), T => {
        let (Some(values), Some(index), Some(src)) = (x.values::<T>(), index.values::<i64>(), src.values::<T>()) else {
            return Err(refused("scatter_add", x.dtype()));
        };
        let mut out = values.to_vec();
        for (i, (&to, &term)) in index.iter().zip(src).enumerate() {
            let place = (i / (count * inner) * dim + to as usize) * inner + i % inner;
            out[place] = T::from_i64(Element::to_i64(out[place]).wrapping_add(Element::to_i64(term)));
        }
        Ok(BurnTensor::from_values(shape, out))
    })
}

pub(crate) fn index_select(x: &BurnTensor, axis: usize, index: &BurnTensor) -> Result<BurnTensor> {
    let (shape, dtype) = (x.shape(), x.dtype());
    let index = checked("index_select", index, axis, shape[axis])?;
    let out = Shape::new(&shape.with_dim(axis, index.shape().numel()))?;
    if out.numel() == 0 {
        return BurnTensor::full(out, Scalar::Int(0), dtype);
    }
    ensure_room(&out, dtype)?;
    let x = plain(&x.contiguous()?).into();
    let found = stored!(dtype, T => flex::select::<T>(x, axis, index.into()));
    Ok(as_dtype(BurnTensor::new(found), dtype))
}

pub(crate) fn index_add(x: &BurnTensor, axis: usize, index: &BurnTensor, src: &BurnTensor) -> Result<BurnTensor> {
    let dtype = x.dtype();
    if !matches!(dtype, DType::F32 | DType::F64) || src.shape().numel() == 0 {
        return polygrad_core::decompose::index_add::<crate::Burn>(x, axis, index, src);
    }
    let index = checked("index_add", index, axis, x.shape()[axis])?;
    ensure_room(&x.shape(), dtype)?;
    let (x, src) = (x.contiguous()?, src.contiguous()?);
    Ok(BurnTensor::new(match dtype {
        DType::F32 => flex::select_add::<f32>(x.into(), axis, index.into(), src.into()),
        _ => flex::select_add::<f64>(x.into(), axis, index.into(), src.into()),
    }))
}
