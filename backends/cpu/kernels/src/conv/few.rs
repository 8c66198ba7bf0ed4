//! Convolution to few channels per group, above all depthwise: sums of shifted lines.
//!
//! A task copies the input lines of some output lines, border included, and sorts the elements of a line by their
//! column modulo the stride. Thus the elements that a tap needs for an output line are contiguous for any stride.

use std::ops::Range;
use std::sync::OnceLock;

use polygrad_core::Result;

use super::geometry::Geometry;
use super::{Epilogue, MAX_ROWS, direct};
use crate::CpuDevice;
use crate::Pointer;
use crate::buffers::Buffer;
use crate::gemm::{Dims, cost};
use crate::simd::{Kernel, Level, Simd};

/// Approximate bytes of a task's copy: it stays in the first levels of the cache.
const COPY: usize = 96 << 10;

/// Lanes of the largest register.
const MAX_LANES: usize = 16;

/// Output lines that are summed together.
const LINES: usize = 4;

/// Whether a convolution with so few output channels is computed this way: at least half of the lanes of a register
/// that holds the channels of a position would be idle.
pub fn suits(device: CpuDevice, g: &Geometry) -> bool {
    (direct::is_narrow(g) || 2 * g.outputs <= device.level().lanes()) && g.inputs * g.taps() > 0
}

/// Convolves images to `g.outputs` channels per group, and applies the epilogue.
///
/// # Safety
/// `x` and `weight` hold the input and the filters of `g`, contiguous; `to` has room for its output.
pub unsafe fn forward(
    device: CpuDevice,
    g: &Geometry,
    x: *const f32,
    weight: *const f32,
    epilogue: Option<&Epilogue<'_>>,
    to: *mut f32,
) -> Result<()> {
    // SAFETY: passed on.
    unsafe { forward_by(device.level(), device, g, x, weight, epilogue, to) }
}

/// [`forward`] with given instructions.
///
/// # Safety
/// As for [`forward`]; the machine must have the instructions.
unsafe fn forward_by(
    level: Level,
    device: CpuDevice,
    g: &Geometry,
    x: *const f32,
    weight: *const f32,
    epilogue: Option<&Epilogue<'_>>,
    to: *mut f32,
) -> Result<()> {
    let lines = Lines::new(g)?;
    let height = lines.height;
    let strips = g.output[1].div_ceil(height);
    let planes = g.batch * g.groups;
    let dims = Dims {
        m: g.outputs,
        n: height * g.output[2],
        k: lines.count,
    };
    let (x, weight, to) = (Pointer(x.cast_mut()), Pointer(weight.cast_mut()), Pointer(to));
    let failed = OnceLock::new();
    device.each(planes * g.output[0] * strips, 2.0 * cost(dims, level), |task| {
        let (plane, depth, strip) = (
            task / (g.output[0] * strips),
            task / strips % g.output[0],
            task % strips,
        );
        let rows = strip * height..g.output[1].min((strip + 1) * height);
        let room = match Buffer::alloc(lines.room(g) * size_of::<f32>()) {
            Ok(buffer) => buffer,
            Err(error) => {
                let _ = failed.set(error);
                return;
            }
        };
        let filters = plane % g.groups * g.outputs;
        level.run(Strip {
            g,
            lines: &lines,
            depth,
            rows,
            from: x.at(plane * g.inputs * g.plane()).cast_const(),
            room: room.as_ptr().cast(),
            weight: weight.at(filters * lines.count).cast_const(),
            first: filters,
            epilogue,
            to: to.at(0),
            place: plane * g.outputs * g.out_plane(),
        });
    });
    failed.into_inner().map_or(Ok(()), Err)
}

/// The layout of a strip's copy.
struct Lines {
    /// Elements of a copied line, which has one stretch for each remainder modulo the stride, and of a stretch.
    line: usize,
    stretch: usize,
    /// The most output lines of a task, and the input lines that their windows cover.
    height: usize,
    met: usize,
    /// [`Lines::inside`] and [`Lines::places`], in memory of the buffer pool.
    table: Buffer,
    phases: usize,
    count: usize,
}

/// For one remainder: the first element of its stretch that is inside the image, one past the last, and the column of
/// the first in the image's line.
type Inside = [usize; 3];

impl Lines {
    fn new(g: &Geometry) -> Result<Self> {
        let [_, high, wide] = g.kernel;
        let (stride, dilation) = (g.stride[2], g.dilation[2]);
        let stretch = g.output[2].next_multiple_of(MAX_LANES) + (wide - 1) * dilation / stride + 1;
        let line = stretch * stride;
        let reach = (high - 1) * g.dilation[1] + 1;
        let fit = COPY / (g.inputs * g.kernel[0] * line * size_of::<f32>());
        let height = (fit.saturating_sub(reach) / g.stride[1] + 1).min(g.output[1]);
        let met = (height - 1) * g.stride[1] + reach;
        let place = |place: usize| {
            let (plane, tap) = (place / (high * wide), [place / wide % high, place % wide]);
            let column = tap[1] * dilation;
            (plane * met + tap[0] * g.dilation[1]) * line + column % stride * stretch + column / stride
        };
        let inside = |phase: usize| {
            let ahead = |places: usize| places.saturating_sub(phase).div_ceil(stride).min(stretch);
            let (low, high) = (ahead(g.padding[2]), ahead(g.input[2] + g.padding[2]));
            [low, high, (low * stride + phase).saturating_sub(g.padding[2])]
        };
        let count = g.inputs * g.taps();
        let table = Buffer::alloc(stride * size_of::<Inside>() + count * size_of::<usize>())?;
        // SAFETY: the buffer has room for both, one after the other, and is aligned for them.
        unsafe {
            let to = table.as_ptr().cast::<Inside>();
            (0..stride).for_each(|phase| to.add(phase).write(inside(phase)));
            let to = to.add(stride).cast::<usize>();
            (0..count).for_each(|i| to.add(i).write(place(i)));
        }
        Ok(Self {
            line,
            stretch,
            height,
            met,
            table,
            phases: stride,
            count,
        })
    }

    /// The part of each remainder's stretch that is inside the image.
    fn inside(&self) -> &[Inside] {
        // SAFETY: `new` wrote them.
        unsafe { std::slice::from_raw_parts(self.table.as_ptr().cast(), self.phases) }
    }

    /// Offset of each channel, depth, line and column of a window from the first.
    fn places(&self) -> &[usize] {
        // SAFETY: `new` wrote them after the others.
        unsafe { std::slice::from_raw_parts(self.table.as_ptr().cast::<Inside>().add(self.phases).cast(), self.count) }
    }

    /// Elements of a task's copy.
    fn room(&self, g: &Geometry) -> usize {
        g.inputs * g.kernel[0] * self.met * self.line
    }

    /// Copies a line of the image, sorted into its stretches.
    ///
    /// # Safety
    /// The line has `width` elements, and `to` room for the stretches.
    #[inline(always)]
    unsafe fn sort<S: Simd>(&self, s: S, from: *const f32, width: usize, to: *mut f32) {
        let stride = self.phases;
        for (phase, &[low, high, first]) in self.inside().iter().enumerate() {
            let (mut i, mut at) = (low, first);
            let to = to.wrapping_add(phase * self.stretch);
            // Whole registers first, without masks, since what is stored under a mask is not forwarded to loads.
            while stride <= 2 && i + S::N <= high && at + stride * S::N <= width {
                // SAFETY: these elements are inside the line, and inside the stretch.
                unsafe {
                    let near = s.load(from.add(at));
                    let whole = match stride {
                        1 => near,
                        _ => s.evens(near, s.load(from.add(at + S::N))),
                    };
                    s.store(to.add(i), whole);
                }
                (i, at) = (i + S::N, at + stride * S::N);
            }
            while i < high {
                let n = S::N.min(high - i);
                // SAFETY: as above.
                unsafe {
                    let (from, to) = (from.add(at), to.add(i));
                    let left = width - at;
                    match stride {
                        1 => s.store_part(to, n, s.load_part(from, n)),
                        2 => {
                            let near = s.load_part(from, S::N.min(left));
                            let far = s.load_part(from.wrapping_add(S::N), S::N.min(left.saturating_sub(S::N)));
                            s.store_part(to, n, s.evens(near, far));
                        }
                        _ => (0..n).for_each(|i| to.add(i).write(from.add(i * stride).read())),
                    }
                }
                (i, at) = (i + n, at + n * stride);
            }
        }
    }
}

/// Some output lines in a plane of each output channel of a group.
struct Strip<'a> {
    g: &'a Geometry,
    lines: &'a Lines,
    depth: usize,
    rows: Range<usize>,
    /// The group's channels in the image.
    from: *const f32,
    /// Scratch memory with room for the copy.
    room: *mut f32,
    /// The group's filters, and the index of its first output channel.
    weight: *const f32,
    first: usize,
    epilogue: Option<&'a Epilogue<'a>>,
    /// The whole output, and the start of the group's first plane in it.
    to: *mut f32,
    place: usize,
}

impl Kernel for Strip<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { g, lines, .. } = self;
        // SAFETY: the scratch memory was sized by these lines; the caller of `forward` guarantees the rest.
        unsafe {
            self.copy(s);
            let place = |output: usize| {
                self.place + output * g.out_plane() + (self.depth * g.output[1] + self.rows.start) * g.output[2]
            };
            let mut output = match (g.kernel, g.stride[1]) {
                _ if g.inputs != 1 || g.outputs != 1 || g.dilation[1] != 1 || self.rows.len() < LINES => 0,
                ([1, 3, 3], 1) => self.lines_of::<S, 3, 3, 1>(s, place(0)),
                ([1, 3, 3], 2) => self.lines_of::<S, 3, 3, 2>(s, place(0)),
                ([1, 5, 5], 1) => self.lines_of::<S, 5, 5, 1>(s, place(0)),
                ([1, 5, 5], 2) => self.lines_of::<S, 5, 5, 2>(s, place(0)),
                _ => 0,
            };
            while output < g.outputs {
                let (weight, to) = (self.weight.add(output * lines.count), self.to.add(place(output)));
                // Outputs share what is loaded, as far as registers allow.
                output += match (S::REGISTERS, g.outputs - output) {
                    (32, 4..) => self.sums::<S, 4, 6>(s, weight, to),
                    (16 | 32, 2..) => self.sums::<S, 2, 6>(s, weight, to),
                    _ => self.sums::<S, 1, 8>(s, weight, to),
                };
            }
            if let Some(epilogue) = self.epilogue {
                for output in 0..g.outputs {
                    let bias = epilogue.bias[self.first + output];
                    epilogue.run(bias, self.to, place(output), self.rows.len() * g.output[2]);
                }
            }
        }
    }
}

impl Strip<'_> {
    /// Copies the lines that the windows cover to the scratch memory; elements outside the image are 0.
    ///
    /// # Safety
    /// `room` must have space for them, and `from` be the group's channels.
    #[inline(always)]
    unsafe fn copy<S: Simd>(&self, s: S) {
        let Self { g, lines, .. } = self;
        let (planes, size) = (g.inputs * g.kernel[0], lines.met * lines.line);
        // SAFETY: the scratch memory has this many elements; all bits zero are the number 0.
        unsafe { std::ptr::write_bytes(self.room, 0, planes * size) };
        for plane in 0..planes {
            let (channel, depth) = (plane / g.kernel[0], plane % g.kernel[0]);
            let deep = (self.depth * g.stride[0] + depth * g.dilation[0]).wrapping_sub(g.padding[0]);
            let met = (self.rows.len() - 1) * g.stride[1] + lines.met - (lines.height - 1) * g.stride[1];
            for line in 0..met {
                let high = (self.rows.start * g.stride[1] + line).wrapping_sub(g.padding[1]);
                if deep < g.input[0] && high < g.input[1] {
                    let from = (channel * g.input[0] + deep) * g.input[1] + high;
                    // SAFETY: the line is inside the image, and the scratch memory has space for it.
                    unsafe {
                        let to = self.room.add(plane * size + line * lines.line);
                        lines.sort(s, self.from.add(from * g.input[2]), g.input[2], to);
                    }
                }
            }
        }
    }

    /// The sums of the only output channel, [`LINES`] of its lines at a time, for windows of `HIGH` lines of `WIDE`
    /// columns that step by `STEP` lines: what is loaded is used by all lines whose windows contain it, and with
    /// AVX-512 the weights stay in registers. The products of an output are added in the order of [`Strip::sums`].
    /// Returns the number of channels, which is 1.
    ///
    /// # Safety
    /// The lines have been copied, of which at least `LINES` are computed, and `place` is where these begin in the
    /// output.
    #[allow(clippy::needless_range_loop, reason = "registers are named by their indices")]
    #[inline(always)]
    unsafe fn lines_of<S: Simd, const HIGH: usize, const WIDE: usize, const STEP: usize>(
        &self,
        s: S,
        place: usize,
    ) -> usize {
        /// Repeats the body for each line of the windows, whose index is a constant: a loop that is not unrolled
        /// would leave sums in memory.
        macro_rules! each_line {
            ($i:ident, $body:block, $($line:literal)*) => {$(
                if const { $line < (LINES - 1) * STEP + HIGH } {
                    const $i: usize = $line;
                    $body
                }
            )*};
        }
        let Self { g, lines, .. } = self;
        let (width, count, line) = (g.output[2], self.rows.len(), lines.line);
        let zero = s.splat(0.0);
        // SAFETY: `(count - 1) STEP + HIGH` lines have been copied, each with whole registers of columns and the reach
        // of a window; those of the output are writable by the caller's contract.
        unsafe {
            let mut weights = [[zero; WIDE]; HIGH];
            for y in 0..HIGH {
                for x in 0..WIDE {
                    weights[y][x] = s.splat(self.weight.add(y * WIDE + x).read());
                }
            }
            let mut columns = [0; WIDE];
            columns.copy_from_slice(&lines.places()[..WIDE]);
            for top in (0..count).step_by(LINES) {
                // The last lines overlap those before them.
                let top = top.min(count - LINES);
                for column in (0..width).step_by(S::N) {
                    let from = self.room.add(top * STEP * line + column).cast_const();
                    let mut sums = [zero; LINES];
                    each_line!(AT, {
                        for x in 0..WIDE {
                            let v = s.load(from.add(AT * line + columns[x]));
                            for out in 0..LINES {
                                // The window of this output may begin further down.
                                let y = AT.wrapping_sub(out * STEP);
                                if y < HIGH {
                                    sums[out] = s.mul_add(weights[y][x], v, sums[out]);
                                }
                            }
                        }
                    }, 0 1 2 3 4 5 6 7 8 9 10);
                    let n = S::N.min(width - column);
                    let to = self.to.add(place + top * width + column);
                    for out in 0..LINES {
                        if n == S::N {
                            s.store(to.add(out * width), sums[out]);
                        } else {
                            s.store_part(to.add(out * width), n, sums[out]);
                        }
                    }
                }
            }
        }
        1
    }

    /// The sums of some output channels, `REGISTERS` registers of each at a time. Returns the number of channels.
    ///
    /// # Safety
    /// The lines have been copied, `weight` has a number for each element of the channels' windows, and `to` has room
    /// for the lines in each channel's plane.
    #[allow(clippy::needless_range_loop, reason = "registers are named by their indices")]
    #[inline(always)]
    unsafe fn sums<S: Simd, const OUTPUTS: usize, const REGISTERS: usize>(
        &self,
        s: S,
        weight: *const f32,
        to: *mut f32,
    ) -> usize {
        let Self { g, lines, .. } = self;
        let (width, places, plane) = (g.output[2], lines.places(), g.out_plane());
        let (count, step) = (self.rows.len() * width.div_ceil(S::N), g.stride[1] * lines.line);
        let (mut row, mut column) = (0, 0);
        for first in (0..count).step_by(REGISTERS) {
            // Each register's first element in the copy, its place in the output, and its number of elements. Surplus
            // registers repeat the last one.
            let mut from = [self.room.cast_const(); REGISTERS];
            let mut out = [(0, 0); REGISTERS];
            for i in 0..REGISTERS {
                if first + i == count {
                    let last = from[i - 1];
                    from[i..].fill(last);
                    break;
                }
                from[i] = self.room.wrapping_add(row * step + column);
                out[i] = (row * width + column, S::N.min(width - column));
                column += S::N;
                if column >= width {
                    (row, column) = (row + 1, 0);
                }
            }
            let zero = s.splat(0.0);
            let mut all = [[zero; REGISTERS]; OUTPUTS];
            // SAFETY: all elements are inside the scratch memory, and those of the output are writable by the caller's
            // contract.
            unsafe {
                for top in (0..places.len()).step_by(MAX_ROWS) {
                    let mut sums = [[zero; REGISTERS]; OUTPUTS];
                    for place in top..places.len().min(top + MAX_ROWS) {
                        let at = *places.get_unchecked(place);
                        let mut w = [zero; OUTPUTS];
                        for o in 0..OUTPUTS {
                            w[o] = s.splat(weight.add(o * places.len() + place).read());
                        }
                        for i in 0..REGISTERS {
                            let x = s.load(from[i].add(at));
                            for o in 0..OUTPUTS {
                                sums[o][i] = s.mul_add(w[o], x, sums[o][i]);
                            }
                        }
                    }
                    for o in 0..OUTPUTS {
                        for i in 0..REGISTERS {
                            all[o][i] = s.add(all[o][i], sums[o][i]);
                        }
                    }
                }
                for (o, all) in all.iter().enumerate() {
                    for (&sum, (place, n)) in all.iter().zip(out).take(count - first) {
                        s.store_part(to.add(o * plane + place), n, sum);
                    }
                }
            }
        }
        OUTPUTS
    }
}

#[cfg(test)]
mod tests {
    use super::super::lanes::tests::{geometry, numbers, windows};
    use super::*;
    use crate::Kernels;

    #[test]
    fn windows_of_one_channel_have_the_same_bits_at_each_level() {
        let flat = |height: usize, width: usize| [1, height, width];
        for window in [[3, 3], [5, 5], [3, 5], [2, 3]] {
            for (stride, padding) in [([1, 1], [1, 2]), ([2, 2], [2, 1]), ([2, 1], [0, 0]), ([1, 3], [2, 2])] {
                // More and fewer lines than are summed together, and a rest; lines shorter and longer than registers.
                for input in [flat(8, 40), flat(13, 17), flat(5, 33), flat(11, 5)] {
                    let [kernel, stride, padding] = [window, stride, padding].map(|[y, x]| flat(y, x));
                    let padding = [0, padding[1], padding[2]];
                    let g = geometry(3, input, [kernel, stride, padding, [1; 3]]);
                    let (x, weight) = (numbers(g.batch * 3 * g.plane(), 1), numbers(3 * g.taps(), 2));
                    let sum = |(plane, taps): (usize, Vec<(usize, usize)>)| {
                        let filter = &weight[plane % 3 * g.taps()..];
                        taps.iter()
                            .fold(0f32, |sum, &(tap, at)| filter[tap].mul_add(x[at], sum))
                    };
                    let wanted: Vec<f32> = windows(&g).map(sum).collect();
                    for level in Level::available() {
                        for threads in [1, 2] {
                            let device = CpuDevice::new(threads, Kernels::Simd).unwrap();
                            let mut y = vec![f32::NAN; wanted.len()];
                            // SAFETY: all have the sizes of the geometry.
                            unsafe {
                                let (x, weight) = (x.as_ptr(), weight.as_ptr());
                                forward_by(level, device, &g, x, weight, None, y.as_mut_ptr()).unwrap();
                            }
                            let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                            assert_eq!(bits(&y), bits(&wanted), "{level:?} {threads} {g:?}");
                        }
                    }
                }
            }
        }
    }
}
