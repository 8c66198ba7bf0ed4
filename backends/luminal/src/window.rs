//! Convolution and pooling, on a view of all windows of a padded input.

use std::cmp::Ordering;

use luminal::tensor::Tensor;
use polygrad_core::{Axes, ConvParams, DType, Error, Layout, PoolParams, Result, Scalar, Shape, collect, room};

use crate::kernel::{self, Kernel};
use crate::matmul::batched;
use crate::movement::{pad, padded, padded_shape, permute, reshape};
use crate::primitive::product;
use crate::reduce::replaces;
use crate::support::refused;
use crate::tensor::{LuminalTensor, Recorded};
use crate::values::{Item, Slice, View};

/// A position in the border of the input.
const BORDER: i64 = -1;
/// A position beyond the border, which windows may reach with `ceil_mode`.
const BEYOND: i64 = -2;

/// How windows move over the spatial axes.
#[derive(Clone, Copy)]
struct Walk {
    /// Shapes whose axes from the third on are the windows' extents, and the numbers of windows.
    kernel: Shape,
    count: Shape,
    stride: [usize; 3],
    padding: [usize; 3],
    dilation: [usize; 3],
}

impl Walk {
    fn pool(params: &PoolParams, shape: &Shape) -> Self {
        let mut kernel = *shape;
        for (dim, &extent) in kernel.dims_mut()[2..].iter_mut().zip(&params.kernel) {
            *dim = extent;
        }
        Self {
            kernel,
            count: *shape,
            stride: params.stride,
            padding: params.padding,
            dilation: params.dilation,
        }
    }

    /// The border around `[N, C, spatial…]`, and the further padding at the end that windows reach.
    fn borders(&self, shape: &Shape) -> [Vec<(usize, usize)>; 2] {
        let (mut around, mut behind) = (vec![(0, 0); 2], vec![(0, 0); 2]);
        for (axis, &dim) in shape[2..].iter().enumerate() {
            let (count, kernel) = (self.count[axis + 2], self.kernel[axis + 2]);
            let reach = (count - 1) * self.stride[axis] + (kernel - 1) * self.dilation[axis] + 1;
            around.push((self.padding[axis], self.padding[axis]));
            behind.push((0, reach.saturating_sub(dim + 2 * self.padding[axis])));
        }
        [around, behind]
    }

    /// Extents and strides of the spatial axes of all windows over a padded input with these strides: first those
    /// inside a window, then those from window to window.
    fn axes(&self, strides: &[isize]) -> [Vec<(usize, isize)>; 2] {
        let axes = 0..self.kernel.rank() - 2;
        let step = |axis: usize, by: usize| strides[axis + 2] * by as isize;
        let inside = axes
            .clone()
            .map(|axis| (self.kernel[axis + 2], step(axis, self.dilation[axis])));
        let across = axes.map(|axis| (self.count[axis + 2], step(axis, self.stride[axis])));
        [inside.collect(), across.collect()]
    }
}

/// A layout of axes with these extents and strides.
fn layout(axes: &[(usize, isize)], offset: usize) -> Result<Layout> {
    let (dims, strides): (Vec<usize>, Vec<isize>) = axes.iter().copied().unzip();
    Ok(Layout::strided(Shape::new(&dims)?, &strides, offset))
}

/// The product of the filters and the windows' patches.
pub(crate) fn conv(x: &LuminalTensor, weight: &LuminalTensor, params: &ConvParams) -> Result<LuminalTensor> {
    if x.dtype() != DType::F32 {
        return Err(refused("conv", x.dtype()));
    }
    let shape = params.output_shape(x.shape(), weight.shape())?;
    if shape.numel() == 0 || weight.shape().numel() == 0 {
        return LuminalTensor::full(shape, Scalar::Float(0.0), x.dtype());
    }
    let walk = Walk {
        kernel: *weight.shape(),
        count: shape,
        stride: params.stride,
        padding: params.padding,
        dilation: params.dilation,
    };
    let [around, behind] = walk.borders(x.shape());
    let border = around
        .iter()
        .zip(&behind)
        .map(|(a, b)| (a.0, a.1 + b.1))
        .collect::<Vec<_>>();
    let x = if border.iter().all(|&border| border == (0, 0)) {
        x.clone()
    } else {
        pad(x, &border, Scalar::Float(0.0))?
    };
    let (groups, batch) = (params.groups, shape[0]);
    let (channels, filters) = (weight.shape()[1], shape[1] / groups);
    let terms: usize = weight.shape()[1..].iter().product();
    let places: usize = shape[2..].iter().product();
    let strides = x.layout().strides();
    let [inside, across] = walk.axes(strides);
    // Groups, terms of a filter, then images and places: one product for all images. As one matrix, this is a copy.
    let mut axes = vec![(groups, strides[1] * channels as isize), (channels, strides[1])];
    axes.extend(inside);
    axes.push((batch, strides[0]));
    axes.extend(across);
    let patches = patches(&x, axes, Shape::new(&[groups, terms, batch * places])?)?;
    let filters_of = reshape(weight, Shape::new(&[groups, filters, terms])?)?;
    let out = if groups == 1 {
        let flat = |x: &LuminalTensor| reshape(x, Shape::from([x.shape()[1], x.shape()[2]]));
        product(&flat(&filters_of)?, &flat(&patches)?)?
    } else {
        batched(&filters_of, &patches)?
    };
    // Here filters come before images.
    let out = reshape(&out, Shape::new(&[shape[1], batch, places])?)?;
    reshape(&permute(&out, Axes::new([1, 0, 2])?), shape)
}

/// A copy of a view with more axes than a shape may have: the axes are given with their strides, and merged by the
/// copy.
fn patches(x: &LuminalTensor, axes: Vec<(usize, isize)>, shape: Shape) -> Result<LuminalTensor> {
    let axes: Vec<_> = axes.into_iter().filter(|&(dim, _)| dim > 1).collect();
    kernel::record("conv", [x], shape, DType::F32, move |[x]| {
        let values = x.memory::<f32>()?;
        let mut out = room(shape.numel())?;
        walk_rows(
            &axes,
            x.layout.offset() as isize,
            &mut |start, count, step| match step {
                1 => out.extend_from_slice(&values[start..start + count]),
                _ => out.extend((0..count).map(|i| values[start.wrapping_add_signed(i as isize * step)])),
            },
        );
        Ok(Tensor::new(out))
    })
}

/// Calls `row` for each row of the last axis.
fn walk_rows(axes: &[(usize, isize)], at: isize, row: &mut dyn FnMut(usize, usize, isize)) {
    match axes {
        [] => row(at as usize, 1, 1),
        [(dim, stride)] => row(at as usize, *dim, *stride),
        [(dim, stride), rest @ ..] => (0..*dim as isize).for_each(|i| walk_rows(rest, at + i * stride, row)),
    }
}

/// Calls `f` for each window, with its values and their positions in the flattened spatial axes of the input.
fn pool<T: Item>(x: &View<'_>, walk: &Walk, mut f: impl FnMut(&[T], &[i64]) -> Result<()>) -> Result<()> {
    if walk.count.numel() == 0 {
        return Ok(());
    }
    let values = windows(x, walk, [T::default(); 2])?;
    let positions = positions(x.shape(), walk)?;
    let len: usize = walk.kernel[2..].iter().product();
    // Every plane has the same positions.
    let positions = positions.chunks_exact(len).cycle();
    values
        .chunks_exact(len)
        .zip(positions)
        .try_for_each(|(values, positions)| f(values, positions))
}

/// For every window of a plane, the positions in the plane that it covers.
fn positions(shape: &Shape, walk: &Walk) -> Result<Vec<i64>> {
    let plane: usize = shape[2..].iter().product();
    let numbers = collect((0..plane).map(|i| i as i64))?;
    let numbers = View {
        data: Slice::I64(&numbers),
        layout: Layout::contiguous(Shape::new(&[&[1, 1], &shape[2..]].concat())?),
    };
    windows(&numbers, walk, [BORDER, BEYOND])
}

/// The values of every window, window by window.
fn windows<T: Item>(x: &View<'_>, walk: &Walk, [border, beyond]: [T; 2]) -> Result<Vec<T>> {
    let [around, behind] = walk.borders(x.shape());
    let inner = padded_shape(x.shape(), &around)?;
    let outer = padded_shape(&inner, &behind)?;
    let values = padded(x, &around, border)?;
    let values = padded(
        &View {
            data: T::borrow(&values),
            layout: Layout::contiguous(inner),
        },
        &behind,
        beyond,
    )?;
    let strides = &outer.contiguous_strides()[..outer.rank()];
    let [inside, across] = walk.axes(strides);
    let mut axes = vec![(outer[0], strides[0]), (outer[1], strides[1])];
    axes.extend(across.into_iter().chain(inside));
    let view = View {
        data: T::borrow(&values),
        layout: layout(&axes, 0)?,
    };
    Ok(view.values::<T>()?.into_owned())
}

fn sees_nothing(op: &'static str) -> Error {
    let error = Error::invalid("a window lies wholly in the border").with_op(op);
    error.with_hint("use less padding or dilation")
}

/// The maximum of each window, and its position.
pub(crate) fn max_pool(x: &LuminalTensor, params: &PoolParams) -> Result<(LuminalTensor, LuminalTensor)> {
    fn of<T: Item>(x: &LuminalTensor, shape: Shape, walk: Walk) -> Result<(LuminalTensor, LuminalTensor)> {
        let kernel = Kernel::new("max_pool", move |xs| {
            let (mut values, mut positions) = (room::<T>(shape.numel())?, room::<i64>(shape.numel())?);
            pool(&xs[0], &walk, |window: &[T], at| {
                let inside = window
                    .iter()
                    .copied()
                    .zip(at.iter().copied())
                    .filter(|&(_, at)| at >= 0);
                let larger = |best: (T, i64), other: (T, i64)| {
                    if replaces(other.0, best.0, Ordering::Greater) {
                        other
                    } else {
                        best
                    }
                };
                let (value, position) = inside.reduce(larger).ok_or_else(|| sees_nothing("max_pool"))?;
                values.push(value);
                positions.push(position);
                Ok(())
            })?;
            Ok(vec![T::tensor(values), i64::tensor(positions)])
        });
        let outputs = [(shape, T::DTYPE), (shape, DType::I64)];
        let mut made = LuminalTensor::record(Recorded::Kernel(kernel), vec![x.clone()], &outputs)?;
        let positions = made.remove(1);
        Ok((made.remove(0), positions))
    }
    let shape = params.output_shape(x.shape())?;
    let walk = Walk::pool(params, &shape);
    match x.dtype() {
        DType::F32 => of::<f32>(x, shape, walk),
        DType::I64 => of::<i64>(x, shape, walk),
        other => Err(refused("max_pool", other)),
    }
}

/// The mean of each window. The border counts as zeros if requested, but the part of a window beyond it never counts.
pub(crate) fn avg_pool(x: &LuminalTensor, params: &PoolParams) -> Result<LuminalTensor> {
    if x.dtype() != DType::F32 {
        return Err(refused("avg_pool", x.dtype()));
    }
    let last = if params.count_include_pad { BORDER } else { 0 };
    let shape = params.output_shape(x.shape())?;
    let walk = Walk::pool(params, &shape);
    kernel::record("avg_pool", [x], shape, DType::F32, move |[x]| {
        let mut out = room(shape.numel())?;
        pool(&x, &walk, |window: &[f32], at| {
            let inside = window.iter().zip(at).filter(|(_, at)| **at >= 0);
            let sum: f64 = inside.map(|(&value, _)| f64::from(value)).sum();
            match at.iter().filter(|at| **at >= last).count() {
                0 => return Err(sees_nothing("avg_pool")),
                count => out.push((sum / count as f64) as f32),
            }
            Ok(())
        })?;
        Ok(Tensor::new(out))
    })
}

/// Adds each window's share to the positions that it covers.
pub(crate) fn avg_pool_backward(
    grad: &LuminalTensor,
    input_shape: Shape,
    params: &PoolParams,
) -> Result<LuminalTensor> {
    if grad.dtype() != DType::F32 {
        return Err(refused("avg_pool_backward", grad.dtype()));
    }
    let last = if params.count_include_pad { BORDER } else { 0 };
    let walk = Walk::pool(params, grad.shape());
    kernel::record("avg_pool_backward", [grad], input_shape, DType::F32, move |[grad]| {
        let plane: usize = input_shape[2..].iter().product();
        let mut sums = room::<f64>(input_shape.numel())?;
        sums.resize(input_shape.numel(), 0.0);
        let places: usize = grad.shape()[2..].iter().product();
        if grad.shape().numel() > 0 && plane > 0 {
            let positions = positions(&input_shape, &walk)?;
            let len = positions.len() / places;
            for (grad, sums) in grad
                .values::<f32>()?
                .chunks_exact(places)
                .zip(sums.chunks_exact_mut(plane))
            {
                for (&grad, at) in grad.iter().zip(positions.chunks_exact(len)) {
                    let share = f64::from(grad) / at.iter().filter(|at| **at >= last).count() as f64;
                    for at in at.iter().filter_map(|&at| usize::try_from(at).ok()) {
                        sums[at] += share;
                    }
                }
            }
        }
        Ok(Tensor::new(collect(sums.into_iter().map(|sum| sum as f32))?))
    })
}
