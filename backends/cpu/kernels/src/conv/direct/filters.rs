//! Filters, packed into panels of output channels.

use polygrad_core::Result;

use super::{Geometry, panel_width};
use crate::CpuDevice;
use crate::Pointer;
use crate::buffers::Buffer;
use crate::gemm::{Mat, Panels, Strided};
use crate::simd::{Kernel, Simd};

/// The filters of all groups. Each panel of a group has a row for each input channel and tap, as wide as a tile.
pub struct Filters {
    panels: Buffer,
    groups: usize,
    /// Output channels of a group.
    outputs: usize,
    /// Rows of a panel.
    rows: usize,
    width: usize,
    /// Panels of a group.
    count: usize,
}

impl Filters {
    /// Packs `[outputs, inputs, taps]`, contiguous, for each group.
    ///
    /// # Errors
    /// When memory runs out.
    ///
    /// # Safety
    /// `weight` holds the filters of `g`.
    pub unsafe fn new(device: CpuDevice, g: &Geometry, weight: *const f32) -> Result<Self> {
        let out = Self::empty(device, g)?;
        let weight = Pointer(weight.cast_mut());
        out.each_panel(device, |group, first, columns, to| {
            let from = weight.at((group * g.outputs + first) * out.rows).cast_const();
            // As a matrix, each column is a filter.
            let filters = Strided(Mat::new(from, 1, out.rows.cast_signed()));
            device.level().run(Pack {
                filters,
                rows: out.rows,
                columns,
                width: out.width,
                to,
            });
        });
        Ok(out)
    }

    /// Packs the filters for the gradient with respect to the input: `g` has inputs and outputs exchanged, and `weight`
    /// is `[inputs, outputs, taps]`, contiguous, for each group. The taps are reversed.
    ///
    /// # Errors
    /// When memory runs out.
    ///
    /// # Safety
    /// `weight` holds these filters.
    pub unsafe fn reversed(device: CpuDevice, g: &Geometry, weight: *const f32) -> Result<Self> {
        let taps = g.taps();
        let out = Self::empty(device, g)?;
        let weight = Pointer(weight.cast_mut());
        out.each_panel(device, |group, first, columns, to| {
            for input in 0..g.inputs {
                let from = weight.at(((group * g.inputs + input) * g.outputs + first) * taps);
                for tap in 0..taps {
                    // SAFETY: the panel has a row of `width` elements for each input and tap; the filters have these
                    // taps.
                    unsafe {
                        let row = to.add((input * taps + tap) * out.width);
                        (0..columns).for_each(|j| row.add(j).write(from.add(j * taps + taps - 1 - tap).read()));
                        (columns..out.width).for_each(|j| row.add(j).write(0.0));
                    }
                }
            }
        });
        Ok(out)
    }

    fn empty(device: CpuDevice, g: &Geometry) -> Result<Self> {
        let width = panel_width(device.level());
        let (rows, count) = (g.inputs * g.taps(), g.outputs.div_ceil(width));
        Ok(Self {
            panels: Buffer::alloc(g.groups * count * rows * width * size_of::<f32>())?,
            groups: g.groups,
            outputs: g.outputs,
            rows,
            width,
            count,
        })
    }

    /// Calls `fill(group, first channel, channels, to)` for each panel.
    fn each_panel(&self, device: CpuDevice, fill: impl Fn(usize, usize, usize, *mut f32) + Sync) {
        let (size, panels) = (self.rows * self.width, Pointer(self.panels.as_ptr().cast::<f32>()));
        device.each(self.groups * self.count, size as f32 * 0.3, |i| {
            let first = i % self.count * self.width;
            let columns = self.width.min(self.outputs - first);
            fill(i / self.count, first, columns, panels.at(i * size));
        });
    }

    /// Whether these filters fit the convolution and the device's kernels.
    pub fn are_of(&self, device: CpuDevice, g: &Geometry) -> bool {
        self.width == panel_width(device.level())
            && (self.groups, self.outputs, self.rows) == (g.groups, g.outputs, g.inputs * g.taps())
    }

    /// Bytes of all panels.
    pub(super) fn bytes(&self) -> usize {
        self.outputs.next_multiple_of(self.width) * self.rows * size_of::<f32>()
    }

    /// Columns of a panel.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// The start of a panel, counted over all groups.
    pub(super) fn panel(&self, panel: usize) -> *const f32 {
        let size = self.rows * self.width;
        self.panels
            .as_ptr()
            .cast_const()
            .cast::<f32>()
            .wrapping_add(panel * size)
    }
}

struct Pack {
    filters: Strided<f32>,
    rows: usize,
    columns: usize,
    width: usize,
    to: *mut f32,
}

impl Kernel for Pack {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // SAFETY: the filters have these rows and columns, and the panel room for them.
        unsafe {
            self.filters
                .pack(s, (0, self.rows), (0, self.columns), self.width, self.to);
        }
    }
}
