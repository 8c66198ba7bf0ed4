//! The outputs: patches times filters, for each element of a patch.

use std::ops::Range;
use std::sync::OnceLock;

use polygrad_core::Result;

use super::outputs::Outputs;
use super::patches::{Form, Patches, room};
use super::{Filters, Geometry, PLACES, Tiles, input_frame, lanes, padded, planes};
use crate::CpuDevice;
use crate::Pointer;
use crate::buffers::Buffer;
use crate::conv::Epilogue;
use crate::gemm::{B, Dims, Mat, MatMut, NV, Rows, Update, cost};
use crate::simd::Level;

/// Approximate number of tiles of a block: their patches and products stay in the second-level cache if channels are
/// few.
const TILES: usize = 96;

/// Output channels whose products are computed before they are transformed to outputs; a multiple of a tile's columns.
const CHANNELS: usize = 64;

/// The most input channels that are multiplied at a time: their rows of a panel stay in the first-level cache.
const MAX_ROWS: usize = 192;

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
    let tiles = Tiles::of(g);
    let lines = tiles.all_lines();
    let share = TILES.div_ceil(tiles.width).min(lines);
    let blocks = lines.div_ceil(share);
    let chunks = g.outputs.div_ceil(CHANNELS);
    // If there are too few blocks for the threads, they are cut by output channels; each part transforms the patches
    // again.
    let parts = device.threads().div_ceil(g.groups * blocks).min(chunks);
    let part = chunks.div_ceil(parts);
    let parts = chunks.div_ceil(part);
    let (x, to) = (Pointer(x.cast_mut()), Pointer(to));
    let dims = Dims {
        m: share * tiles.width * PLACES,
        n: g.outputs.min(part * CHANNELS),
        k: g.inputs,
    };
    let failed = OnceLock::new();
    device.each(g.groups * blocks * parts, cost(dims, device.level()), |task| {
        let (block, part_index) = (task / parts, task % parts);
        let (group, block) = (block / blocks, block % blocks);
        let block = Block {
            g,
            tiles,
            x,
            filters,
            group,
            lines: block * share..lines.min((block + 1) * share),
            chunks: part_index * part..chunks.min((part_index + 1) * part),
            epilogue,
            to: to.at(0),
        };
        // SAFETY: by the caller.
        if let Err(error) = unsafe { block.run(device) } {
            let _ = failed.set(error);
        }
    });
    failed.into_inner().map_or(Ok(()), Err)
}

/// Some lines of tiles, for some chunks of output channels.
struct Block<'a> {
    g: &'a Geometry,
    tiles: Tiles,
    x: Pointer<f32>,
    filters: &'a Filters,
    group: usize,
    lines: Range<usize>,
    chunks: Range<usize>,
    epilogue: Option<&'a Epilogue<'a>>,
    /// The whole output.
    to: *mut f32,
}

impl Block<'_> {
    /// # Safety
    /// As for [`forward`].
    unsafe fn run(self, device: CpuDevice) -> Result<()> {
        let Self { g, tiles, .. } = self;
        let lanes = lanes(device.level());
        let count = self.lines.len() * tiles.width;
        let frame = input_frame(g, tiles);
        let (step, chunk_step) = (padded(g.inputs, lanes), padded(CHANNELS.min(g.outputs), lanes));
        let alloc = |elements: usize| Buffer::alloc(elements * size_of::<f32>());
        let pixels = room(Form::Inputs, frame, self.lines.len(), lanes);
        let buffers = [
            alloc(pixels)?,
            alloc(PLACES * count * step)?,
            alloc(PLACES * count * chunk_step)?,
        ];
        let [scratch, patches, products] = [&buffers[0], &buffers[1], &buffers[2]].map(|b| b.as_ptr().cast::<f32>());
        // SAFETY: the buffer has this room; all bits zero are the number 0.
        unsafe { scratch.write_bytes(0, pixels) };
        for first in (0..g.inputs).step_by(lanes) {
            device.level().run(Patches {
                form: Form::Inputs,
                tiles,
                planes: planes(self.x, g.groups, g.inputs, g.input, self.group, first, lanes),
                frame,
                lines: self.lines.clone(),
                scratch,
                to: patches.wrapping_add(first),
                step,
                place: count * step,
            });
        }
        for chunk in self.chunks {
            let first = chunk * CHANNELS;
            let channels = CHANNELS.min(g.outputs - first);
            Products {
                filters: self.filters,
                group: self.group,
                first,
                inputs: g.inputs,
                channels,
                tiles: count,
                patches,
                step,
                to: products,
                to_step: chunk_step,
            }
            .run(device.level());
            device.level().run(Outputs {
                g,
                tiles,
                lines: self.lines.clone(),
                first: self.group * g.outputs + first,
                channels,
                from: products,
                step: chunk_step,
                place: count * chunk_step,
                scratch,
                epilogue: self.epilogue,
                to: self.to,
            });
        }
        Ok(())
    }
}

/// Some output channels of some tiles, for each element of a patch.
struct Products<'a> {
    filters: &'a Filters,
    group: usize,
    /// The first output channel.
    first: usize,
    inputs: usize,
    channels: usize,
    tiles: usize,
    /// A row of input channels for each patch element and tile, `step` elements apart.
    patches: *const f32,
    step: usize,
    /// A row of output channels for each patch element and tile, `to_step` elements apart.
    to: *mut f32,
    to_step: usize,
}

impl Products<'_> {
    fn run(self, level: Level) {
        let depths = self.inputs.div_ceil(MAX_ROWS);
        let depth = self.inputs.div_ceil(depths);
        let lanes = lanes(level);
        let width = NV * lanes;
        for place in 0..PLACES {
            let row = place * self.tiles;
            for top in (0..self.inputs).step_by(depth) {
                let update = if top == 0 { Update::set() } else { Update::add() };
                let panel = self.filters.panel(self.group, place, self.first / width);
                // Patches and products have a row for each tile, and a panel has one for each input channel.
                level.run(Rows {
                    rows: self.tiles,
                    a: Mat::new(
                        self.patches.wrapping_add(row * self.step + top),
                        self.step.cast_signed(),
                        1,
                    ),
                    tile: None,
                    // Whole registers, since the products' rows are as long as panels.
                    columns: self.channels.next_multiple_of(lanes),
                    k: depth.min(self.inputs - top),
                    b: B {
                        ptr: panel.wrapping_add(top * width),
                        panel: self.filters.panel_len(),
                        row: width.cast_signed(),
                    },
                    c: MatMut::new(self.to.wrapping_add(row * self.to_step), self.to_step.cast_signed(), 1),
                    update,
                });
            }
        }
    }
}
