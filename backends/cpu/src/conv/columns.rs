//! Images as matrices of columns: a row for each channel and tap of the window, a column for each output position.

use crate::gemm::Real;
use polygrad_cpu_kernels::conv::geometry::Geometry;

/// The output positions along the last axis at which a tap lies inside the input: the first, and one past the last.
fn inside(g: &Geometry, tap: usize) -> (usize, usize) {
    let (stride, padding) = (g.stride[2], g.padding[2]);
    let offset = tap * g.dilation[2];
    let first = padding.saturating_sub(offset).div_ceil(stride).min(g.output[2]);
    let end = (g.input[2] + padding)
        .saturating_sub(offset)
        .div_ceil(stride)
        .min(g.output[2]);
    (first, end.max(first))
}

/// Calls `row(line, input, tap)` for each row of output positions under each channel and tap. `line` is the start of
/// the row among the columns; `input` is the start of the input's row, or `None` if that row lies in the border.
#[inline(always)]
fn lines(g: &Geometry, mut row: impl FnMut(usize, Option<usize>, usize)) {
    let at = |axis: usize, position: usize, tap: usize| {
        let place = position * g.stride[axis] + tap * g.dilation[axis];
        place
            .checked_sub(g.padding[axis])
            .filter(|&place| place < g.input[axis])
    };
    let mut line = 0;
    for channel in 0..g.inputs {
        for taps in 0..g.taps() {
            let tap = [
                taps / (g.kernel[1] * g.kernel[2]),
                taps / g.kernel[2] % g.kernel[1],
                taps % g.kernel[2],
            ];
            for depth in 0..g.output[0] {
                let deep = at(0, depth, tap[0]);
                for height in 0..g.output[1] {
                    let input = deep
                        .zip(at(1, height, tap[1]))
                        .map(|(deep, high)| ((channel * g.input[0] + deep) * g.input[1] + high) * g.input[2]);
                    row(line, input, tap[2]);
                    line += g.output[2];
                }
            }
        }
    }
}

/// Lays an image of one group out as columns.
///
/// # Safety
/// `image` holds the group's channels, `columns` has room for channels × taps × output positions.
pub(super) unsafe fn unfold<T: Real>(g: &Geometry, image: *const T, columns: *mut T) {
    let (width, stride) = (g.output[2], g.stride[2]);
    lines(g, |line, input, tap| {
        // SAFETY: the line is inside the columns; positions from `first` to `end` are inside the image's row.
        unsafe {
            let to = columns.add(line);
            let Some(input) = input else {
                (0..width).for_each(|i| to.add(i).write(T::ZERO));
                return;
            };
            let (first, end) = inside(g, tap);
            (0..first).for_each(|i| to.add(i).write(T::ZERO));
            (end..width).for_each(|i| to.add(i).write(T::ZERO));
            if first == end {
                return;
            }
            let from = image.add(input + first * stride + tap * g.dilation[2] - g.padding[2]);
            if stride == 1 {
                std::ptr::copy_nonoverlapping(from, to.add(first), end - first);
            } else {
                (first..end).for_each(|i| to.add(i).write(*from.add((i - first) * stride)));
            }
        }
    });
}

/// Adds columns back to the image that they were made from.
///
/// # Safety
/// As for [`unfold`]; the image can be written.
pub(super) unsafe fn fold<T: Real>(g: &Geometry, columns: *const T, image: *mut T) {
    let stride = g.stride[2];
    lines(g, |line, input, tap| {
        let (first, end) = inside(g, tap);
        let Some(input) = input.filter(|_| first < end) else {
            return;
        };
        // SAFETY: as for `unfold`.
        unsafe {
            let from = columns.add(line + first);
            let to = image.add(input + first * stride + tap * g.dilation[2] - g.padding[2]);
            for i in 0..end - first {
                let place = to.add(i * stride);
                *place = (*place).plus(*from.add(i));
            }
        }
    });
}
