//! How windows move over images. One or two spatial axes are extended to three by leading axes of extent 1.

use polygrad_core::{ConvParams, PoolParams, Shape};

/// Extents of depth, height and width.
pub type Extents = [usize; 3];

/// Windows over a batch of images with channels.
#[derive(Clone, Copy, Debug)]
pub struct Geometry {
    pub batch: usize,
    pub groups: usize,
    /// Channels per group, of the input and of the output.
    pub inputs: usize,
    pub outputs: usize,
    pub input: Extents,
    pub output: Extents,
    pub kernel: Extents,
    pub stride: Extents,
    pub padding: Extents,
    pub dilation: Extents,
}

/// Values for the last axes, with `fill` before them.
pub fn spread(values: &[usize], rank: usize, fill: usize) -> Extents {
    let mut out = [fill; 3];
    out[3 - rank..].copy_from_slice(&values[..rank]);
    out
}

impl Geometry {
    pub fn of_conv(x: &Shape, weight: &Shape, out: &Shape, params: &ConvParams) -> Self {
        let rank = x.rank() - 2;
        Self {
            batch: x[0],
            groups: params.groups,
            inputs: weight[1],
            outputs: weight[0] / params.groups,
            input: spread(&x[2..], rank, 1),
            output: spread(&out[2..], rank, 1),
            kernel: spread(&weight[2..], rank, 1),
            stride: spread(&params.stride, rank, 1),
            padding: spread(&params.padding, rank, 0),
            dilation: spread(&params.dilation, rank, 1),
        }
        .dense()
    }

    pub fn of_pool(x: &Shape, out: &Shape, params: &PoolParams) -> Self {
        let rank = x.rank() - 2;
        Self {
            batch: x[0],
            groups: x[1],
            inputs: 1,
            outputs: 1,
            input: spread(&x[2..], rank, 1),
            output: spread(&out[2..], rank, 1),
            kernel: spread(&params.kernel, rank, 1),
            stride: spread(&params.stride, rank, 1),
            padding: spread(&params.padding, rank, 0),
            dilation: spread(&params.dilation, rank, 1),
        }
        .dense()
    }

    /// The same without trailing axes of extent 1, as when a sequence is an image one pixel wide: kernels run along the
    /// last axis.
    fn dense(mut self) -> Self {
        let empty = |g: &Self| [g.input[2], g.output[2], g.kernel[2]] == [1; 3] && g.padding[2] == 0;
        for _ in 0..2 {
            if empty(&self) {
                let Self {
                    input,
                    output,
                    kernel,
                    stride,
                    padding,
                    dilation,
                    ..
                } = &mut self;
                for (axes, fill) in [
                    (input, 1),
                    (output, 1),
                    (kernel, 1),
                    (stride, 1),
                    (padding, 0),
                    (dilation, 1),
                ] {
                    *axes = [fill, axes[0], axes[1]];
                }
            }
        }
        self
    }

    /// Elements of a channel of the input.
    #[inline]
    pub fn plane(&self) -> usize {
        self.input.iter().product()
    }

    /// Elements of a channel of the output.
    #[inline]
    pub fn out_plane(&self) -> usize {
        self.output.iter().product()
    }

    /// Elements of a window in one channel.
    #[inline]
    pub fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// Whether all taps of all windows lie inside the input.
    pub fn windows_are_inside(&self) -> bool {
        let reach =
            |axis: usize| (self.output[axis] - 1) * self.stride[axis] + (self.kernel[axis] - 1) * self.dilation[axis];
        (0..3).all(|axis| self.padding[axis] == 0 && reach(axis) < self.input[axis])
    }

    /// Along one axis, for the window at output position `at`: the first tap inside the input, one past the last, and
    /// the input position of the first.
    #[inline]
    pub fn taps_inside(&self, axis: usize, at: usize) -> (usize, usize, usize) {
        let (dilation, padding) = (self.dilation[axis], self.padding[axis]);
        let start = at * self.stride[axis];
        let first = padding.saturating_sub(start).div_ceil(dilation).min(self.kernel[axis]);
        // Tap t is inside while start + t dilation - padding < input.
        let end = (self.input[axis] + padding)
            .saturating_sub(start)
            .div_ceil(dilation)
            .min(self.kernel[axis]);
        if first >= end {
            return (0, 0, 0);
        }
        (first, end, start + first * dilation - padding)
    }

    /// Along one axis, for the tap `tap`: the first output position at which it lies inside the input, one past the
    /// last, and the input position of the tap at the first.
    #[inline]
    pub fn positions_inside(&self, axis: usize, tap: usize) -> (usize, usize, usize) {
        let (stride, padding) = (self.stride[axis], self.padding[axis]);
        let offset = tap * self.dilation[axis];
        let first = padding.saturating_sub(offset).div_ceil(stride);
        // Position p is inside while p stride + offset - padding < input.
        let end = (self.input[axis] + padding)
            .saturating_sub(offset)
            .div_ceil(stride)
            .min(self.output[axis]);
        if first >= end {
            return (0, 0, 0);
        }
        (first, end, first * stride + offset - padding)
    }
}

impl Geometry {
    /// Rows of the columns: channels and taps of a group.
    #[inline]
    pub fn rows(&self) -> usize {
        self.inputs * self.taps()
    }

    #[inline]
    pub fn image(&self, image: usize, group: usize) -> usize {
        (image * self.groups + group) * self.inputs * self.plane()
    }

    #[inline]
    pub fn out_image(&self, image: usize, group: usize) -> usize {
        (image * self.groups + group) * self.outputs * self.out_plane()
    }

    #[inline]
    pub fn filters(&self, group: usize) -> usize {
        group * self.outputs * self.rows()
    }

    /// Whether an image is its own columns.
    #[inline]
    pub fn is_pointwise(&self) -> bool {
        self.taps() == 1 && self.padding == [0; 3] && self.stride == [1; 3]
    }
}
