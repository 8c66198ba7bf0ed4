//! Positions of elements in row-major order.

use polygrad_core::{MAX_RANK, Shape};

/// The coordinates of the `flat`-th element; those beyond the rank are 0.
pub(crate) fn coordinates(mut flat: usize, shape: &Shape) -> [usize; MAX_RANK] {
    let mut out = [0; MAX_RANK];
    for axis in (0..shape.rank()).rev() {
        out[axis] = flat % shape[axis];
        flat /= shape[axis];
    }
    out
}

/// The row-major position of coordinates, one for each axis.
pub(crate) fn position(coordinates: &[usize], shape: &Shape) -> usize {
    coordinates
        .iter()
        .zip(shape.iter())
        .fold(0, |at, (&i, &dim)| at * dim + i)
}

/// The position, in a tensor of `shape`, of the element that appears at these coordinates of a larger shape to which
/// the tensor is broadcast.
pub(crate) fn broadcast_position(coordinates: &[usize], shape: &Shape) -> usize {
    let skip = coordinates.len() - shape.rank();
    let own = coordinates[skip..].iter().zip(shape.iter());
    own.fold(0, |at, (&i, &dim)| at * dim + if dim == 1 { 0 } else { i })
}

/// The positions of one line of elements along an axis.
pub(crate) struct Line {
    start: usize,
    stride: usize,
    len: usize,
}

impl Line {
    pub(crate) fn positions(&self) -> impl Iterator<Item = usize> + use<> {
        let (start, stride) = (self.start, self.stride);
        (0..self.len).map(move |i| start + i * stride)
    }
}

/// All lines along an axis, in row-major order of the other axes.
pub(crate) fn lines(shape: &Shape, axis: usize) -> impl Iterator<Item = Line> + use<> {
    let len = shape[axis];
    let outer: usize = shape[..axis].iter().product();
    let inner: usize = shape[axis + 1..].iter().product();
    (0..outer).flat_map(move |o| {
        (0..inner).map(move |i| Line {
            start: o * len * inner + i,
            stride: inner,
            len,
        })
    })
}
