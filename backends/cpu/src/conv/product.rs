//! Convolution and its gradients as matrix products with the columns of each image.

use std::sync::{Mutex, PoisonError};

use polygrad_core::{Element, Result};
use polygrad_cpu_kernels::conv::Epilogue;
use polygrad_cpu_kernels::conv::geometry::Geometry;

use super::columns::{fold, unfold};
use crate::Pointer;
use crate::buffers::Buffer;
use crate::gemm::{Dims, Mat, MatMut, Real, Update, cost, gemm};
use crate::{CpuDevice, CpuTensor};

/// Number of parts in which the weight's gradient is summed up. It does not depend on the number of threads, so that
/// the result does not either.
const PARTS: usize = 8;

/// The fewest output positions from which a pointwise image is better multiplied in place as a matrix: rows of B are
/// long enough, and the product need not be transposed.
const WIDE: usize = 128;

/// Whether the matrix product is the best way, though a direct kernel is possible.
pub(super) fn suits(g: &Geometry) -> bool {
    g.is_pointwise() && g.out_plane() >= WIDE
}

/// Approximate size in bytes of the results to which the epilogue is applied while they are in the cache.
const STRIP: usize = 256 << 10;

/// Calls `task(image, group, columns)` for each image and group, with scratch memory for its columns if it needs any.
fn each_image<T: Real>(
    device: CpuDevice,
    g: &Geometry,
    images: std::ops::Range<usize>,
    task: impl Fn(usize, usize, *mut T) -> Result<()> + Sync,
) -> Result<()> {
    let failed = Mutex::new(None);
    let dims = Dims {
        m: g.outputs,
        n: g.out_plane(),
        k: g.rows(),
    };
    let ns = 2.0 * cost(dims, device.level()) + (g.rows() * g.out_plane()) as f32;
    let first = images.start;
    device.each(images.len() * g.groups, ns, |i| {
        let columns = if g.is_pointwise() { 0 } else { g.rows() * g.out_plane() };
        let room = columns * size_of::<T>();
        let done = Buffer::alloc(room)
            .and_then(|columns| task(first + i / g.groups, i % g.groups, columns.as_ptr().cast::<T>()));
        if let Err(error) = done {
            failed
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get_or_insert(error);
        }
    });
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        None => Ok(()),
        Some(error) => Err(error),
    }
}

/// `x`, `weight` and `out` are contiguous. The epilogue is supported only for f32.
pub(super) fn forward<T: Real + Element>(
    x: &CpuTensor,
    weight: &CpuTensor,
    out: &mut CpuTensor,
    g: &Geometry,
    epilogue: Option<&Epilogue<'_>>,
) -> Result<()> {
    let device = x.device();
    let (x, weight) = (
        Pointer(x.typed::<T>()?.cast_mut()),
        Pointer(weight.typed::<T>()?.cast_mut()),
    );
    let to = Pointer(out.ptr_mut().cast::<T>());
    let (rows, positions) = (g.rows(), g.out_plane());
    let strip = match epilogue {
        Some(_) if g.is_pointwise() => (STRIP / (g.outputs * size_of::<T>())).max(1).next_multiple_of(WIDE),
        _ => positions,
    };
    each_image(device, g, 0..g.batch, |image, group, columns| {
        let from = x.at(g.image(image, group)).cast_const();
        // SAFETY: all offsets are those of the image and the group; each task writes to its own part of the output.
        unsafe {
            let columns = if g.is_pointwise() {
                from
            } else {
                unfold(g, from, columns);
                columns.cast_const()
            };
            let filters = Mat::new(weight.at(g.filters(group)).cast_const(), rows.cast_signed(), 1);
            for first in (0..positions).step_by(strip) {
                let n = strip.min(positions - first);
                let dims = Dims {
                    m: g.outputs,
                    n,
                    k: rows,
                };
                let columns = Mat::new(columns.add(first), positions.cast_signed(), 1);
                let place = g.out_image(image, group) + first;
                let out = MatMut::new(to.at(place), positions.cast_signed(), 1);
                gemm(device, dims, filters, columns, out, Update::set())?;
                if let Some(epilogue) = epilogue {
                    epilogue.run_planes(
                        device,
                        group * g.outputs..(group + 1) * g.outputs,
                        to.at(0).cast(),
                        (place, positions),
                        n,
                    );
                }
            }
        }
        Ok(())
    })
}

/// `grad`, `weight` and `out`, which has the input's shape, are contiguous.
pub(super) fn input_grad<T: Real + Element>(
    grad: &CpuTensor,
    weight: &CpuTensor,
    out: &mut CpuTensor,
    g: &Geometry,
) -> Result<()> {
    let device = grad.device();
    let (grad, weight) = (
        Pointer(grad.typed::<T>()?.cast_mut()),
        Pointer(weight.typed::<T>()?.cast_mut()),
    );
    let to = Pointer(out.ptr_mut().cast::<T>());
    let (rows, positions) = (g.rows(), g.out_plane());
    let dims = Dims {
        m: rows,
        n: positions,
        k: g.outputs,
    };
    each_image(device, g, 0..g.batch, |image, group, columns| {
        let to = to.at(g.image(image, group));
        // SAFETY: all offsets are those of the image and the group; each task writes to its own part of the output.
        unsafe {
            let filters = Mat::new(weight.at(g.filters(group)).cast_const(), rows.cast_signed(), 1);
            let grad = Mat::new(
                grad.at(g.out_image(image, group)).cast_const(),
                positions.cast_signed(),
                1,
            );
            let target = if g.is_pointwise() { to } else { columns };
            let product = MatMut::new(target, positions.cast_signed(), 1);
            gemm(device, dims, filters.transposed(), grad, product, Update::set())?;
            if !g.is_pointwise() {
                (0..g.inputs * g.plane()).for_each(|i| to.add(i).write(T::ZERO));
                fold(g, columns.cast_const(), to);
            }
        }
        Ok(())
    })
}

/// `grad`, `x` and `out`, which has the weight's shape, are contiguous.
pub(super) fn weight_grad<T: Real + Element>(
    grad: &CpuTensor,
    x: &CpuTensor,
    out: &mut CpuTensor,
    g: &Geometry,
) -> Result<()> {
    let device = x.device();
    let (grad, x) = (
        Pointer(grad.typed::<T>()?.cast_mut()),
        Pointer(x.typed::<T>()?.cast_mut()),
    );
    let to = Pointer(out.ptr_mut().cast::<T>());
    let (rows, positions) = (g.rows(), g.out_plane());
    let size = g.groups * g.outputs * rows;
    let share = g.batch.div_ceil(PARTS).max(1);
    let parts = g.batch.div_ceil(share);
    let sums = Buffer::alloc(parts * size * size_of::<T>())?;
    let sums_ptr = Pointer(sums.as_ptr().cast::<T>());
    let dims = Dims {
        m: g.outputs,
        n: rows,
        k: positions,
    };
    // A part is one task, which adds up its images in order.
    let whole = Geometry { batch: parts, ..*g };
    each_image(device, &whole, 0..parts, |part, group, columns| {
        let sum = sums_ptr.at(part * size + g.filters(group));
        for image in part * share..g.batch.min((part + 1) * share) {
            let from = x.at(g.image(image, group)).cast_const();
            // SAFETY: all offsets are those of the image and the group; each task adds up in its own part.
            unsafe {
                let columns = if g.is_pointwise() {
                    from
                } else {
                    unfold(g, from, columns);
                    columns.cast_const()
                };
                let grad = Mat::new(
                    grad.at(g.out_image(image, group)).cast_const(),
                    positions.cast_signed(),
                    1,
                );
                let columns = Mat::new(columns, positions.cast_signed(), 1).transposed();
                let update = if image == part * share {
                    Update::set()
                } else {
                    Update::add()
                };
                gemm(
                    device,
                    dims,
                    grad,
                    columns,
                    MatMut::new(sum, rows.cast_signed(), 1),
                    update,
                )?;
            }
        }
        Ok(())
    })?;
    device.split(size, parts as f32, 16, |start, end| {
        for i in start..end {
            // SAFETY: inside each part and the output; every range is written once.
            unsafe {
                let sum = (0..parts).fold(T::ZERO, |sum, part| sum.plus(*sums_ptr.at(part * size + i)));
                to.at(i).write(sum);
            }
        }
    });
    Ok(())
}
