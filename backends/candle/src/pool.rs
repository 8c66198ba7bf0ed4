//! Pooling. candle's own has no padding and no positions, so these are our own loops.

use std::cmp::Ordering;
use std::ops::Range;

use polygrad_core::{Error, PoolParams, Result, Shape, dispatch_dtype, room};

use crate::CandleTensor;
use crate::engine::filled;
use crate::lines::replaces;
use crate::support::refused_dtype;
use crate::values::{Item, floats};

/// Windows over three spatial axes, of which leading ones may be added.
struct Walk {
    planes: usize,
    input: [usize; 3],
    output: [usize; 3],
    kernel: [usize; 3],
    stride: [usize; 3],
    padding: [usize; 3],
    dilation: [usize; 3],
}

impl Walk {
    fn new(input: Shape, output: Shape, params: &PoolParams) -> Self {
        let spatial = input.rank() - 2;
        let three = |numbers: &[usize], absent: usize| {
            let mut out = [absent; 3];
            out[3 - spatial..].copy_from_slice(&numbers[..spatial]);
            out
        };
        Self {
            planes: input[0] * input[1],
            input: three(&input[2..], 1),
            output: three(&output[2..], 1),
            kernel: three(&params.kernel, 1),
            stride: three(&params.stride, 1),
            padding: three(&params.padding, 0),
            dilation: three(&params.dilation, 1),
        }
    }

    /// The kernel elements of a window that lie inside the input, and the position of its first one, border included.
    fn inside(&self, axis: usize, position: usize) -> (Range<usize>, usize) {
        let (start, step) = (position * self.stride[axis], self.dilation[axis]);
        let first = self.padding[axis].saturating_sub(start).div_ceil(step);
        let end = (self.input[axis] + self.padding[axis])
            .saturating_sub(start)
            .div_ceil(step);
        let end = end.min(self.kernel[axis]);
        (first.min(end)..end, start)
    }

    /// Calls `f` for each window: its plane, the kernel elements inside the input and the start on each axis, and the
    /// window's position.
    fn windows(&self, mut f: impl FnMut(usize, [(Range<usize>, usize); 3], [usize; 3]) -> Result<()>) -> Result<()> {
        for plane in 0..self.planes {
            for z in 0..self.output[0] {
                let deep = self.inside(0, z);
                for y in 0..self.output[1] {
                    let high = self.inside(1, y);
                    for x in 0..self.output[2] {
                        f(plane, [deep.clone(), high.clone(), self.inside(2, x)], [z, y, x])?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Positions in the plane of a window's kernel elements.
    fn places<'a>(&'a self, window: &'a [(Range<usize>, usize); 3]) -> impl Iterator<Item = usize> + 'a {
        let at = |axis: usize, k: usize| window[axis].1 + k * self.dilation[axis] - self.padding[axis];
        let [deep, high, wide] = window;
        deep.0.clone().flat_map(move |z| {
            high.0.clone().flat_map(move |y| {
                let row = (at(0, z) * self.input[1] + at(1, y)) * self.input[2];
                wide.0.clone().map(move |x| row + at(2, x))
            })
        })
    }

    fn plane(&self) -> usize {
        self.input.iter().product()
    }
}

fn sees_nothing(op: &'static str) -> Error {
    let error = Error::invalid("a window lies wholly in the border").with_op(op);
    error.with_hint("use less padding or dilation")
}

/// The maximum of each window, and its position.
pub(crate) fn max_pool(x: &CandleTensor, params: &PoolParams) -> Result<(CandleTensor, CandleTensor)> {
    fn of<T: Item>(x: &CandleTensor, shape: Shape, params: &PoolParams) -> Result<(CandleTensor, CandleTensor)> {
        let walk = Walk::new(x.shape(), shape, params);
        let held = x.held("max_pool")?;
        let values = held.values::<T>()?;
        let (mut largest, mut places) = (room(shape.numel())?, room(shape.numel())?);
        walk.windows(|plane, window, _| {
            let values = &values[plane * walk.plane()..][..walk.plane()];
            let found = walk.places(&window).reduce(|best, place| {
                if replaces(values[place], values[best], Ordering::Greater) {
                    place
                } else {
                    best
                }
            });
            let place = found.ok_or_else(|| sees_nothing("max_pool"))?;
            largest.push(values[place]);
            places.push(place as i64);
            Ok(())
        })?;
        let device = x.device();
        Ok((
            CandleTensor::of(shape, largest, &device)?,
            CandleTensor::of(shape, places, &device)?,
        ))
    }
    let shape = params.output_shape(&x.shape())?;
    if x.dtype() == polygrad_core::DType::Bool {
        return Err(refused_dtype("max_pool", x.dtype()));
    }
    dispatch_dtype!(x.dtype(), T => of::<T>(x, shape, params))
}

/// Adds each window's gradient to the position of its maximum.
pub(crate) fn max_pool_backward(
    grad: &CandleTensor,
    indices: &CandleTensor,
    input_shape: Shape,
) -> Result<CandleTensor> {
    fn of<T: Item>(grad: &CandleTensor, indices: &CandleTensor, shape: Shape) -> Result<CandleTensor> {
        let (held, held_indices) = (grad.held("max_pool_backward")?, indices.held("max_pool_backward")?);
        let (values, places) = (held.values::<T>()?, held_indices.values::<i64>()?);
        let mut out = filled(shape.numel(), T::from_i64(0))?;
        let (plane, windows) = (
            shape[2..].iter().product::<usize>(),
            grad.shape()[2..].iter().product::<usize>(),
        );
        if plane == 0 || windows == 0 {
            return CandleTensor::of(shape, out, &grad.device());
        }
        let planes = values.chunks_exact(windows).zip(places.chunks_exact(windows));
        for (out, (values, places)) in out.chunks_exact_mut(plane).zip(planes) {
            for (&value, &place) in values.iter().zip(places) {
                let target = usize::try_from(place).ok().and_then(|place| out.get_mut(place));
                let target = target.ok_or_else(|| {
                    Error::out_of_range(format!("position {place} is outside a plane of {plane}"))
                        .with_op("max_pool_backward")
                })?;
                *target = if T::DTYPE.is_float() {
                    T::from_f64(target.to_f64() + value.to_f64())
                } else {
                    T::from_i64(target.to_i64().wrapping_add(value.to_i64()))
                };
            }
        }
        CandleTensor::of(shape, out, &grad.device())
    }
    use polygrad_core::DType::{BF16, F16, F32};
    let dtype = grad.dtype();
    if matches!(dtype, F16 | BF16) {
        // Overlapping windows are added up, and rounded once.
        let wide = max_pool_backward(&crate::binary::cast(grad, F32)?, indices, input_shape)?;
        return crate::binary::cast(&wide, dtype);
    }
    dispatch_dtype!(dtype, T => of::<T>(grad, indices, input_shape))
}

/// The mean of each window. The border counts as zeros if requested, but the part of a window beyond it never counts.
pub(crate) fn avg_pool(x: &CandleTensor, params: &PoolParams) -> Result<CandleTensor> {
    fn of<T: Item>(x: &CandleTensor, shape: Shape, params: &PoolParams) -> Result<CandleTensor> {
        let walk = Walk::new(x.shape(), shape, params);
        let held = x.held("avg_pool")?;
        let values = held.values::<T>()?;
        let mut out = room(shape.numel())?;
        walk.windows(|plane, window, positions| {
            let values = &values[plane * walk.plane()..][..walk.plane()];
            let sum: f64 = walk.places(&window).map(|place| values[place].to_f64()).sum();
            let count: usize = (0..3)
                .map(|axis| {
                    if !params.count_include_pad {
                        return window[axis].0.len();
                    }
                    let start = positions[axis] * walk.stride[axis];
                    let all = walk.input[axis] + 2 * walk.padding[axis];
                    all.saturating_sub(start).min(walk.kernel[axis])
                })
                .product();
            if count == 0 {
                return Err(sees_nothing("avg_pool"));
            }
            out.push(T::from_f64(sum / count as f64));
            Ok(())
        })?;
        CandleTensor::of(shape, out, &x.device())
    }
    let shape = params.output_shape(&x.shape())?;
    floats!("avg_pool", x.dtype(), T => of::<T>(x, shape, params))
}
