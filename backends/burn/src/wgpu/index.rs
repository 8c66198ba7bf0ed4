//! Indexing ops. The index's values are checked on the device first, since Burn's kernels would read and write out of
//! bounds.

use burn_backend::ops::{FloatTensorOps, IntTensorOps};
use burn_backend::tensor::IndexingUpdateOp;
use burn_wgpu::CubeBackend;
use polygrad_core::{DType, Error, HostTensor, Result, Shape, SliceRange};

use crate::wgpu::host::{from_host, to_host};
use crate::wgpu::kernel;
use crate::wgpu::movement::{slice, write};
use crate::wgpu::support::refused;
use crate::wgpu::tensor::{BurnWgpuTensor as T, ensure_room};

/// Checks that all values of an index lie within an axis; waits for the device.
pub(crate) fn check(op: &'static str, index: &T, axis: usize, dim: usize) -> Result<()> {
    if index.is_empty() {
        return Ok(());
    }
    let found = from_host(&HostTensor::new(Shape::from([2]), vec![0i64, 0])?, index.device())?;
    kernel::outside(index, dim, &found);
    match to_host(&found)?.as_slice::<i64>()? {
        [1, i] => Err(Error::out_of_range(format!("index {i} is outside 0..{dim} of axis {axis}")).with_op(op)),
        _ => Ok(()),
    }
}

/// The leading corner of a tensor that has the extents of an index on all axes except one.
fn corner(x: &T, axis: usize, like: &Shape) -> Result<T> {
    let shape = x.shape();
    let extent = |i: usize| if i == axis { shape[i] } else { like[i] };
    let ranges: Vec<_> = (0..shape.rank()).map(|i| SliceRange::full(extent(i))).collect();
    slice(x, &ranges)
}

pub(crate) fn gather(x: &T, axis: usize, index: &T) -> Result<T> {
    let (dtype, out) = (x.dtype(), index.shape());
    check("gather", index, axis, x.shape()[axis])?;
    if out.numel() == 0 {
        return x.zeros(out, dtype);
    }
    ensure_room(&out, dtype, x.device())?;
    let x = corner(x, axis, &out)?;
    Ok(x.like(
        CubeBackend::float_gather(axis, x.operand(), index.operand()),
        out,
        dtype,
    ))
}

pub(crate) fn scatter(x: &T, axis: usize, index: &T, src: &T) -> Result<T> {
    update("scatter", IndexingUpdateOp::Assign, [x, index, src], axis)
}

pub(crate) fn scatter_add(x: &T, axis: usize, index: &T, src: &T) -> Result<T> {
    if x.dtype() == DType::Bool {
        return Err(refused("scatter_add", x.dtype(), x.device()));
    }
    update("scatter_add", IndexingUpdateOp::Add, [x, index, src], axis)
}

fn update(op: &'static str, how: IndexingUpdateOp, [x, index, src]: [&T; 3], axis: usize) -> Result<T> {
    let (shape, dtype, reach) = (x.shape(), x.dtype(), index.shape());
    check(op, index, axis, shape[axis])?;
    if reach.numel() == 0 {
        return Ok(x.clone());
    }
    ensure_room(&shape, dtype, x.device())?;
    let ranges: Vec<_> = reach.iter().map(|&dim| SliceRange::full(dim)).collect();
    let src = slice(src, &ranges)?;
    let place = corner(x, axis, &reach)?;
    let cubes = (place.operand(), index.operand(), src.operand());
    let changed = if dtype.is_float() {
        CubeBackend::float_scatter(axis, cubes.0, cubes.1, cubes.2, how)
    } else {
        CubeBackend::int_scatter(axis, cubes.0, cubes.1, cubes.2, how)
    };
    let changed = x.like(changed, place.shape(), dtype);
    if changed.shape() == shape {
        return Ok(changed);
    }
    let places: Vec<_> = changed.shape().iter().map(|&dim| (0, dim)).collect();
    Ok(write(x.clone(), &places, &changed))
}

pub(crate) fn index_select(x: &T, axis: usize, index: &T) -> Result<T> {
    let (shape, dtype) = (x.shape(), x.dtype());
    check("index_select", index, axis, shape[axis])?;
    let out = Shape::new(&shape.with_dim(axis, index.shape().numel()))?;
    if out.numel() == 0 {
        return x.zeros(out, dtype);
    }
    ensure_room(&out, dtype, x.device())?;
    Ok(x.like(
        CubeBackend::float_select(x.operand(), axis, index.operand()),
        out,
        dtype,
    ))
}
