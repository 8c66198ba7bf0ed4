//! Ops that the tensor layer makes of others.

/// How values between elements are interpolated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InterpolateMode {
    /// The element whose cell begins at or before the position: PyTorch's `nearest`.
    Nearest,
    /// The element nearest to the centre of the new cell: PyTorch's `nearest-exact`.
    NearestExact,
    /// Between the two nearest of each axis: PyTorch's `linear`, `bilinear` and `trilinear`, by the
    /// number of spatial axes.
    Linear,
    /// By a cubic through the four nearest of each axis, with Keys's parameter −0.75: PyTorch's `bicubic`.
    /// Values may overshoot.
    Cubic,
    /// The mean of the elements that a new cell covers: adaptive average pooling.
    Area,
}

/// What a border that is made of the tensor's own elements consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BorderMode {
    /// The elements next to the edge, mirrored at it.
    Reflect,
    /// The element at the edge.
    Replicate,
    /// The elements from the other end.
    Circular,
}

/// An op that the tensor layer makes of others, of one tensor; its operands fit.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Composite<'a> {
    /// `[N, C, spatial…]` with its spatial axes brought to other extents.
    Interpolate {
        /// The extents of all axes.
        to: &'a [usize],
        /// The factor of each spatial axis, if the factors decide where the new cells lie, and not the
        /// ratio of the extents.
        factors: Option<&'a [f64]>,
        /// How values between elements are made up; never [`InterpolateMode::Area`].
        mode: InterpolateMode,
        /// Whether the centres of the first and last cells stay where they are, and not the outer edges.
        align_corners: bool,
    },
    /// A border around the tensor.
    Border {
        /// How many elements before and after, for each axis.
        widths: &'a [(usize, usize)],
        /// What it consists of.
        mode: BorderMode,
    },
}
