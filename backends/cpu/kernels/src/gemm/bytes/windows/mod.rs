//! Convolutions of bytes that do not copy patches of the image to columns.
//!
//! A word holds the bytes that one instruction multiplies: those of neighbouring channels at one position, or of
//! neighbouring positions if there are few channels. Each word is made once. The words of the same channels are stored
//! position by position, so that those that a tap reads for a register of output positions are contiguous.
//!
//! Bytes of the image are unsigned; 128 is subtracted from those of filters. One of the two terms in [`super`] is
//! constant for each filter: sums start at that constant plus the bias. The other is 0 if the filters' zero points are
//! 128.

mod fill;
mod layout;
#[cfg(test)]
mod tests;
mod tile;

use polygrad_core::Result;

use self::fill::{Fill, copy};
use self::layout::{AT_ONCE, Chunk, Grouping, Layout};
use self::tile::{AddColumns, Finish, Multiply};
use super::pack::Bytes;
use super::{Numbers, Tiles, Way, Zeros};
use crate::CpuDevice;
use crate::buffers::Buffer;
use crate::conv::geometry::{Extents, Geometry};
use crate::gemm::Mat;

/// Approximate size of a box's words in bytes.
const WORDS: usize = 128 << 10;

/// Output positions of a box that is not divided further.
const FEW: usize = 64;

/// The byte that is packed as 0.
const ZERO: u8 = 128;

/// The most words in a register.
const WIDEST: usize = 16;

/// Filters as packed words.
pub struct Filters {
    tiles: Tiles,
    numbers: Grouping,
    taps: usize,
}

impl Filters {
    /// Packs the filters of some groups, outputs of a group and channels of a group. `weight` must have as many.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn new(device: CpuDevice, dims: (usize, usize, usize), kernel: Extents, weight: &[u8]) -> Result<Self> {
        Self::by(device, Way::of(device), dims, kernel, weight)
    }

    fn by(
        device: CpuDevice,
        way: Way,
        (groups, outputs, channels): (usize, usize, usize),
        kernel: Extents,
        weight: &[u8],
    ) -> Result<Self> {
        let (numbers, taps) = (Grouping::of(channels, kernel, way.group()), kernel.iter().product());
        Ok(Self {
            tiles: packed(device, way, (groups, outputs), numbers, taps, weight)?,
            numbers,
            taps,
        })
    }

    /// Whether these are the filters of such a convolution.
    pub fn are(&self, device: CpuDevice, g: &Geometry) -> bool {
        let Tiles { way, parts, rows, .. } = self.tiles;
        let of = (way, parts, rows, self.numbers.channels, self.taps);
        of == (Way::of(device), g.groups, g.outputs, g.inputs, g.taps()) && self.numbers.fits(g.kernel)
    }
}

/// Filters in the order of a [`Layout`]'s offsets, as tiles.
fn packed(
    device: CpuDevice,
    way: Way,
    (groups, outputs): (usize, usize),
    numbers: Grouping,
    taps: usize,
    weight: &[u8],
) -> Result<Tiles> {
    let Grouping { across, group, .. } = numbers;
    let (apart, rows) = (taps / across, groups * outputs);
    let k = numbers.words() * apart * group;
    let room = Buffer::alloc((rows * k).max(1))?;
    // SAFETY: the buffer has room, and is written before it is read.
    let all = unsafe {
        room.as_ptr().write_bytes(ZERO, rows * k);
        std::slice::from_raw_parts_mut(room.as_ptr(), rows * k)
    };
    let filters = weight.chunks_exact(numbers.channels * taps);
    for (to, from) in all.chunks_exact_mut(k).zip(filters) {
        for number in 0..numbers.count() {
            let (channel, tap) = numbers.place(number);
            let (word, at) = (number / group, number % group);
            for other in 0..apart {
                to[(word * apart + other) * group + at] = from[channel * taps + other * across + tap];
            }
        }
    }
    let matrix = Mat::new(room.as_ptr().cast_const(), k.cast_signed(), 1);
    // SAFETY: the matrix is what has been written.
    unsafe { Tiles::new(device, way, (groups, outputs, k), matrix, Bytes::Signed, true) }
}

/// A convolution of bytes. Outputs have a zero point of their own, or one for all, and so they have a bias.
pub struct Convolution<'a> {
    pub g: &'a Geometry,
    /// Filters [of](Filters::are) the geometry.
    pub filters: &'a Filters,
    /// As many bytes as the geometry has.
    pub x: &'a [u8],
    pub zero_x: u8,
    pub zero_weight: Zeros<'a>,
    pub bias: &'a [i32],
}

/// The destination of the result, with room for all of it.
#[derive(Clone, Copy)]
pub enum Out<'a> {
    Sums(*mut i32),
    /// As bytes: the sums, rounded to f32, times a scale of each output, or one for all, rounded to whole numbers, plus
    /// a zero point.
    Bytes(*mut u8, &'a [f32], u8),
}

// SAFETY: each task writes a part of its own.
unsafe impl Sync for Out<'_> {}

/// The values that all boxes share.
struct Plan<'a> {
    of: &'a Convolution<'a>,
    layout: Layout,
    /// The initial value of each output's sums.
    starts: Numbers,
    columns: Option<Columns>,
    out: Out<'a>,
    /// The scale of each output.
    scales: Vec<f32>,
}

/// The term of filters whose zero points are not 128: a factor for each output times the sum of each patch, which is a
/// product with a filter of ones.
struct Columns {
    factors: Numbers,
    ones: Tiles,
    start: i32,
}

impl Convolution<'_> {
    /// Convolves.
    ///
    /// # Safety
    /// There must be room for the result, apart from the operands, of which there must be as many as the geometry has.
    ///
    /// # Errors
    /// When memory runs out.
    pub unsafe fn run(&self, device: CpuDevice, out: Out<'_>) -> Result<()> {
        let flat;
        let of = match self.g.is_pointwise() {
            true => {
                flat = flattened(self.g);
                Convolution { g: &flat, ..*self }
            }
            false => Convolution { ..*self },
        };
        let (g, filters) = (of.g, of.filters);
        let extents = of.extents(device);
        let layout = Layout::new(g, filters.numbers, filters.tiles.way, extents);
        let boxes: Extents = std::array::from_fn(|axis| g.output[axis].div_ceil(extents[axis]));
        let count = boxes.iter().product::<usize>();
        let products = extents.iter().product::<usize>() * g.outputs * filters.tiles.k;
        let ns = products as f32 * filters.tiles.way.cost() + layout.words() as f32 * 0.2;
        let plan = of.plan(device, layout, out)?;
        device.try_each(g.batch * g.groups * count, ns.min(1e6), |task| {
            let (part, at) = (task / count, task % count);
            let at = [at / (boxes[1] * boxes[2]), at / boxes[2] % boxes[1], at % boxes[2]];
            let first: Extents = std::array::from_fn(|axis| at[axis] * extents[axis]);
            let of = std::array::from_fn(|axis| extents[axis].min(g.output[axis] - first[axis]));
            if of == extents {
                return plan.multiply(&plan.layout, part, first);
            }
            plan.multiply(&Layout::new(g, filters.numbers, filters.tiles.way, of), part, first)
        })
    }

    /// The size of a box of output positions: its words fit the second-level cache, and each thread gets a box.
    fn extents(&self, device: CpuDevice) -> Extents {
        let (g, way) = (self.g, self.filters.tiles.way);
        let wanted = match device.threads() {
            1 => 1,
            threads => 2 * threads,
        };
        let mut extents = g.output;
        loop {
            let boxes: usize = (0..3).map(|axis| g.output[axis].div_ceil(extents[axis])).product();
            let fits = layout::words(g, self.filters.numbers, way, extents) * 4 <= WORDS;
            let enough = g.batch * g.groups * boxes >= wanted;
            if (fits && enough) || extents.iter().product::<usize>() <= FEW {
                return extents;
            }
            let axis = (0..2).find(|&axis| extents[axis] > 1).unwrap_or(2);
            let half = extents[axis].div_ceil(2);
            extents[axis] = match axis {
                2 => half.next_multiple_of(way.columns()).min(extents[2] - 1),
                _ => half,
            };
        }
    }

    fn plan<'a>(&'a self, device: CpuDevice, layout: Layout, out: Out<'a>) -> Result<Plan<'a>> {
        let Filters { tiles, numbers, taps } = self.filters;
        let zero_x = i32::from(self.zero_x);
        let bias = |row: usize| self.bias.get(row).unwrap_or(&self.bias[0]);
        let start = |row: usize| bias(row).wrapping_sub(zero_x.wrapping_mul(tiles.sum(row)));
        let columns = || {
            let k = numbers.channels * taps;
            let ones = vec![ZERO + 1; k];
            Result::Ok(Columns {
                factors: Numbers::new(tiles.parts * tiles.rows, |row| 128 - self.zero_weight.get(row))?,
                ones: packed(device, tiles.way, (1, 1), *numbers, *taps, &ones)?,
                start: (k as i32).wrapping_mul(zero_x).wrapping_neg(),
            })
        };
        Ok(Plan {
            of: self,
            layout,
            starts: Numbers::new(tiles.parts * tiles.rows, start)?,
            columns: (!self.zero_weight.are(128)).then(columns).transpose()?,
            scales: match out {
                Out::Sums(_) => Vec::new(),
                Out::Bytes(_, scales, _) if scales.len() == 1 => vec![scales[0]; tiles.parts * tiles.rows],
                Out::Bytes(_, scales, _) => scales.to_vec(),
            },
            out,
        })
    }
}

/// The geometry of a convolution with kernel 1 in which all positions of an image are in one row.
fn flattened(g: &Geometry) -> Geometry {
    Geometry {
        input: [1, 1, g.plane()],
        output: [1, 1, g.out_plane()],
        ..*g
    }
}

impl Plan<'_> {
    /// Computes the outputs of a box that begins at position `first`; `part` counts the groups of all images.
    fn multiply(&self, layout: &Layout, part: usize, first: Extents) -> Result<()> {
        let g = self.of.g;
        let tiles = &self.of.filters.tiles;
        let (way, group) = (tiles.way, part % g.groups);
        let words = Buffer::alloc(layout.words() * size_of::<u32>())?;
        let lines = Buffer::alloc(fill::lines(g, layout))?;
        let image = words.as_ptr().cast::<u32>();
        way.run(Fill {
            g,
            layout,
            image: &self.of.x[part * g.inputs * g.plane()..][..g.inputs * g.plane()],
            border: self.of.zero_x,
            first,
            to: image,
            lines: lines.as_ptr(),
        });
        let room = AT_ONCE * WIDEST * size_of::<i32>();
        let [sums, columns, bytes] = [way.rows() * room, room, way.rows() * room].map(Buffer::alloc);
        let (sums, columns, bytes) = (sums?, columns?, bytes?);
        let (sums, columns) = (sums.as_ptr().cast::<i32>(), columns.as_ptr().cast::<i32>());
        let [_, height, width] = g.output;
        let place = (first[0] * height + first[1]) * width + first[2];
        let count = tiles.rows.div_ceil(way.rows());
        for chunk in &layout.chunks {
            let each = chunk.places.len() * way.lanes();
            let work = Multiply {
                rows: 1,
                a: tiles.words(),
                step: 1,
                image,
                offsets: &layout.offsets,
                places: &chunk.places,
                starts: self.starts.as_ptr(),
                to: columns,
            };
            if let Some(of) = &self.columns {
                let (a, starts) = (of.ones.words(), &raw const of.start);
                way.run(Multiply { a, starts, ..work });
            }
            for tile in 0..count {
                let row = group * g.outputs + tile * way.rows();
                let rows = way.rows().min(tiles.rows - tile * way.rows());
                way.run(Multiply {
                    rows,
                    a: tiles
                        .words()
                        .wrapping_add((group * count + tile) * tiles.step * layout.offsets.len()),
                    step: tiles.step,
                    starts: self.starts.as_ptr().wrapping_add(row),
                    to: sums,
                    ..work
                });
                if let Some(of) = &self.columns {
                    way.run(AddColumns {
                        rows,
                        factors: of.factors.as_ptr().wrapping_add(row),
                        columns,
                        count: each,
                        sums,
                    });
                }
                let at = ((part - group) * g.outputs + row) * g.out_plane() + place;
                let Out::Bytes(to, _, zero) = self.out else {
                    self.give(chunk, sums.cast(), (rows, each), at);
                    continue;
                };
                let direct = match &chunk.runs[..] {
                    [run] if run.len == each => Some(to.wrapping_add(at + run.to)),
                    _ => None,
                };
                way.run(Finish {
                    rows,
                    sums,
                    count: each,
                    scales: self.scales[row..].as_ptr(),
                    zero,
                    to: direct.unwrap_or(bytes.as_ptr()),
                    to_row: if direct.is_some() { g.out_plane() } else { each },
                });
                if direct.is_none() {
                    self.give(chunk, bytes.as_ptr(), (rows, each), at);
                }
            }
        }
        Ok(())
    }

    /// Writes the results of `rows` outputs, `each` of an output, to a box that begins at element `at`.
    fn give(&self, chunk: &Chunk, results: *const u8, (rows, each): (usize, usize), at: usize) {
        let (to, size) = match self.out {
            Out::Sums(to) => (to.cast(), size_of::<i32>()),
            Out::Bytes(to, ..) => (to, 1),
        };
        for row in 0..rows {
            for run in &chunk.runs {
                let from = results.wrapping_add((row * each + run.from) * size);
                let to = to.wrapping_add((at + row * self.of.g.out_plane() + run.to) * size);
                // SAFETY: the results have been written; the runs are in the output, and each part of it is written
                // once.
                unsafe { copy(from, to, run.len * size) };
            }
        }
    }
}
