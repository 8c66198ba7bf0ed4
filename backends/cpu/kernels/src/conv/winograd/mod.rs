//! Convolution with windows of 3 × 3 by Winograd's F(2 × 2, 3 × 3): tiles of 2 × 2 outputs are computed from patches of
//! 4 × 4 inputs with 16 multiplications instead of 36.
//!
//! Patches and filters are transformed: `V = Bᵀ d B` and `U = G g Gᵀ`. For each of the 16 elements of a patch, a matrix
//! product over the channels follows: `M = V U`. The outputs are `Y = Aᵀ M A`. Registers hold neighbouring channels.
//!
//! Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2015, section 4.1.

mod filters;
mod forward;
mod outputs;
mod patches;
mod pixels;
mod weight;

pub use filters::Filters;
pub use forward::forward;
pub use weight::weight_grad;

use std::ops::Range;

use super::geometry::Geometry;
use crate::Pointer;
use crate::gemm::NV;
use crate::simd::{Kernel, Level, Simd};
use pixels::{Frame, Planes};

/// Elements of a patch.
const PLACES: usize = 16;

/// Taps of a filter.
const TAPS: usize = 9;

/// The fewest channels on either side, and the fewest tiles, for which this pays: below, products are too small a part
/// of the work.
const LEAST_CHANNELS: usize = 16;
const LEAST_TILES: usize = 32;

/// The fewest tiles for which it pays if the filters are transformed once and used many times.
const LEAST_TILES_KEPT: usize = 12;

/// Whether the convolution is computed this way; `kept` tells whether the transformed filters are used again.
pub fn fits(g: &Geometry, kept: bool) -> bool {
    let least = if kept { LEAST_TILES_KEPT } else { LEAST_TILES };
    g.kernel == [1, 3, 3]
        && g.stride == [1; 3]
        && g.dilation == [1; 3]
        && (g.input[0], g.padding[0]) == (1, 0)
        && g.inputs.min(g.outputs) >= LEAST_CHANNELS
        && Tiles::of(g).count() >= least
}

/// How the outputs of a batch are cut into tiles. A line is a row of tiles of one image.
#[derive(Clone, Copy)]
struct Tiles {
    /// Lines of an image.
    lines: usize,
    /// Tiles of a line.
    width: usize,
    /// Images.
    batch: usize,
}

impl Tiles {
    fn of(g: &Geometry) -> Self {
        Self {
            lines: g.output[1].div_ceil(2),
            width: g.output[2].div_ceil(2),
            batch: g.batch,
        }
    }

    fn count(&self) -> usize {
        self.all_lines() * self.width
    }

    fn all_lines(&self) -> usize {
        self.batch * self.lines
    }

    /// The range of lines in each image, for a range of lines counted over the batch.
    fn images(self, lines: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> {
        let of = self.lines;
        (lines.start / of..lines.end.div_ceil(of)).map(move |image| {
            let (first, end) = (image * of, (image + 1) * of);
            (image, lines.start.max(first) - first..lines.end.min(end) - first)
        })
    }
}

/// The planes of the input, or of the output's gradient, for a register of channels.
fn planes(
    batch: Pointer<f32>,
    groups: usize,
    channels: usize,
    extents: [usize; 3],
    group: usize,
    first: usize,
    lanes: usize,
) -> Planes {
    let [_, height, width] = extents;
    let plane = height * width;
    Planes {
        from: batch.at((group * channels + first) * plane).cast_const(),
        channels: lanes.min(channels - first),
        height,
        width,
        image: groups * channels * plane,
    }
}

/// The input with its border.
fn input_frame(g: &Geometry, tiles: Tiles) -> Frame {
    let [_, above, left] = g.padding;
    Frame {
        border: [above, left],
        columns: (2 * tiles.width + 2).max(g.input[2] + left),
    }
}

/// Channels rounded up to whole panels of a product, plus a register, so that rows do not map to few sets of the cache.
fn padded(channels: usize, lanes: usize) -> usize {
    channels.next_multiple_of(NV * lanes) + lanes
}

/// The number of lanes of a register.
struct Lane;

impl Kernel for Lane {
    type Out = usize;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> usize {
        S::N
    }
}

fn lanes(level: Level) -> usize {
    level.run(Lane)
}
