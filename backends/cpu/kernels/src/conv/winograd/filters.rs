//! Transformed filters.

use polygrad_core::Result;

use super::{Geometry, PLACES, TAPS, lanes};
use crate::CpuDevice;
use crate::Pointer;
use crate::buffers::Buffer;
use crate::gemm::NV;
use crate::simd::{Kernel, Simd};

/// The transformed filters of all groups. For each element of a patch and each panel of output channels there is a row
/// of these channels for each input channel.
pub struct Filters {
    values: Buffer,
    groups: usize,
    inputs: usize,
    outputs: usize,
    /// Panels of a group's output channels.
    panels: usize,
    /// Rows of a panel: a group's input channels, padded with zeros to a multiple of the lanes.
    rows: usize,
    /// Output channels of a panel.
    width: usize,
}

impl Filters {
    /// Transforms `[outputs, inputs, taps]`, contiguous, for each group.
    ///
    /// # Safety
    /// `weight` holds the filters of `g`.
    pub unsafe fn new(device: CpuDevice, g: &Geometry, weight: *const f32) -> Result<Self> {
        // SAFETY: passed on.
        unsafe { Self::transformed(device, g, weight, false) }
    }

    /// Transforms the filters for the gradient with respect to the input: `g` has inputs and outputs exchanged, and
    /// `weight` is `[inputs, outputs, taps]`, contiguous, for each group. The taps are reversed.
    ///
    /// # Safety
    /// `weight` holds these filters.
    pub unsafe fn reversed(device: CpuDevice, g: &Geometry, weight: *const f32) -> Result<Self> {
        // SAFETY: passed on.
        unsafe { Self::transformed(device, g, weight, true) }
    }

    unsafe fn transformed(device: CpuDevice, g: &Geometry, weight: *const f32, reverse: bool) -> Result<Self> {
        let lanes = lanes(device.level());
        let width = NV * lanes;
        let (panels, rows) = (g.outputs.div_ceil(width), g.inputs.next_multiple_of(lanes));
        let out = Self {
            values: Buffer::alloc(g.groups * PLACES * panels * rows * width * size_of::<f32>())?,
            groups: g.groups,
            inputs: g.inputs,
            outputs: g.outputs,
            panels,
            rows,
            width,
        };
        let weight = Pointer(weight.cast_mut());
        let (height, width) = if reverse {
            (g.inputs, g.outputs)
        } else {
            (g.outputs, g.inputs)
        };
        let strips = height.div_ceil(lanes);
        let ns = (lanes * width * PLACES) as f32 * 0.15;
        device.each(g.groups * strips, ns, |i| {
            let (group, strip) = (i / strips, i % strips);
            let first = strip * lanes;
            device.level().run(Strip {
                from: weight.at((group * height + first) * width * TAPS).cast_const(),
                rows: lanes.min(height - first),
                width,
                reverse,
                strip,
                to: &out,
                group,
            });
        });
        Ok(out)
    }

    /// Whether these filters fit the convolution and the device's kernels.
    pub fn are_of(&self, device: CpuDevice, g: &Geometry) -> bool {
        self.width == NV * lanes(device.level())
            && (self.groups, self.inputs, self.outputs) == (g.groups, g.inputs, g.outputs)
    }

    /// The start of a panel's rows.
    pub(super) fn panel(&self, group: usize, place: usize, panel: usize) -> *const f32 {
        let panel = (group * PLACES + place) * self.panels + panel;
        let values = self.values.as_ptr().cast_const().cast::<f32>();
        values.wrapping_add(panel * self.panel_len())
    }

    /// Elements of a panel.
    pub(super) fn panel_len(&self) -> usize {
        self.rows * self.width
    }

    /// Address of the register of an input channel and of the output channels from `output` on.
    fn register(&self, group: usize, place: usize, input: usize, output: usize) -> *mut f32 {
        let panel = self.panel(group, place, output / self.width).cast_mut();
        panel.wrapping_add(input * self.width + output % self.width)
    }
}

/// Rows of `[rows, width, taps]`, one per lane of a register; the last strip may have fewer.
struct Strip<'a> {
    from: *const f32,
    rows: usize,
    width: usize,
    /// Whether rows are input channels and taps are reversed.
    reverse: bool,
    /// The strip's index in its group.
    strip: usize,
    to: &'a Filters,
    group: usize,
}

impl Kernel for Strip<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // Registers have at most 16 lanes.
        let mut whole = [0f32; 16 * 16 * TAPS];
        let mut taps = [0f32; 16 * 16 * TAPS];
        let mut turned = [0f32; PLACES * 16 * 16];
        for first in (0..self.width).step_by(S::N) {
            let columns = S::N.min(self.width - first);
            // SAFETY: the rows have these columns; the squares are inside the arrays and the bundles.
            unsafe {
                let from = self.from.add(first * TAPS);
                let (from, step) = if self.rows == S::N && columns == S::N {
                    (from, self.width * TAPS)
                } else {
                    whole.fill(0.0);
                    for row in 0..self.rows {
                        let to = whole.as_mut_ptr().add(row * S::N * TAPS);
                        std::ptr::copy_nonoverlapping(from.add(row * self.width * TAPS), to, columns * TAPS);
                    }
                    (whole.as_ptr(), S::N * TAPS)
                };
                for i in 0..TAPS {
                    let to = taps.as_mut_ptr().add(i * S::N * S::N);
                    s.transpose(from.add(i * S::N), step.cast_signed(), to, S::N);
                }
                for column in 0..S::N {
                    let from = taps.as_ptr().add(column * TAPS * S::N);
                    let mut filter = [s.splat(0.0); TAPS];
                    for (tap, v) in filter.iter_mut().enumerate() {
                        *v = s.load(from.add(tap * S::N));
                    }
                    for (place, v) in transform(s, filter).into_iter().enumerate() {
                        let to = if self.reverse {
                            turned.as_mut_ptr().add((place * S::N + column) * S::N)
                        } else {
                            self.to.register(self.group, place, first + column, self.strip * S::N)
                        };
                        s.store(to, v);
                    }
                }
                if self.reverse {
                    for place in 0..PLACES {
                        let from = turned.as_ptr().add(place * S::N * S::N);
                        // Reversing the taps permutes the transform's rows and columns to 3, 1, 2, 0.
                        let swapped = |i: usize| [3, 1, 2, 0][i];
                        let place = swapped(place / 4) * 4 + swapped(place % 4);
                        let to = self.to.register(self.group, place, self.strip * S::N, first);
                        s.transpose(from, S::N.cast_signed(), to, self.to.width);
                    }
                }
            }
        }
    }
}

/// `G g Gᵀ`.
#[inline(always)]
fn transform<S: Simd>(s: S, taps: [S::V; TAPS]) -> [S::V; PLACES] {
    let zero = s.splat(0.0);
    let mut columns = [[zero; 4]; 3];
    for (i, column) in columns.iter_mut().enumerate() {
        *column = four(s, taps[i], taps[i + 3], taps[i + 6]);
    }
    let mut places = [zero; PLACES];
    for row in 0..4 {
        let values = four(s, columns[0][row], columns[1][row], columns[2][row]);
        [
            places[4 * row],
            places[4 * row + 1],
            places[4 * row + 2],
            places[4 * row + 3],
        ] = values;
    }
    places
}

/// `G g`.
#[inline(always)]
fn four<S: Simd>(s: S, a: S::V, b: S::V, c: S::V) -> [S::V; 4] {
    let half = s.splat(0.5);
    let (outer, inner) = (s.mul(half, s.add(a, c)), s.mul(half, b));
    [a, s.add(outer, inner), s.sub(outer, inner), c]
}
