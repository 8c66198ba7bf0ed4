//! Ops that the tensor layer composes of others.

/// How values between elements are interpolated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InterpolateMode {
    /// The element whose cell begins at or before the position: PyTorch's `nearest`.
    Nearest,
    /// The element nearest to the centre of the new cell: PyTorch's `nearest-exact`.
    NearestExact,
    /// Linear between the two nearest elements of each axis: PyTorch's `linear`, `bilinear` and `trilinear`, by the
    /// number of spatial axes.
    Linear,
    /// A cubic through the four nearest elements of each axis, with Keys's parameter −0.75: PyTorch's `bicubic`. Values
    /// may overshoot.
    Cubic,
    /// The mean of the elements that a new cell covers: adaptive average pooling.
    Area,
}

/// Which of the tensor's own elements form its border.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BorderMode {
    /// The elements next to the edge, mirrored at it.
    Reflect,
    /// The element at the edge.
    Replicate,
    /// The elements from the other end.
    Circular,
}

/// An op on one tensor that the tensor layer composes of others. Its operands have been checked.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Composite<'a> {
    /// `[N, C, spatial…]` with its spatial axes resized.
    Interpolate {
        /// The extents of all axes.
        to: &'a [usize],
        /// The factor of each spatial axis, if positions follow from given factors instead of the ratio of the extents.
        factors: Option<&'a [f64]>,
        /// How values between elements are interpolated; never [`InterpolateMode::Area`].
        mode: InterpolateMode,
        /// Whether the centres of the first and last cells keep their positions, instead of the outer edges.
        align_corners: bool,
    },
    /// A border around the tensor.
    Border {
        /// For each axis, the number of elements before and after.
        widths: &'a [(usize, usize)],
        /// The elements it is made of.
        mode: BorderMode,
    },
}
