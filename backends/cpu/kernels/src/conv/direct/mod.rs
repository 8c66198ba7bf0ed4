//! Convolution without columns: patches are read where they lie in the images, which are copied with their
//! border if they have one.
//!
//! A product's rows are output positions and its columns output channels, so that the filters are packed once for the
//! whole batch, and every place of a patch is at the same distance from the patch's first for all patches: a table of
//! distances takes the place of columns.

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

/// Output channels of a group below which a register of them is mostly idle.
const FEW_OUTPUTS: usize = 8;

/// The longest step along a row that there is a kernel for.
const MAX_STEP: usize = 2;

/// Whether a register has positions of one channel rather than channels of one position.
pub fn is_narrow(g: &Geometry) -> bool {
    g.outputs < FEW_OUTPUTS
}

/// Whether convolution is done so.
pub fn fits(g: &Geometry) -> bool {
    !is_narrow(g) && g.inputs > 0 && g.stride[2] <= MAX_STEP
}

/// The geometry of the gradient with respect to the input as a convolution of the output's gradient; none where
/// a stride leaves gaps.
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

/// Columns of a panel: a tile's.
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

/// Positions of a whole plane as one row, where windows are single elements and lie side by side.
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

/// Brings rows of channels, `width` elements apart, into channels one after another, `step` elements apart.
///
/// # Safety
/// The rows and channels must be readable at `from` and writable at `to`.
#[inline(always)]
unsafe fn turn<S: Simd>(
    s: S,
    from: *const f32,
    width: usize,
    (rows, channels): (usize, usize),
    to: *mut f32,
    step: usize,
) {
    let whole = |n: usize| n / S::N * S::N;
    // SAFETY: by the caller.
    unsafe {
        let one = |row: usize, channel: usize| {
            to.add(channel * step + row)
                .write(from.add(row * width + channel).read())
        };
        for row in (0..whole(rows)).step_by(S::N) {
            for channel in (0..whole(channels)).step_by(S::N) {
                let square = from.add(row * width + channel);
                s.transpose(square, width.cast_signed(), to.add(channel * step + row), step);
            }
            for channel in whole(channels)..channels {
                (row..row + S::N).for_each(|row| one(row, channel));
            }
        }
        for channel in 0..channels {
            (whole(rows)..rows).for_each(|row| one(row, channel));
        }
    }
}
