//! The outputs: patches times filters.

use std::ops::Range;
use std::sync::OnceLock;

use polygrad_core::Result;

use super::images::Images;
use super::{Filters, Geometry, flat, turn};
use crate::CpuDevice;
use crate::Pointer;
use crate::buffers::Buffer;
use crate::conv::Epilogue;
use crate::gemm::{Dims, Input, Out, Update, Windows, any_tile, cost, most_rows, tiles};
use crate::simd::{Kernel, Simd};

/// The most elements of a window that are multiplied at a time: their rows of a panel stay in the first-level cache.
const MAX_ROWS: usize = 320;

/// Approximate number of positions of a task.
const POSITIONS: usize = 256;

/// Approximate bytes of images with a border that are copied at a time, unless the filters are larger: the copies stay
/// in the second-level cache while all filters are applied to them.
const COPY: usize = 512 << 10;

/// The fewest tasks for each thread, if the batch allows.
const TASKS: usize = 8;

/// Convolves images with filters, and applies the epilogue.
///
/// # Safety
/// `x` holds the input of `g`, contiguous; `to` has room for its output.
pub unsafe fn forward(
    device: CpuDevice,
    g: &Geometry,
    x: *const f32,
    filters: &Filters,
    epilogue: Option<&Epilogue<'_>>,
    to: *mut f32,
) -> Result<()> {
    let g = &flat(g);
    let together = together(device, g, filters);
    let mut places = Vec::new();
    for first in (0..g.batch).step_by(together) {
        let some = Geometry {
            batch: together.min(g.batch - first),
            ..*g
        };
        // SAFETY: by the caller.
        let images = unsafe { Images::new(device, &some, x.add(first * g.groups * g.inputs * g.plane())) }?;
        if first == 0 {
            places = images.places(g);
        }
        let images = Batch {
            g: &some,
            first,
            images: &images,
            places: &places,
        };
        images.convolve(device, filters, epilogue, to)?;
    }
    Ok(())
}

/// Number of images that are convolved at a time.
fn together(device: CpuDevice, g: &Geometry, filters: &Filters) -> usize {
    if g.padding == [0; 3] {
        // Images without a border are not copied.
        return g.batch;
    }
    let plane: usize = (0..3).map(|axis| g.input[axis] + 2 * g.padding[axis]).product();
    let bytes = g.groups * g.inputs * plane * size_of::<f32>();
    let tasks = g.groups * g.outputs.div_ceil(filters.width()) * g.out_plane();
    let wanted = match device.threads() {
        1 => 1,
        threads => (threads * TASKS * POSITIONS).div_ceil(tasks),
    };
    (COPY.max(filters.bytes()) / bytes).max(wanted).clamp(1, g.batch)
}

/// Some images of a batch.
struct Batch<'a> {
    /// The geometry for these images.
    g: &'a Geometry,
    /// Index in the batch of the first of them.
    first: usize,
    images: &'a Images,
    places: &'a [isize],
}

impl Batch<'_> {
    fn convolve(
        &self,
        device: CpuDevice,
        filters: &Filters,
        epilogue: Option<&Epilogue<'_>>,
        to: *mut f32,
    ) -> Result<()> {
        let (g, to) = (self.g, Pointer(to));
        let lines = g.output[0] * g.output[1];
        let all = g.batch * lines;
        let share = POSITIONS.div_ceil(g.output[2]).min(all);
        let parts = all.div_ceil(share);
        let dims = Dims {
            m: share * g.output[2],
            n: filters.width(),
            k: self.places.len(),
        };
        let failed = OnceLock::new();
        let panels = g.outputs.div_ceil(filters.width());
        // Tasks of one panel are consecutive, so that the panel stays in the cache.
        let tasks = g.groups * panels * parts;
        device.each(tasks, cost(dims, device.level()) + dims.m as f32, |task| {
            let (panel, part) = (task / parts, task % parts);
            let range = part * share..all.min((part + 1) * share);
            let sums = range.len() * g.output[2] * filters.width();
            let scratch = match Buffer::alloc(sums * size_of::<f32>()) {
                Ok(buffer) => buffer,
                Err(error) => {
                    let _ = failed.set(error);
                    return;
                }
            };
            let (group, first) = (panel / panels, panel % panels * filters.width());
            let part = Part {
                batch: self,
                group,
                lines: range,
                filters: filters.panel(panel),
                width: filters.width(),
                first: group * g.outputs + first,
                channels: filters.width().min(g.outputs - first),
                sums: scratch.as_ptr().cast(),
                epilogue,
                to: to.at(0),
            };
            device.level().run(part);
        });
        failed.into_inner().map_or(Ok(()), Err)
    }
}

/// Some rows of positions, counted over the images, times one panel of filters.
struct Part<'a> {
    batch: &'a Batch<'a>,
    group: usize,
    lines: Range<usize>,
    filters: *const f32,
    width: usize,
    /// The panel's first channel, counted over all groups, and its number of channels.
    first: usize,
    channels: usize,
    /// A row of the panel's width for each position.
    sums: *mut f32,
    epilogue: Option<&'a Epilogue<'a>>,
    /// The whole output.
    to: *mut f32,
}

impl Kernel for Part<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // SAFETY: the lines are those of the output, and all elements of their windows are inside the images.
        unsafe {
            if self.batch.g.stride[2] == 1 {
                self.multiply::<S, 1>(s);
            } else {
                self.multiply::<S, 2>(s);
            }
            self.bring_out(s);
        }
    }
}

impl Part<'_> {
    /// The parts of a window that are multiplied at a time: their first element, their length, and the update of the
    /// sums. An iterator instead of a function with a closure: a closure that contains a tile may not be inlined, and
    /// would lose the vector instructions.
    #[inline(always)]
    fn depths(&self) -> impl Iterator<Item = (usize, usize, Update<f32>)> + use<> {
        let places = self.batch.places.len();
        let depth = places.div_ceil(places.div_ceil(MAX_ROWS));
        (0..places).step_by(depth).map(move |top| {
            let update = if top == 0 { Update::set() } else { Update::add() };
            (top, depth.min(places - top), update)
        })
    }

    /// The panel's rows from element `top` of the window on.
    #[inline(always)]
    fn rows(&self, top: usize) -> *const f32 {
        self.filters.wrapping_add(top * self.width)
    }

    /// The sums from a position on, in as many whole registers as the channels need.
    #[inline(always)]
    fn out<S: Simd>(&self, position: usize) -> Out<f32> {
        Out {
            ptr: self.sums.wrapping_add(position * self.width),
            rows: self.width.cast_signed(),
            n: self.channels.next_multiple_of(S::N),
        }
    }

    /// Tiles of positions in one line, `STEP` elements apart.
    #[inline(always)]
    unsafe fn multiply<S: Simd, const STEP: usize>(&self, s: S) {
        let Batch { g, images, places, .. } = *self.batch;
        let lines = g.output[0] * g.output[1];
        let (count, first) = tiles(g.output[2], most_rows::<S>());
        for (top, rows, update) in self.depths() {
            for (i, line) in self.lines.clone().enumerate() {
                let window = images.window(g, line / lines, self.group, line % lines);
                for tile in 0..count {
                    let (start, end) = (first(tile), first(tile + 1));
                    let input = Input {
                        k: rows,
                        a: Windows::<_, STEP> {
                            base: window.wrapping_add(start * STEP),
                            places: places[top..].as_ptr(),
                        },
                        b: self.rows(top),
                        b_rows: self.width.cast_signed(),
                    };
                    let out = self.out::<S>(i * g.output[2] + start);
                    // SAFETY: the rows of the panel and of the sums are as wide as a tile.
                    unsafe { any_tile(s, end - start, input, out, update) };
                }
            }
        }
    }

    /// Transposes the sums, which lie position by position, into the output's planes, and applies the epilogue while
    /// they are in the cache.
    #[inline(always)]
    unsafe fn bring_out<S: Simd>(&self, s: S) {
        let Batch { g, first, .. } = *self.batch;
        let (plane, lines) = (g.out_plane(), g.output[0] * g.output[1]);
        let size = (self.lines.len() * g.output[2], self.width);
        if let Some(epilogue) = self.epilogue {
            // SAFETY: the sums have these positions, all of which are written.
            unsafe {
                let bias = &epilogue.bias[self.first..self.first + self.channels];
                epilogue.run_rows(s, bias, self.sums, size);
            }
        }
        let mut sums = self.sums.cast_const();
        let mut line = self.lines.start;
        while line < self.lines.end {
            let (image, inside) = (line / lines, line % lines);
            let some = (lines - inside).min(self.lines.end - line);
            let positions = some * g.output[2];
            let channel = (first + image) * g.groups * g.outputs + self.first;
            let place = channel * plane + inside * g.output[2];
            // SAFETY: the sums of these positions start at `sums`; their elements in the planes start at `place`.
            unsafe {
                let to = self.to.add(place);
                turn(s, sums, self.width, (positions, self.channels), to, plane);
                if let Some(epilogue) = self.epilogue.filter(|with| !with.ends_in_rows(self.channels, size)) {
                    for i in 0..self.channels {
                        epilogue.run(0.0, self.to, place + i * plane, positions);
                    }
                }
            }
            sums = sums.wrapping_add(positions * self.width);
            line += some;
        }
    }
}
