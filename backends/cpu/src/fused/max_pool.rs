//! Max pooling without positions: first along columns of the image, whole rows at a time, then along the row that is left.

use std::sync::OnceLock;

use polygrad_core::{PoolParams, Result, Shape};

use super::vectors;
use crate::buffers::Buffer;
use crate::loops::Pointer;
use crate::simd::{Kernel, Level, Simd};
use crate::{CpuTensor, conv};

/// See [`polygrad_core::Backend::max_pool_values`].
pub(crate) fn max_pool_values(x: &CpuTensor, params: &PoolParams) -> Result<CpuTensor> {
    let rank = x.shape().rank();
    // Windows that every position sees into; others are for the general form to check.
    let plain = (3..=5).contains(&rank)
        && (0..rank - 2).all(|i| params.dilation[i] == 1 && 2 * params.padding[i] <= params.kernel[i]);
    let level = match vectors([x]) {
        Some(level) if plain => level,
        _ => return conv::max_pool(x, params).map(|(values, _)| values),
    };
    let operands = [(*x.shape(), x.dtype())];
    let shape = params
        .output_shape(x.shape())
        .map_err(|error| error.with_op("max_pool_values").with_operands(operands))?;
    let x = x.contiguous()?;
    let mut out = CpuTensor::empty(shape, x.dtype(), x.device())?;
    if out.numel() == 0 {
        return Ok(out);
    }
    let windows = Windows::new(x.shape(), &shape, params);
    let (plane, out_plane) = (
        windows.input.iter().product::<usize>(),
        windows.output.iter().product::<usize>(),
    );
    let (from, to) = (
        Pointer(x.ptr().cast_mut().cast::<f32>()),
        Pointer(out.ptr_mut().cast::<f32>()),
    );
    let failed = OnceLock::new();
    let ns = (plane + out_plane) as f32 * 0.4;
    x.device().split(shape[0] * shape[1], ns, 1, |start, end| {
        let line = match Buffer::alloc(windows.input[2] * size_of::<f32>()) {
            Ok(line) => line,
            Err(error) => {
                let _ = failed.set(error);
                return;
            }
        };
        for i in start..end {
            let planes = Planes {
                windows: &windows,
                x: from.at(i * plane),
                line: line.as_ptr().cast(),
                y: to.at(i * out_plane),
            };
            Level::run_loops(Some(level), planes);
        }
    });
    failed.into_inner().map_or(Ok(out), Err)
}

/// Windows over images of depth, height and width; missing axes have extent 1.
struct Windows {
    input: [usize; 3],
    output: [usize; 3],
    kernel: [usize; 3],
    stride: [usize; 3],
    padding: [usize; 3],
}

impl Windows {
    fn new(x: &Shape, out: &Shape, params: &PoolParams) -> Self {
        let spatial = x.rank() - 2;
        let spread = |values: &[usize], fill: usize| {
            let mut all = [fill; 3];
            all[3 - spatial..].copy_from_slice(&values[..spatial]);
            all
        };
        Self {
            input: spread(&x[2..], 1),
            output: spread(&out[2..], 1),
            kernel: spread(&params.kernel, 1),
            stride: spread(&params.stride, 1),
            padding: spread(&params.padding, 0),
        }
    }

    /// The places along an axis that a position sees.
    fn seen(&self, axis: usize, at: usize) -> std::ops::Range<usize> {
        let start = at * self.stride[axis];
        let end = (start + self.kernel[axis]).saturating_sub(self.padding[axis]);
        start.saturating_sub(self.padding[axis])..end.min(self.input[axis])
    }

    /// Along the last axis: the positions whose tap is inside, first and one past the last, and where it is for the first of them.
    fn positions(&self, tap: usize) -> (usize, usize, usize) {
        let (stride, padding) = (self.stride[2], self.padding[2]);
        let first = padding.saturating_sub(tap).div_ceil(stride);
        let end = (self.input[2] + padding)
            .saturating_sub(tap)
            .div_ceil(stride)
            .min(self.output[2]);
        (first, end.max(first), (first * stride + tap).saturating_sub(padding))
    }
}

/// One plane of the input and of the output, and room for a row of the input.
struct Planes<'a> {
    windows: &'a Windows,
    x: *const f32,
    line: *mut f32,
    y: *mut f32,
}

/// NaN is the largest.
#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if b > a || b.is_nan() { b } else { a }
}

impl Kernel for Planes<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Self { windows: w, x, line, y } = self;
        let [_, height, width] = w.input;
        let [depths, rows, columns] = w.output;
        for row in 0..depths * rows {
            // SAFETY: all places are inside the plane, the row's room and the output, as `seen` and `positions` bound them.
            unsafe {
                let mut fresh = true;
                for z in w.seen(0, row / rows) {
                    for h in w.seen(1, row % rows) {
                        let from = x.add((z * height + h) * width);
                        if fresh {
                            std::ptr::copy_nonoverlapping(from, line, width);
                        } else {
                            for i in 0..width {
                                line.add(i).write(larger(line.add(i).read(), from.add(i).read()));
                            }
                        }
                        fresh = false;
                    }
                }
                let to = y.add(row * columns);
                (0..columns).for_each(|i| to.add(i).write(f32::NEG_INFINITY));
                for tap in 0..w.kernel[2] {
                    let (start, end, place) = w.positions(tap);
                    let (from, to) = (line.add(place).cast_const(), to.add(start));
                    match w.stride[2] {
                        1 => raise(from, 1, to, end - start),
                        2 => raise(from, 2, to, end - start),
                        stride => raise(from, stride, to, end - start),
                    }
                }
            }
        }
    }
}

/// Raises `n` elements to those that are `stride` apart.
///
/// # Safety
/// Both must be there.
#[inline(always)]
unsafe fn raise(from: *const f32, stride: usize, to: *mut f32, n: usize) {
    for i in 0..n {
        // SAFETY: by the caller.
        unsafe { to.add(i).write(larger(to.add(i).read(), from.add(i * stride).read())) };
    }
}
