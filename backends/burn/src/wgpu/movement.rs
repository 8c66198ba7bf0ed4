//! Ops that move elements without reading their values. Permuted and broadcast tensors are views. A part of a tensor is
//! a view if its start has the alignment that the adapter requires for bindings, else a copy.

use burn_backend::Slice;
use burn_backend::ops::{FloatTensorOps, IntTensorOps};
use burn_wgpu::{CubeBackend, CubeTensor};
use polygrad_core::{Axes, DType, Error, Result, Scalar, Shape, SliceRange};

use crate::BurnWgpuDevice;
use crate::wgpu::host::from_host;
use crate::wgpu::tensor::{BurnWgpuTensor as T, burn_shape, ensure_room};

pub(crate) fn reshape(x: &T, shape: Shape) -> T {
    if x.is_empty() || x.shape() == shape {
        return x.like(x.operand(), shape, x.dtype());
    }
    let cube = CubeBackend::float_reshape(x.operand(), burn_shape(&shape));
    x.like(cube, shape, x.dtype())
}

pub(crate) fn permute(x: &T, axes: Axes) -> Result<T> {
    let shape = x.shape();
    let turned = Shape::new(&axes.iter().map(|axis| shape[axis]).collect::<Vec<_>>())?;
    if x.is_empty() || axes.is_empty() {
        return Ok(x.like(x.operand(), turned, x.dtype()));
    }
    let axes: Vec<usize> = axes.iter().collect();
    Ok(x.like(CubeBackend::float_permute(x.operand(), &axes), turned, x.dtype()))
}

pub(crate) fn expand(x: &T, shape: Shape) -> T {
    if x.shape() == shape || shape.numel() == 0 {
        return x.like(x.operand(), shape, x.dtype());
    }
    x.like(
        CubeBackend::float_expand(x.operand(), burn_shape(&shape)),
        shape,
        x.dtype(),
    )
}

/// The range in Burn's form, in which a negative step means the same elements in reverse order.
fn range(range: SliceRange) -> Slice {
    let start = range.start as isize;
    let last = start + (range.len as isize - 1) * range.step;
    Slice::new(start.min(last), Some(start.max(last) + 1), range.step)
}

pub(crate) fn slice(x: &T, ranges: &[SliceRange]) -> Result<T> {
    let shape = Shape::new(&ranges.iter().map(|range| range.len).collect::<Vec<_>>())?;
    if shape.numel() == 0 {
        return x.zeros(shape, x.dtype());
    }
    if x.shape().iter().zip(ranges).all(|(&dim, range)| range.is_full(dim)) {
        return Ok(x.clone());
    }
    let ranges: Vec<Slice> = ranges.iter().map(|&given| range(given)).collect();
    Ok(x.like(CubeBackend::float_slice(x.operand(), &ranges), shape, x.dtype()))
}

/// Creates a border all around, and writes the tensor into it.
pub(crate) fn pad(x: &T, padding: &[(usize, usize)], value: Scalar) -> Result<T> {
    let shape = x.shape();
    let dims = shape.iter().zip(padding);
    let dims: Vec<usize> = dims
        .map(|(&dim, &(before, after))| dim.saturating_add(before).saturating_add(after))
        .collect();
    let out = T::full(Shape::new(&dims)?, value, x.dtype(), x.device())?;
    if x.is_empty() || shape.rank() == 0 {
        return Ok(if x.is_empty() { out } else { x.clone() });
    }
    let places: Vec<(usize, usize)> = shape
        .iter()
        .zip(padding)
        .map(|(&dim, &(before, _))| (before, dim))
        .collect();
    Ok(write(out, &places, x))
}

/// Writes `x` over a part of `out`, given the start and length on each axis.
pub(crate) fn write(out: T, places: &[(usize, usize)], x: &T) -> T {
    let place = |&(start, len): &(usize, usize)| Slice::new(start as isize, Some((start + len) as isize), 1);
    let places: Vec<Slice> = places.iter().map(place).collect();
    let (shape, dtype, device) = (out.shape(), out.dtype(), out.device());
    // Not through `operand`, which would make a second owner, so that Burn would copy first.
    let mut cube = CubeTensor::from(out);
    cube.dtype = x.operand().dtype;
    T::new(
        CubeBackend::float_slice_assign(cube, &places, x.operand()),
        shape,
        dtype,
        device,
    )
}

pub(crate) fn concat(xs: &[&T], axis: usize) -> Result<T> {
    let Some(first) = xs.first() else {
        return Err(Error::invalid("there is nothing to join").with_op("cat"));
    };
    let dim = xs.iter().map(|x| x.shape()[axis]).fold(0usize, usize::saturating_add);
    let (shape, dtype) = (Shape::new(&first.shape().with_dim(axis, dim))?, first.dtype());
    ensure_room(&shape, dtype, first.device())?;
    let parts: Vec<CubeTensor> = xs.iter().filter(|x| !x.is_empty()).map(|x| x.operand()).collect();
    if parts.is_empty() {
        return first.zeros(shape, dtype);
    }
    let joined = if dtype == DType::F32 {
        CubeBackend::float_cat(parts, axis)
    } else {
        CubeBackend::int_cat(parts, axis)
    };
    Ok(first.like(joined, shape, dtype))
}

/// `start + i * step`, computed from `i` on the host, as in Burn, and copied to the device.
pub(crate) fn iota(len: usize, start: Scalar, step: Scalar, dtype: DType, device: BurnWgpuDevice) -> Result<T> {
    let shape = Shape::new(&[len])?;
    ensure_room(&shape, DType::F64, device)?;
    let real = |i: usize| start.to_f64() + i as f64 * step.to_f64();
    let int = |i: usize| start.to_i64().wrapping_add((i as i64).wrapping_mul(step.to_i64()));
    let host = match (start, step) {
        (Scalar::Float(_), _) | (_, Scalar::Float(_)) => {
            polygrad_core::HostTensor::new(shape, (0..len).map(real).collect::<Vec<f64>>())?
        }
        _ => polygrad_core::HostTensor::new(shape, (0..len).map(int).collect::<Vec<i64>>())?,
    };
    from_host(&host.cast(dtype), device)
}
