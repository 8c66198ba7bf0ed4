//! Pooling.

use std::sync::OnceLock;

use polygrad_core::{DType, Error, PoolParams, Result, Shape, dispatch_dtype};

use super::max_rows::MaxRows;
use super::max_values::max_values;
use super::{vectors_on, wide};
use crate::CpuTensor;
use crate::Pointer;
use crate::ops::half::Half;
use crate::ops::{convert, floats, numbers};
use polygrad_cpu_kernels::conv::geometry::Geometry;
use polygrad_cpu_kernels::conv::lanes::{self, Fold};

fn sees_nothing(op: &'static str, x: &CpuTensor) -> Error {
    Error::invalid("a window lies wholly in the border")
        .with_op(op)
        .with_operands([(*x.shape(), x.dtype())])
        .with_hint("use less padding or dilation")
}

fn prepare(op: &'static str, x: &CpuTensor, params: &PoolParams) -> Result<(CpuTensor, Shape, Geometry)> {
    let operands = [(*x.shape(), x.dtype())];
    let shape = params
        .output_shape(x.shape())
        .map_err(|error| error.with_op(op).with_operands(operands))?;
    let geometry = Geometry::of_pool(x.shape(), &shape, params);
    // Every window must contain at least one element of the input.
    let blind = (0..3).any(|axis| {
        (0..geometry.output[axis]).any(|at| {
            let (first, end, _) = geometry.taps_inside(axis, at);
            first == end
        })
    });
    if blind && shape.numel() > 0 {
        return Err(sees_nothing(op, x));
    }
    Ok((x.contiguous()?, shape, geometry))
}

/// See [`polygrad_core::Backend::max_pool`].
pub(crate) fn max_pool(x: &CpuTensor, params: &PoolParams, positions: bool) -> Result<(CpuTensor, Option<CpuTensor>)> {
    numbers("max_pool", x.dtype())?;
    if Half::of(x.dtype()).is_some() {
        let (values, places) = max_pool(&wide(x)?, params, positions)?;
        return Ok((convert::cast(&values, x.dtype())?, places));
    }
    let (x, shape, g) = prepare("max_pool", x, params)?;
    let mut values = CpuTensor::empty(shape, x.dtype(), x.device())?;
    let empty = || CpuTensor::empty(shape, DType::I64, x.device());
    let mut places = positions.then(empty).transpose()?;
    let (plane, out_plane) = (g.plane(), g.out_plane());
    if shape.numel() == 0 {
        return Ok((values, places));
    }
    let vectors = x.device().vectors();
    let alone = !positions && g.dilation == [1; 3];
    if let (DType::F32, Some(level)) = (x.dtype(), vectors) {
        if MaxRows::fits(&g) {
            let from = Pointer(x.ptr().cast_mut().cast::<f32>());
            let to = Pointer(values.ptr_mut().cast::<f32>());
            let to_index = places.as_mut().map(|places| Pointer(places.ptr_mut().cast::<i64>()));
            let ns = if positions {
                0.2 + 0.1 * g.taps() as f32
            } else {
                0.05 * g.taps() as f32
            };
            x.device().each(g.batch * g.groups, out_plane as f32 * ns, |i| {
                level.run(MaxRows {
                    g: &g,
                    from: from.at(i * plane).cast_const(),
                    to: to.at(i * out_plane),
                    to_index: to_index.map(|to_index| to_index.at(i * out_plane)),
                });
            });
            return Ok((values, places));
        }
        if alone && lanes::suits(x.device(), &g) {
            let to = values.ptr_mut().cast();
            // SAFETY: both are contiguous and have the shapes of the geometry.
            unsafe { lanes::forward(x.device(), &g, x.typed()?, &Fold::Max, to)? };
            return Ok((values, None));
        }
        if alone {
            max_values::<f32>(level, &g, &x, &mut values)?;
            return Ok((values, None));
        }
    }
    if let (DType::U8, Some(level), true) = (x.dtype(), vectors, alone) {
        max_values::<u8>(level, &g, &x, &mut values)?;
        return Ok((values, None));
    }
    // The other paths need the positions, even if the caller does not want them.
    let mut indices = places.map_or_else(empty, Ok)?;
    let to_index = Pointer(indices.ptr_mut().cast::<i64>());
    let ns = (out_plane * (2 + g.taps())) as f32 * 0.7;
    let firsts: Vec<usize> = (0..out_plane).map(|at| first_tap(&g, at)).collect();
    dispatch_dtype!(x.dtype(), T => {
        let from = Pointer(x.ptr().cast_mut().cast::<T>());
        let to = Pointer(values.ptr_mut().cast::<T>());
        x.device().each(g.batch * g.groups, ns, |i| {
            // SAFETY: the planes are inside their tensors, and each plane of the output belongs to one task, which
            // writes it before it makes slices of it.
            let (from, to, to_index) = unsafe {
                let from = std::slice::from_raw_parts(from.at(i * plane), plane);
                let (to, to_index) = (to.at(i * out_plane), to_index.at(i * out_plane));
                for (at, &first) in firsts.iter().enumerate() {
                    to.add(at).write(from[first]);
                    to_index.add(at).write(first as i64);
                }
                let to = std::slice::from_raw_parts_mut(to, out_plane);
                (from, to, std::slice::from_raw_parts_mut(to_index, out_plane))
            };
            max_plane(&g, from, to, to_index);
        });
    });
    Ok((values, positions.then_some(indices)))
}

/// Position in its plane of the first tap inside the input, for a position of the output.
fn first_tap(g: &Geometry, at: usize) -> usize {
    let [_, height, width] = g.input;
    let [z, y, x] = window(g, place(g, at)).0;
    (z * height + y) * width + x
}

/// Raises the first taps in `to`, whose positions are in `to_index`, to the maxima of their windows. Taps are the outer
/// loops and the positions of an output row the inner one, which thus has no branches.
fn max_plane<T: PartialOrd + Copy>(g: &Geometry, x: &[T], to: &mut [T], to_index: &mut [i64]) {
    let [_, height, width] = g.input;
    let [_, rows, columns] = g.output;
    for (row, (to, to_index)) in to
        .chunks_exact_mut(columns)
        .zip(to_index.chunks_exact_mut(columns))
        .enumerate()
    {
        let (d, h) = (row / rows, row % rows);
        let (d0, d1, z) = g.taps_inside(0, d);
        let (h0, h1, y) = g.taps_inside(1, h);
        for i in 0..d1 - d0 {
            for j in 0..h1 - h0 {
                let line = ((z + i * g.dilation[0]) * height + y + j * g.dilation[1]) * width;
                for k in 0..g.kernel[2] {
                    let (start, end, place) = g.positions_inside(2, k);
                    let places = (line + place..).step_by(g.stride[2]);
                    for ((to, to_index), place) in to[start..end].iter_mut().zip(&mut to_index[start..end]).zip(places)
                    {
                        let (value, best) = (x[place], *to);
                        // NaN counts as the largest; of equal elements the first is kept.
                        #[allow(clippy::eq_op)]
                        let larger = (value > best) | ((value != value) & (best == best));
                        *to = if larger { value } else { best };
                        *to_index = if larger { place as i64 } else { *to_index };
                    }
                }
            }
        }
    }
}

/// See [`polygrad_core::Backend::max_pool_backward`].
pub(crate) fn max_pool_backward(grad: &CpuTensor, indices: &CpuTensor, input_shape: Shape) -> Result<CpuTensor> {
    numbers("max_pool_backward", grad.dtype())?;
    let rank = input_shape.rank();
    let fits = (3..=5).contains(&rank)
        && grad.shape() == indices.shape()
        && grad.shape().rank() == rank
        && grad.shape()[..2] == input_shape[..2]
        && indices.dtype() == DType::I64;
    if !fits {
        return Err(Error::shape("gradient, positions and input do not belong together")
            .with_op("max_pool_backward")
            .with_operands([(*grad.shape(), grad.dtype()), (*indices.shape(), indices.dtype())]));
    }
    if Half::of(grad.dtype()).is_some() {
        return convert::cast(&max_pool_backward(&wide(grad)?, indices, input_shape)?, grad.dtype());
    }
    let (grad, indices) = (grad.contiguous()?, indices.contiguous()?);
    let plane: usize = input_shape[2..].iter().product();
    let out_plane: usize = grad.shape()[2..].iter().product();
    let chosen = indices.slice::<i64>()?;
    let bad = OnceLock::new();
    let mut out = CpuTensor::empty(input_shape, grad.dtype(), grad.device())?;
    let planes = input_shape[0] * input_shape[1];
    macro_rules! run {
        ($type:ty, |$a:ident, $b:ident| $sum:expr) => {{
            let from = grad.slice::<$type>()?;
            let to = Pointer(out.ptr_mut().cast::<$type>());
            grad.device()
                .each(planes, (plane as f32) * 0.1 + out_plane as f32, |i| {
                    // SAFETY: the plane is inside the output and belongs to one task; all bits zero are the number 0.
                    let to = unsafe {
                        std::ptr::write_bytes(to.at(i * plane), 0, plane);
                        std::slice::from_raw_parts_mut(to.at(i * plane), plane)
                    };
                    let range = i * out_plane..(i + 1) * out_plane;
                    for (&g, &at) in from[range.clone()].iter().zip(&chosen[range]) {
                        match usize::try_from(at).ok().and_then(|at| to.get_mut(at)) {
                            Some(to) => {
                                let ($a, $b) = (*to, g);
                                *to = $sum;
                            }
                            None => drop(bad.set(at)),
                        }
                    }
                });
        }};
    }
    match grad.dtype() {
        DType::F32 => run!(f32, |a, b| a + b),
        DType::F64 => run!(f64, |a, b| a + b),
        DType::I32 => run!(i32, |a, b| a.wrapping_add(b)),
        DType::I64 => run!(i64, |a, b| a.wrapping_add(b)),
        _ => run!(u8, |a, b| a.wrapping_add(b)),
    }
    match bad.into_inner() {
        None => Ok(out),
        Some(bad) => {
            Err(Error::out_of_range(format!("position {bad} is outside 0..{plane}")).with_op("max_pool_backward"))
        }
    }
}

/// The number by which the sum over a window is divided.
fn divisor(g: &Geometry, params: &PoolParams, at: [usize; 3], inside: usize) -> f64 {
    if !params.count_include_pad {
        return inside as f64;
    }
    // The border counts, but not the part of a window that `ceil_mode` puts beyond the border.
    (0..3)
        .map(|axis| {
            let start = at[axis] * g.stride[axis];
            ((start + g.kernel[axis]).min(g.input[axis] + 2 * g.padding[axis]) - start) as f64
        })
        .product()
}

/// The taps of a window that lie inside the input: for each axis the first one and their number.
fn window(g: &Geometry, at: [usize; 3]) -> ([usize; 3], [usize; 3]) {
    let mut start = [0; 3];
    let mut count = [0; 3];
    for axis in 0..3 {
        let (first, end, place) = g.taps_inside(axis, at[axis]);
        start[axis] = place;
        count[axis] = end - first;
    }
    (start, count)
}

fn check_average(op: &'static str, dtype: DType, params: &PoolParams, rank: usize) -> Result<()> {
    floats(op, dtype)?;
    if (3..=5).contains(&rank) && params.dilation[..rank - 2].iter().any(|&dilation| dilation != 1) {
        return Err(Error::invalid("dilation must be 1").with_op(op));
    }
    Ok(())
}

/// See [`polygrad_core::Backend::avg_pool`].
pub(crate) fn avg_pool(x: &CpuTensor, params: &PoolParams) -> Result<CpuTensor> {
    check_average("avg_pool", x.dtype(), params, x.shape().rank())?;
    if Half::of(x.dtype()).is_some() {
        return convert::cast(&avg_pool(&wide(x)?, params)?, x.dtype());
    }
    let (x, shape, g) = prepare("avg_pool", x, params)?;
    let mut out = CpuTensor::empty(shape, x.dtype(), x.device())?;
    if shape.numel() > 0
        && let Some(device) = vectors_on(&x).filter(|_| lanes::suits_means(&g))
    {
        let divisor = |at| divisor(&g, params, place(&g, at), window(&g, place(&g, at)).1.iter().product()) as f32;
        let divisors: Vec<f32> = (0..g.out_plane()).map(divisor).collect();
        let to = out.ptr_mut().cast();
        // SAFETY: both are contiguous and have the shapes of the geometry.
        unsafe { lanes::forward(device, &g, x.typed()?, &Fold::Mean(&divisors), to)? };
        return Ok(out);
    }
    let (plane, out_plane) = (g.plane(), g.out_plane());
    let ns = (out_plane * (4 + g.taps())) as f32;
    macro_rules! run {
        ($type:ty) => {{
            let from = x.slice::<$type>()?;
            let to = Pointer(out.ptr_mut().cast::<$type>());
            x.device().each(g.batch * g.groups, ns, |i| {
                let from = &from[i * plane..(i + 1) * plane];
                for at in 0..out_plane {
                    let place = place(&g, at);
                    let (start, count) = window(&g, place);
                    let mut sum = 0.0f64;
                    for_taps(&g, start, count, |tap| sum += f64::from(from[tap]));
                    let mean = sum / divisor(&g, params, place, count.iter().product());
                    // SAFETY: every position of the output is written once.
                    unsafe { to.at(i * out_plane + at).write(mean as $type) };
                }
            });
        }};
    }
    if x.dtype() == DType::F32 {
        run!(f32);
    } else {
        run!(f64);
    }
    Ok(out)
}

/// The coordinates of a position of the output.
fn place(g: &Geometry, at: usize) -> [usize; 3] {
    let [_, height, width] = g.output;
    [at / (height * width), at / width % height, at % width]
}

/// Calls `f` with the position in its plane of each tap inside the input.
#[inline]
fn for_taps(g: &Geometry, start: [usize; 3], count: [usize; 3], mut f: impl FnMut(usize)) {
    let [_, height, width] = g.input;
    for z in start[0]..start[0] + count[0] {
        for y in start[1]..start[1] + count[1] {
            let row = (z * height + y) * width;
            (row + start[2]..row + start[2] + count[2]).for_each(&mut f);
        }
    }
}

/// See [`polygrad_core::Backend::avg_pool_backward`].
pub(crate) fn avg_pool_backward(grad: &CpuTensor, input_shape: Shape, params: &PoolParams) -> Result<CpuTensor> {
    check_average("avg_pool_backward", grad.dtype(), params, input_shape.rank())?;
    let shape = params
        .output_shape(&input_shape)
        .map_err(|error| error.with_op("avg_pool_backward"))?;
    if shape != *grad.shape() {
        return Err(Error::shape(format!(
            "a gradient of shape {} does not belong to {shape}",
            grad.shape()
        ))
        .with_op("avg_pool_backward"));
    }
    if Half::of(grad.dtype()).is_some() {
        return convert::cast(&avg_pool_backward(&wide(grad)?, input_shape, params)?, grad.dtype());
    }
    let grad = grad.contiguous()?;
    let g = Geometry::of_pool(&input_shape, &shape, params);
    let mut out = CpuTensor::empty(input_shape, grad.dtype(), grad.device())?;
    let (plane, out_plane) = (g.plane(), g.out_plane());
    let ns = (out_plane * (4 + g.taps()) + plane) as f32;
    macro_rules! run {
        ($type:ty) => {{
            let from = grad.slice::<$type>()?;
            let to = Pointer(out.ptr_mut().cast::<$type>());
            grad.device().each(g.batch * g.groups, ns, |i| {
                // SAFETY: the plane is inside the output and belongs to one task; all bits zero are the number 0.
                let to = unsafe {
                    std::ptr::write_bytes(to.at(i * plane), 0, plane);
                    std::slice::from_raw_parts_mut(to.at(i * plane), plane)
                };
                for at in 0..out_plane {
                    let place = place(&g, at);
                    let (start, count) = window(&g, place);
                    let share =
                        f64::from(from[i * out_plane + at]) / divisor(&g, params, place, count.iter().product());
                    for_taps(&g, start, count, |place| to[place] += share as $type);
                }
            });
        }};
    }
    if grad.dtype() == DType::F32 {
        run!(f32);
    } else {
        run!(f64);
    }
    Ok(out)
}
