//! The weight's gradient: patches, turned, times the output's gradient.

use std::sync::OnceLock;

use polygrad_core::Result;

use super::images::Images;
use super::{Geometry, flat, panel_width, turn};
use crate::CpuDevice;
use crate::buffers::Buffer;
use crate::gemm::{Dims, Input, Mat, Out, Panels, Strided, Turned, Update, Width, cost};
use crate::loops::Pointer;
use crate::simd::{Kernel, Simd};

/// Positions after which a tile is put down: the gradient's rows of that many stay in the first cache levels.
const POSITIONS: usize = 256;

/// Places of a window that are one task.
const PLACES: usize = 96;

/// Adds up the gradient with respect to the filters.
///
/// # Safety
/// `x` holds the input of `g` and `grad` its output, both contiguous; `to` has room for the filters.
pub(in crate::conv) unsafe fn weight_grad(
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
    // For each group, panel and image a row of channels for each position.
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
    // As many images at a time as make a long sum.
    let together = POSITIONS.div_ceil(plane).min(g.batch);
    let windows = images.windows(g, together);
    let shares = places.len().div_ceil(PLACES);
    let dims = Dims {
        m: PLACES.min(places.len()),
        n: width,
        k: g.batch * plane,
    };
    let failed = OnceLock::new();
    device.each(g.groups * panels * shares, cost(dims, device.level()), |task| {
        let (share, panel, group) = (task % shares, task / shares % panels, task / shares / panels);
        let first = panel * width;
        let range = share * PLACES..places.len().min((share + 1) * PLACES);
        let sums = match Buffer::alloc(range.len() * width * size_of::<f32>()) {
            Ok(buffer) => buffer,
            Err(error) => {
                let _ = failed.set(error);
                return;
            }
        };
        device.level().run(Part {
            g,
            images: &images,
            group,
            together,
            windows: &windows,
            places: &places[range.clone()],
            rows: rows
                .0
                .at((group * panels + panel) * g.batch * plane * width)
                .cast_const(),
            width,
            channels: width.min(g.outputs - first),
            sums: sums.as_ptr().cast(),
            to: to.at((group * g.outputs + first) * places.len() + range.start),
            filter: places.len(),
        });
    });
    failed.into_inner().map_or(Ok(()), Err)
}

/// Channels of an image's gradient as columns.
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

/// Some places of a window times a panel of channels, over the whole batch.
struct Part<'a> {
    g: &'a Geometry,
    images: &'a Images,
    group: usize,
    /// Images that are added up at a time, and where their windows are.
    together: usize,
    windows: &'a [isize],
    places: &'a [isize],
    /// The panel's rows of the first image.
    rows: *const f32,
    width: usize,
    channels: usize,
    /// For each place a row of the panel's width.
    sums: *mut f32,
    /// The first of these places in the panel's first filter.
    to: *mut f32,
    /// Elements of a filter.
    filter: usize,
}

impl Kernel for Part<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // The width of most windows.
        let threes = self.g.kernel[2] == 3 && self.g.dilation[2] == 1 && <S::Tile as Width>::MR.is_multiple_of(3);
        if threes {
            self.add_up::<S, 3>(s);
        } else {
            self.add_up::<S, 1>(s);
        }
    }
}

impl Part<'_> {
    /// With windows in which `SIDE` places lie side by side.
    #[inline(always)]
    fn add_up<S: Simd, const SIDE: usize>(&self, s: S) {
        let plane = self.g.out_plane();
        let sides = self.places.len() / SIDE;
        let count = sides.div_ceil(<S::Tile as Width>::MR / SIDE);
        let first = |tile: usize| tile * sides / count;
        for image in (0..self.g.batch).step_by(self.together) {
            let base = self.images.window(self.g, image, self.group, 0);
            let positions = self.together.min(self.g.batch - image) * plane;
            for start in (0..positions).step_by(POSITIONS) {
                let update = if image == 0 && start == 0 {
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
                    // SAFETY: windows and places are inside the images; rows and sums are as wide as a tile.
                    unsafe { <S::Tile as Width>::any_tile(s, end - top, input, out, update) };
                }
            }
        }
        // SAFETY: the sums have a row for each place, the filters these places.
        unsafe {
            let size = (self.places.len(), self.channels);
            turn(s, self.sums, self.width, size, self.to, self.filter);
        }
    }
}
