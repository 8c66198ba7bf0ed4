//! The weight's gradient: transposed patches times the output's gradient.

use std::ops::Range;

use polygrad_core::Result;

use super::images::Images;
use super::{Geometry, flat, panel_width, turn};
use crate::CpuDevice;
use crate::Pointer;
use crate::buffers::Buffer;
use crate::gemm::{Dims, Input, Mat, Out, Panels, Strided, Turned, Update, any_tile, cost, most_rows};
use crate::simd::{Kernel, Simd};

/// Positions after which a tile is stored: the gradient's rows for these positions stay in the first cache levels.
const POSITIONS: usize = 256;

/// Elements of a window that are one task.
const PLACES: usize = 96;

/// The fewest tasks, if images allow: if there are fewer, each is cut into parts of the batch, whose sums are then
/// added up.
const LEAST_TASKS: usize = 4;

/// Computes the gradient with respect to the filters.
///
/// # Safety
/// `x` holds the input of `g` and `grad` its output, both contiguous; `to` has room for the filters.
pub unsafe fn weight_grad(
    device: CpuDevice,
    g: &Geometry,
    grad: *const f32,
    x: *const f32,
    to: *mut f32,
) -> Result<()> {
    let g = &flat(g);
    // SAFETY: by the caller.
    let images = unsafe { Images::new(device, g, x) }?;
    let places = images.places(g);
    let (width, plane) = (panel_width(device.level()), g.out_plane());
    let panels = g.outputs.div_ceil(width);
    // For each group, panel and image: a row of channels for each position.
    let rows = Buffer::alloc(g.groups * panels * g.batch * plane * width * size_of::<f32>())?;
    let (rows, grad, to) = (
        (Pointer(rows.as_ptr().cast::<f32>()), rows),
        Pointer(grad.cast_mut()),
        Pointer(to),
    );
    device.each(g.groups * panels * g.batch, (plane * width) as f32 * 0.15, |i| {
        let (image, panel, group) = (i % g.batch, i / g.batch % panels, i / g.batch / panels);
        let first = panel * width;
        let from = grad
            .at(((image * g.groups + group) * g.outputs + first) * plane)
            .cast_const();
        device.level().run(Turn {
            channels: Strided(Mat::new(from, 1, plane.cast_signed())),
            positions: plane,
            columns: width.min(g.outputs - first),
            width,
            to: rows.0.at(i * plane * width),
        });
    });
    // Several small images at a time, so that sums are long.
    let together = POSITIONS.div_ceil(plane).min(g.batch);
    let windows = images.windows(g, together);
    let shares = places.len().div_ceil(PLACES);
    let dims = Dims {
        m: PLACES.min(places.len()),
        n: width,
        k: g.batch * plane,
    };
    let tasks = g.groups * panels * shares;
    let rounds = g.batch.div_ceil(together);
    let parts = (LEAST_TASKS / tasks).clamp(1, rounds);
    let size = dims.m * width;
    let sums = Buffer::alloc(tasks * parts * size * size_of::<f32>())?;
    let sums = (Pointer(sums.as_ptr().cast::<f32>()), sums);
    let part = |task: usize, part: usize| {
        let (share, panel, group) = (task % shares, task / shares % panels, task / shares / panels);
        let first = panel * width;
        let range = share * PLACES..places.len().min((share + 1) * PLACES);
        let start = |part: usize| g.batch.min(part * rounds / parts * together);
        Part {
            g,
            images: &images,
            group,
            together,
            batch: start(part)..start(part + 1),
            windows: &windows,
            places: &places[range.clone()],
            rows: rows
                .0
                .at((group * panels + panel) * g.batch * plane * width)
                .cast_const(),
            width,
            channels: width.min(g.outputs - first),
            sums: sums.0.at((task * parts + part) * size),
            to: to.at((group * g.outputs + first) * places.len() + range.start),
            filter: places.len(),
        }
    };
    device.each(tasks * parts, cost(dims, device.level()) / parts as f32, |i| {
        let part = part(i / parts, i % parts);
        device.level().run(AddUp(&part));
        if parts == 1 {
            device.level().run(BringOut(&part));
        }
    });
    if parts > 1 {
        device.each(tasks, (parts * size) as f32 * 0.15, |task| {
            let first = part(task, 0);
            for other in 1..parts {
                for i in 0..first.places.len() * width {
                    // SAFETY: each part of the task has this many sums, and they belong to this task.
                    unsafe { *first.sums.add(i) += *sums.0.at((task * parts + other) * size + i) };
                }
            }
            device.level().run(BringOut(&first));
        });
    }
    Ok(())
}

/// Packs the channels of an image's gradient as columns.
struct Turn {
    channels: Strided<f32>,
    positions: usize,
    columns: usize,
    width: usize,
    to: *mut f32,
}

impl Kernel for Turn {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // SAFETY: the gradient has these positions and channels, and the rows room for them.
        unsafe {
            self.channels
                .pack(s, (0, self.positions), (0, self.columns), self.width, self.to);
        }
    }
}

/// Some elements of a window times a panel of channels, over some of the images.
struct Part<'a> {
    g: &'a Geometry,
    images: &'a Images,
    group: usize,
    /// Number of images that are summed up at a time, and the offsets of their windows.
    together: usize,
    batch: Range<usize>,
    windows: &'a [isize],
    places: &'a [isize],
    /// The panel's rows of the first image.
    rows: *const f32,
    width: usize,
    channels: usize,
    /// A row of the panel's width for each element of the window.
    sums: *mut f32,
    /// The first of these elements in the panel's first filter.
    to: *mut f32,
    /// Elements of a filter.
    filter: usize,
}

/// Computes the sums of a part.
struct AddUp<'a>(&'a Part<'a>);

impl Kernel for AddUp<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // Most windows are 3 wide.
        let g = self.0.g;
        let threes = g.kernel[2] == 3 && g.dilation[2] == 1 && most_rows::<S>().is_multiple_of(3);
        if threes {
            self.0.add_up::<S, 3>(s);
        } else {
            self.0.add_up::<S, 1>(s);
        }
    }
}

impl Part<'_> {
    /// For windows in which groups of `SIDE` elements are adjacent.
    #[inline(always)]
    fn add_up<S: Simd, const SIDE: usize>(&self, s: S) {
        let plane = self.g.out_plane();
        let sides = self.places.len() / SIDE;
        let count = sides.div_ceil(most_rows::<S>() / SIDE);
        let first = |tile: usize| tile * sides / count;
        for image in self.batch.clone().step_by(self.together) {
            let base = self.images.window(self.g, image, self.group, 0);
            let positions = self.together.min(self.batch.end - image) * plane;
            for start in (0..positions).step_by(POSITIONS) {
                let update = if image == self.batch.start && start == 0 {
                    Update::set()
                } else {
                    Update::add()
                };
                for tile in 0..count {
                    let (top, end) = (first(tile) * SIDE, first(tile + 1) * SIDE);
                    let input = Input {
                        k: POSITIONS.min(positions - start),
                        a: Turned::<_, SIDE> {
                            base,
                            windows: self.windows[start..].as_ptr(),
                            places: self.places[top..].as_ptr(),
                        },
                        b: self.rows.wrapping_add((image * plane + start) * self.width),
                        b_rows: self.width.cast_signed(),
                    };
                    let out = Out {
                        ptr: self.sums.wrapping_add(top * self.width),
                        rows: self.width.cast_signed(),
                        n: self.width,
                    };
                    // SAFETY: all elements of the windows are inside the images; rows and sums are as wide as a tile.
                    unsafe { any_tile(s, end - top, input, out, update) };
                }
            }
        }
    }
}

/// Transposes the sums of a part into the filters.
struct BringOut<'a>(&'a Part<'a>);

impl Kernel for BringOut<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let part = self.0;
        let size = (part.places.len(), part.channels);
        // SAFETY: the sums have a row for each element of the window, and the filters have these elements.
        unsafe { turn(s, part.sums, part.width, size, part.to, part.filter) };
    }
}
