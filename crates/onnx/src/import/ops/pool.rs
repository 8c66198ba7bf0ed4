//! Pools: the largest, the mean or a norm of each window.

use polygrad_core::{AnyBackend, Backend, DType, Error, Op, OpDesc, PoolParams, Result, window_positions};
use polygrad_tensor::{RoundingMode, Tensor, inference};
use smallvec::smallvec;

use super::conv::{Window, spatial};
use super::row::{Row, rows};
use crate::graph::{ElementType, malformed};
use crate::import::call::{Call, List, Results, one, sizes};

rows! {
    Row::new("MaxPool", 1, max_pool).like(0);
    Row::new("AveragePool", 1, average_pool).wide();
    Row::new("LpPool", 2, lp_pool).wide();
    Row::new("GlobalAveragePool", 1, |c| global(c, |x, axes| x.mean_keepdim(axes))).wide();
    Row::new("GlobalMaxPool", 1, |c| global(c, |x, axes| x.amax_keepdim(axes)));
    Row::new("GlobalLpPool", 2, |c| {
        let p = c.int("p", 2)? as f64;
        global(c, |x, axes| x.abs()?.pow(p)?.sum_keepdim(axes)?.pow(1.0 / p))
    }).wide();
    Row::new("MaxUnpool", 9, max_unpool);
}

fn global(c: &Call<'_>, over: impl Fn(&Tensor, &[isize]) -> Result<Tensor>) -> Results {
    let x = c.x(0)?;
    let axes: Vec<isize> = (2..x.rank().max(2) as isize).collect();
    one(over(&x, &axes)?)
}

/// A window, and the input extents it needs: with padding, and with the elements that ceil mode adds at the end.
struct Placed {
    window: Window,
    /// The padding, including what ceil mode adds.
    borders: Vec<(usize, usize)>,
    positions: Vec<usize>,
}

fn place(c: &Call<'_>, extents: &[usize]) -> Result<Placed> {
    let kernel = c
        .int_list("kernel_shape")?
        .ok_or_else(|| malformed("kernel_shape is missing"))?;
    let kernel = sizes(kernel)?;
    if kernel.len() != extents.len() {
        return Err(malformed(format!(
            "kernel_shape {kernel:?} for {} spatial axes",
            extents.len()
        )));
    }
    let mut window = Window::read(c, kernel)?;
    window.settle(extents);
    let ceil = c.flag("ceil_mode", false)?;
    let mut borders = Vec::with_capacity(extents.len());
    let mut positions = Vec::with_capacity(extents.len());
    for (axis, &extent) in extents.iter().enumerate() {
        let ((before, after), stride) = (window.pads[axis], window.stride[axis]);
        let count = window_positions(
            extent,
            window.kernel[axis],
            stride,
            window.pads[axis],
            window.dilation[axis],
            ceil,
        )?;
        let covered = (count - 1) * stride + window.reach(axis);
        positions.push(count);
        borders.push((before, after.max(covered.saturating_sub(extent + before))));
    }
    let padded: Vec<usize> = extents
        .iter()
        .zip(&borders)
        .map(|(extent, (a, b))| extent + a + b)
        .collect();
    for &extent in padded.iter().chain(&positions) {
        c.reserve(&[extent], DType::F64)?;
    }
    Ok(Placed {
        window,
        borders,
        positions,
    })
}

impl Placed {
    /// The padded input, cut to the part that windows cover, and the windows on it.
    fn on(&self, c: &Call<'_>, x: &Tensor, border: f64) -> Result<(Tensor, PoolParams)> {
        let mut borders = vec![(0, 0); 2];
        borders.extend(&self.borders);
        let dims: Vec<usize> = x
            .shape()
            .iter()
            .zip(&borders)
            .map(|(extent, (a, b))| extent + a + b)
            .collect();
        c.reserve(&dims, x.dtype())?;
        let x = if borders.iter().any(|&border| border != (0, 0)) {
            x.pad(&borders, border)?
        } else {
            x.clone()
        };
        let three = |list: &[usize]| std::array::from_fn(|i| list.get(i).copied().unwrap_or(1));
        let mut params = PoolParams::new(three(&self.window.kernel));
        params.stride = three(&self.window.stride);
        params.dilation = three(&self.window.dilation);
        Ok((x, params))
    }

    /// The parameters of the same windows on the input itself, if the backend's mean is ONNX's: with the same border on
    /// both sides, in which no whole window lies.
    fn plain(&self, include_pad: bool) -> Option<PoolParams> {
        let window = &self.window;
        let even = self
            .borders
            .iter()
            .zip(&window.pads)
            .zip(&window.kernel)
            .all(|((border, pads), kernel)| border == pads && pads.0 == pads.1 && 2 * pads.0 <= *kernel);
        if !even || window.dilation.iter().any(|&dilation| dilation != 1) {
            return None;
        }
        let three =
            |rest: usize, list: &dyn Fn(usize) -> Option<usize>| std::array::from_fn(|i| list(i).unwrap_or(rest));
        let mut params = PoolParams::new(three(1, &|i| window.kernel.get(i).copied()));
        params.stride = three(1, &|i| window.stride.get(i).copied());
        params.padding = three(0, &|i| window.pads.get(i).map(|pads| pads.0));
        params.count_include_pad = include_pad;
        Some(params)
    }

    /// Along an axis, the first element of each window that is inside the input, as a tensor that broadcasts.
    fn firsts(&self, c: &Call<'_>, axis: usize, extents: &[usize]) -> Result<Tensor> {
        let (before, stride, dilation) = (
            self.window.pads[axis].0,
            self.window.stride[axis],
            self.window.dilation[axis],
        );
        let last = extents[axis].saturating_sub(1);
        let first = |i: usize| match before.checked_sub(i * stride) {
            // The taps before it lie in the padding.
            Some(border) => (border.div_ceil(dilation) * dilation - border).min(last) as i64,
            None => (i * stride - before).min(last) as i64,
        };
        let firsts = c.collect((0..self.positions[axis]).map(first))?;
        let mut dims = vec![1; extents.len() + 2];
        dims[axis + 2] = self.positions[axis];
        c.make(firsts, &dims)
    }

    /// The sum of each window.
    fn sums(&self, c: &Call<'_>, x: &Tensor) -> Result<Tensor> {
        let (x, params) = self.on(c, x, 0.0)?;
        if self.window.dilation.iter().all(|&dilation| dilation == 1) {
            let elements: usize = self.window.kernel.iter().product();
            return x.avg_pool(&params)? * elements as f64;
        }
        // A convolution with ones, for each channel separately.
        let shape = x.shape();
        let mut flat = vec![shape[0] * shape[1], 1];
        flat.extend(&shape[2..]);
        let mut kernel = vec![1, 1];
        kernel.extend(&self.window.kernel);
        let ones = c.full(&kernel, 1.0, x.dtype())?;
        let y = x.reshape(flat)?.conv(&ones, None, &self.window.params(1))?;
        let mut dims = vec![shape[0], shape[1]];
        dims.extend(&y.shape()[2..]);
        y.reshape(dims)
    }

    /// How many elements of each window count: those of the input, or also those of the padding.
    fn counts(&self, c: &Call<'_>, extents: &[usize], include_pad: bool) -> Result<Tensor> {
        let mut total: Option<Tensor> = None;
        let count = extents.len();
        for axis in 0..count {
            let (before, after) = self.window.pads[axis];
            let inside = if include_pad {
                0..extents[axis] + before + after
            } else {
                before..before + extents[axis]
            };
            let window = &self.window;
            let (kernel, stride, dilation) = (window.kernel[axis], window.stride[axis], window.dilation[axis]);
            // The number of taps before the inside, and before its end.
            let before_place = |start: usize, place: usize| place.saturating_sub(start).div_ceil(dilation).min(kernel);
            let counts = c.collect(
                (0..self.positions[axis])
                    .map(|i| (before_place(i * stride, inside.end) - before_place(i * stride, inside.start)) as f32),
            )?;
            let mut dims = vec![1; count + 2];
            dims[axis + 2] = self.positions[axis];
            let counts = c.make(counts, &dims)?;
            total = Some(match total {
                Some(total) => (total * counts)?,
                None => counts,
            });
        }
        total.ok_or_else(|| malformed("there are no spatial axes"))
    }
}

/// Whether the device has max pooling of bytes, of which 0 is the smallest.
fn pools_bytes(x: &Tensor) -> bool {
    let op = Op::MaxPool {
        params: Box::new(PoolParams::new([1; 3])),
        positions: true,
    };
    let dtype = DType::U8;
    AnyBackend::supports(x.device().inner(), &OpDesc { op: &op, dtype }).is_ok()
}

pub(super) fn max_pool(c: &Call<'_>) -> Results {
    let x = c.x(0)?;
    let shape = x.shape();
    let extents = spatial(&shape)?;
    let placed = place(c, extents)?;
    let dtype = x.dtype();
    let (numbers, least) = match c.element(0)?.bits() {
        _ if dtype.is_float() => (x, f64::NEG_INFINITY),
        _ if c.element(0)? == ElementType::U8 && pools_bytes(&x) => (x, 0.0),
        ..=16 => (x.to_dtype(DType::F32)?, f64::NEG_INFINITY),
        17..=32 => (x.to_dtype(DType::F64)?, f64::NEG_INFINITY),
        _ => return Err(Error::dtype(format!("MaxPool does not take {}", c.element(0)?))),
    };
    let (padded, params) = placed.on(c, &numbers, least)?;
    let wide = padded.shape();
    let (y, at) = inference::max_pool(&padded, &params, c.wants(1))?;
    let y = y.to_dtype(dtype)?;
    let Some(at) = at.filter(|_| c.wants(1)) else {
        return one(y);
    };
    // Converts positions in the padded input to positions in the whole input. If a whole window has the smallest
    // number, the padding may have been chosen; then the result is the first element of the window that is inside.
    let column_major = c.flag("storage_order", false)?;
    let count = extents.len();
    let mut rest = at;
    let (mut places, mut firsts): (Tensor, Tensor) = (rest.zeros_like()?, rest.zeros_like()?);
    let mut outside: Option<Tensor> = None;
    let each: usize = extents.iter().product();
    for axis in (0..count).rev() {
        let extent = wide[axis + 2] as i64;
        let along = ((&rest % extent)? - placed.borders[axis].0 as i64)?;
        rest = rest.div_rounded(&rest.full_like(extent)?, RoundingMode::Floor)?;
        let step: usize = if column_major {
            extents[..axis].iter().product()
        } else {
            extents[axis + 1..].iter().product()
        };
        let first = placed.firsts(c, axis, extents)?;
        let beyond = along.lt(0i64)?.logical_or(&along.ge(extents[axis])?)?;
        outside = Some(match outside {
            Some(outside) => outside.logical_or(&beyond)?,
            None => beyond,
        });
        places = (places + (along * step as i64)?)?;
        firsts = (firsts + (first * step as i64)?)?;
    }
    if let Some(outside) = outside {
        places = Tensor::where_(&outside, &firsts, &places)?;
    }
    c.reserve(&[shape[0], shape[1]], DType::I64)?;
    let starts = c.collect((0..shape[0] * shape[1]).map(|i| (i * each) as i64))?;
    let mut dims = vec![1; shape.rank()];
    (dims[0], dims[1]) = (shape[0], shape[1]);
    let places = (places + c.make(starts, &dims)?)?;
    Ok(smallvec![y.into(), places.into()])
}

pub(super) fn average_pool(c: &Call<'_>) -> Results {
    let x = c.x(0)?;
    let shape = x.shape();
    let extents = spatial(&shape)?;
    let placed = place(c, extents)?;
    let include_pad = c.flag("count_include_pad", false)?;
    if let Some(params) = placed.plain(include_pad) {
        c.reserve(&[&shape[..2], &placed.positions].concat(), x.dtype())?;
        return one(x.avg_pool(&params)?);
    }
    let counts = placed.counts(c, extents, include_pad)?;
    // The mean of an empty window is 0.
    let counts = counts.clamp(Some(1.0), None)?;
    one((placed.sums(c, &x)? / counts.to_dtype(x.dtype())?)?)
}

fn lp_pool(c: &Call<'_>) -> Results {
    let x = c.x(0)?;
    let shape = x.shape();
    let placed = place(c, spatial(&shape)?)?;
    let p = c.int("p", 2)? as f64;
    one(placed.sums(c, &x.abs()?.pow(p)?)?.pow(1.0 / p)?)
}

fn max_unpool(c: &Call<'_>) -> Results {
    let (x, index) = (c.x(0)?, c.x(1)?);
    let shape = x.shape();
    let extents = spatial(&shape)?;
    let kernel = c
        .int_list("kernel_shape")?
        .ok_or_else(|| malformed("kernel_shape is missing"))?;
    let window = Window::read(c, sizes(kernel)?)?;
    if window.kernel.len() != extents.len() {
        return Err(malformed(format!("kernel_shape {kernel:?} for {shape}")));
    }
    let mut dims = shape.to_vec();
    for axis in 0..extents.len() {
        let (before, after) = window.pads[axis];
        let covered = extents[axis].saturating_sub(1).saturating_mul(window.stride[axis]) + window.reach(axis);
        dims[axis + 2] = covered.saturating_sub(before + after);
    }
    // Indices refer to a tensor of the extents that follow from the attributes; a larger output only has room after
    // them.
    let small: usize = dims.iter().product();
    let out = match c.opt_ints(2)? {
        Some(wanted) => sizes(&wanted)?,
        None => List::from_slice(&dims),
    };
    let big = c.reserve(&out, x.dtype())?;
    if out.len() != dims.len() || out.iter().zip(&dims).any(|(a, b)| a < b) {
        return Err(Error::shape(format!("an output of shape {out:?} for {dims:?}")));
    }
    let flat = c.full(&[small], 0.0, x.dtype())?;
    let y = flat
        .scatter(0, &index.reshape([index.numel()])?, &x.reshape([x.numel()])?)?
        .reshape(dims.as_slice())?;
    let borders: Vec<(usize, usize)> = big.iter().zip(&dims).map(|(a, b)| (0, a - b)).collect();
    one(y.pad(&borders, 0.0)?)
}
