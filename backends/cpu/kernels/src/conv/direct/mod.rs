//! Convolution without columns: patches are read directly from the images, which are copied with their border if they
//! have one.
//!
//! Rows of the product are output positions and its columns output channels, so the filters are packed once for the
//! whole batch. The offset of each element from the first one of its patch is the same for all patches, so a table of
//! offsets replaces the columns.

mod filters;
mod forward;
mod images;
mod weight;

pub use filters::Filters;
pub use forward::forward;
pub use weight::weight_grad;

use super::geometry::Geometry;
use crate::gemm::NV;
use crate::simd::{Kernel, Level, Simd};

/// With fewer output channels per group, most lanes of a register would be idle.
const FEW_OUTPUTS: usize = 8;

/// The largest stride along a row for which there is a kernel.
const MAX_STEP: usize = 2;

/// Whether a register should hold positions of one channel instead of channels of one position.
pub fn is_narrow(g: &Geometry) -> bool {
    g.outputs < FEW_OUTPUTS
}

/// Whether the convolution is computed this way.
pub fn fits(g: &Geometry) -> bool {
    !is_narrow(g) && g.inputs > 0 && g.stride[2] <= MAX_STEP
}

/// The gradient with respect to the input as a convolution of the output's gradient: its geometry, or `None` if a
/// stride leaves gaps.
pub fn of_input_grad(g: &Geometry) -> Option<Geometry> {
    let reach = |axis: usize| (g.kernel[axis] - 1) * g.dilation[axis];
    let padding = |axis: usize| reach(axis).checked_sub(g.padding[axis]);
    let padding = [padding(0)?, padding(1)?, padding(2)?];
    (g.stride == [1; 3]
        && fits(&Geometry {
            outputs: g.inputs,
            ..*g
        }))
    .then_some(Geometry {
        inputs: g.outputs,
        outputs: g.inputs,
        input: g.output,
        output: g.input,
        padding,
        ..*g
    })
}

/// The number of columns of a panel, which is that of a tile.
struct PanelWidth;

impl Kernel for PanelWidth {
    type Out = usize;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> usize {
        NV * S::N
    }
}

fn panel_width(level: Level) -> usize {
    level.run(PanelWidth)
}

/// The positions of a whole plane as one row, if windows are single elements without stride and padding.
fn flat(g: &Geometry) -> Geometry {
    if g.taps() != 1 || g.stride != [1; 3] || g.padding != [0; 3] {
        return *g;
    }
    Geometry {
        input: [1, 1, g.plane()],
        output: [1, 1, g.out_plane()],
        ..*g
    }
}

/// Transposes rows of channels, `width` elements apart, to channels that are `step` elements apart. The last squares
/// overlap those before them, which is faster than single elements.
///
/// # Safety
/// The rows and channels must be readable at `from` and writable at `to`.
#[inline(always)]
pub(super) unsafe fn turn<S: Simd>(
    s: S,
    from: *const f32,
    width: usize,
    (rows, channels): (usize, usize),
    to: *mut f32,
    step: usize,
) {
    // SAFETY: by the caller.
    unsafe {
        if rows < S::N || channels < S::N {
            for row in 0..rows {
                for channel in 0..channels {
                    let one = from.add(row * width + channel).read();
                    to.add(channel * step + row).write(one);
                }
            }
            return;
        }
        for row in (0..rows).step_by(S::N) {
            let row = row.min(rows - S::N);
            for channel in (0..channels).step_by(S::N) {
                let channel = channel.min(channels - S::N);
                let square = from.add(row * width + channel);
                s.transpose(square, width.cast_signed(), to.add(channel * step + row), step);
            }
        }
    }
}
