//! Outputs: patches times filters.

use std::sync::OnceLock;

use polygrad_core::Result;

use super::images::Images;
use super::{Filters, Geometry, flat, turn};
use crate::CpuDevice;
use crate::buffers::Buffer;
use crate::conv::Then;
use crate::gemm::{Dims, Input, Out, Update, Width, Windows, cost, tiles};
use crate::loops::Pointer;
use crate::simd::{Kernel, Simd};

/// Places of a window that are multiplied at a time, at most: their rows of a panel stay in the first-level cache.
const MOST_ROWS: usize = 320;

/// Positions of a task, about.
const POSITIONS: usize = 256;

/// Convolves images with filters, and does to the results what follows.
///
/// # Safety
/// `x` holds the input of `g`, contiguous; `to` has room for its output.
pub(in crate::conv) unsafe fn forward(
    device: CpuDevice,
    g: &Geometry,
    x: *const f32,
    filters: &Filters,
    then: Option<&Then<'_>>,
    to: *mut f32,
) -> Result<()> {
    let g = &flat(g);
    // SAFETY: by the caller.
    let images = unsafe { Images::new(device, g, x) }?;
    let places = images.places(g);
    let to = Pointer(to);
    let lines = g.output[0] * g.output[1];
    let all = g.batch * lines;
    let share = POSITIONS.div_ceil(g.output[2]).min(all);
    let parts = all.div_ceil(share);
    let dims = Dims {
        m: share * g.output[2],
        n: filters.width(),
        k: places.len(),
    };
    let failed = OnceLock::new();
    let panels = g.outputs.div_ceil(filters.width());
    // Tasks of one panel follow each other, so that it stays in the cache.
    let tasks = g.groups * panels * parts;
    device.each(tasks, cost(dims, device.level()) + dims.m as f32, |task| {
        let (panel, part) = (task / parts, task % parts);
        let range = part * share..all.min((part + 1) * share);
        let scratch = match Buffer::alloc(range.len() * g.output[2] * filters.width() * size_of::<f32>()) {
            Ok(buffer) => buffer,
            Err(error) => {
                let _ = failed.set(error);
                return;
            }
        };
        let (group, first) = (panel / panels, panel % panels * filters.width());
        let part = Part {
            g,
            images: &images,
            places: &places,
            group,
            lines: range,
            filters: filters.panel(panel),
            width: filters.width(),
            first: group * g.outputs + first,
            channels: filters.width().min(g.outputs - first),
            sums: scratch.as_ptr().cast(),
            then,
            to: to.at(0),
        };
        device.level().run(part);
    });
    failed.into_inner().map_or(Ok(()), Err)
}

/// Some rows of positions, counted over the batch, times a panel of filters.
struct Part<'a> {
    g: &'a Geometry,
    images: &'a Images,
    places: &'a [isize],
    group: usize,
    lines: std::ops::Range<usize>,
    filters: *const f32,
    width: usize,
    /// The panel's first channel, counted over all groups, and how many it has.
    first: usize,
    channels: usize,
    /// For each position a row of the panel's width.
    sums: *mut f32,
    then: Option<&'a Then<'a>>,
    /// The whole output.
    to: *mut f32,
}

impl Kernel for Part<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // SAFETY: the lines are those of the output, and all places of their windows are inside the images.
        unsafe {
            if self.g.stride[2] == 1 {
                self.multiply::<S, 1>(s);
            } else {
                self.multiply::<S, 2>(s);
            }
            self.bring_out(s);
        }
    }
}

impl Part<'_> {
    #[inline(always)]
    unsafe fn multiply<S: Simd, const STEP: usize>(&self, s: S) {
        let g = self.g;
        let per_image = g.output[0] * g.output[1];
        let (count, first) = tiles(g.output[2], <S::Tile as Width>::MR);
        let depths = self.places.len().div_ceil(MOST_ROWS);
        let depth = self.places.len().div_ceil(depths);
        for top in (0..self.places.len()).step_by(depth) {
            let rows = depth.min(self.places.len() - top);
            let update = if top == 0 { Update::set() } else { Update::add() };
            let mut sums = self.sums;
            for line in self.lines.clone() {
                let window = self.images.window(g, line / per_image, self.group, line % per_image);
                for tile in 0..count {
                    let (start, end) = (first(tile), first(tile + 1));
                    let input = Input {
                        k: rows,
                        a: Windows::<_, STEP> {
                            base: window.wrapping_add(start * STEP),
                            places: self.places[top..].as_ptr(),
                        },
                        b: self.filters.wrapping_add(top * self.width),
                        b_rows: self.width.cast_signed(),
                    };
                    let out = Out {
                        ptr: sums.wrapping_add(start * self.width),
                        rows: self.width.cast_signed(),
                        n: self.width,
                    };
                    // SAFETY: the panel's rows are as wide as a tile, and so are those of the sums.
                    unsafe { <S::Tile as Width>::any_tile(s, end - start, input, out, update) };
                }
                sums = sums.wrapping_add(g.output[2] * self.width);
            }
        }
    }

    /// Brings the sums, which lie position by position, into the output's planes, and does what follows while they are in the cache.
    #[inline(always)]
    unsafe fn bring_out<S: Simd>(&self, s: S) {
        let g = self.g;
        let (plane, per_image) = (g.out_plane(), g.output[0] * g.output[1]);
        let mut sums = self.sums.cast_const();
        let mut line = self.lines.start;
        while line < self.lines.end {
            let (image, inside) = (line / per_image, line % per_image);
            let lines = (per_image - inside).min(self.lines.end - line);
            let positions = lines * g.output[2];
            let place = (image * g.groups * g.outputs + self.first) * plane + inside * g.output[2];
            // SAFETY: the sums of these positions lie from `sums` on; the planes have them from `place` on.
            unsafe {
                let to = self.to.add(place);
                turn(s, sums, self.width, (positions, self.channels), to, plane);
                if let Some(then) = self.then {
                    for i in 0..self.channels {
                        then.run(self.first + i, self.to, place + i * plane, positions);
                    }
                }
            }
            sums = sums.wrapping_add(positions * self.width);
            line += lines;
        }
    }
}
