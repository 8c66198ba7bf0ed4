//! Shapes: up to eight extents, stored inline.

use std::fmt;
use std::ops::Deref;

use crate::{Error, Result};

/// The largest rank that a tensor can have.
pub const MAX_RANK: usize = 8;

/// The extents of a tensor, outermost first; rank 0 (a scalar) to [`MAX_RANK`].
///
/// Derefs to `[usize]`.
#[derive(Clone, Copy)]
pub struct Shape {
    rank: u8,
    dims: [usize; MAX_RANK],
}

impl Shape {
    /// Rank 0: one element.
    pub const SCALAR: Self = Self {
        rank: 0,
        dims: [0; MAX_RANK],
    };

    /// A shape from its extents.
    ///
    /// # Errors
    /// When there are more than [`MAX_RANK`] of them, or the product of those that are not 0 exceeds `isize::MAX / 8`,
    /// the most elements of 8 bytes that memory can address.
    pub fn new(dims: &[usize]) -> Result<Self> {
        if dims.len() > MAX_RANK {
            return Err(Error::shape(format!(
                "rank {} is above the limit of {MAX_RANK}: {dims:?}",
                dims.len()
            ))
            .with_hint("merge dimensions with reshape"));
        }
        // An extent of zero makes the product zero, but the other extents must not overflow either, since strides
        // are computed from them.
        let elements = dims
            .iter()
            .filter(|&&dim| dim != 0)
            .try_fold(1usize, |product, &dim| product.checked_mul(dim));
        if elements.is_none_or(|n| n > isize::MAX as usize / 8) {
            return Err(Error::shape(format!(
                "a tensor of shape {dims:?} has more elements than memory can address"
            )));
        }
        Ok(Self::from_trusted(dims))
    }

    /// `dims` must have at most eight entries, which callers have checked.
    fn from_trusted(dims: &[usize]) -> Self {
        let mut shape = Self::SCALAR;
        shape.rank = dims.len() as u8;
        shape.dims[..dims.len()].copy_from_slice(dims);
        shape
    }

    /// Number of dimensions.
    #[inline]
    pub fn rank(&self) -> usize {
        self.rank as usize
    }

    /// The extents.
    #[inline]
    pub fn dims(&self) -> &[usize] {
        &self.dims[..self.rank as usize]
    }

    /// The extents, to change in place.
    #[inline]
    pub fn dims_mut(&mut self) -> &mut [usize] {
        &mut self.dims[..self.rank as usize]
    }

    /// Number of elements; 1 for rank 0.
    #[inline]
    pub fn numel(&self) -> usize {
        self.dims().iter().product()
    }

    /// Strides, in elements, of a contiguous row-major tensor of this shape.
    pub fn contiguous_strides(&self) -> [isize; MAX_RANK] {
        let mut strides = [0; MAX_RANK];
        let mut step = 1isize;
        for axis in (0..self.rank()).rev() {
            strides[axis] = step;
            step *= self.dims[axis].max(1) as isize;
        }
        strides
    }

    /// An axis counted from the front, where a negative one counts from the back (−1 is the last).
    ///
    /// # Errors
    /// When the axis is outside `-rank..rank`.
    pub fn axis(&self, axis: isize) -> Result<usize> {
        let rank = self.rank as isize;
        let from_front = if axis < 0 { axis + rank } else { axis };
        if (0..rank).contains(&from_front) {
            return Ok(from_front as usize);
        }
        Err(Error::out_of_range(if rank == 0 {
            format!("axis {axis} of a tensor of rank 0, which has no axes")
        } else {
            format!("axis {axis} is outside {}..{rank} for shape {self}", -rank)
        }))
    }

    /// The shape without `axes`, or with these as 1 if `keepdims`.
    #[must_use]
    pub fn reduced(&self, axes: Axes, keepdims: bool) -> Self {
        let mut out = Self::SCALAR;
        for (axis, &dim) in self.dims().iter().enumerate() {
            let hit = axes.contains(axis);
            if hit && !keepdims {
                continue;
            }
            out.push(if hit { 1 } else { dim });
        }
        out
    }

    /// The shape with the extent of one axis replaced.
    #[must_use]
    pub fn with_dim(mut self, axis: usize, dim: usize) -> Self {
        self.dims_mut()[axis] = dim;
        self
    }

    /// Appends an extent. The rank must be below [`MAX_RANK`].
    fn push(&mut self, dim: usize) {
        self.dims[self.rank as usize] = dim;
        self.rank += 1;
    }

    /// The shape that two shapes broadcast to, by NumPy's rules.
    ///
    /// # Errors
    /// When a pair of extents differs and neither is 1.
    #[inline]
    pub fn broadcast(&self, other: &Self) -> Result<Self> {
        if self == other {
            return Ok(*self);
        }
        let (long, short) = if self.rank >= other.rank {
            (self, other)
        } else {
            (other, self)
        };
        let mut out = *long;
        let skip = long.rank() - short.rank();
        for (dim, &other_dim) in out.dims_mut()[skip..].iter_mut().zip(short.dims()) {
            if *dim == 1 {
                *dim = other_dim;
            } else if other_dim != 1 && other_dim != *dim {
                return Err(Error::shape(format!("shapes {self} and {other} do not broadcast"))
                    .with_hint("extents must be equal, or 1, aligned at the last axis"));
            }
        }
        Ok(out)
    }

    /// Whether this shape broadcasts to exactly `target`.
    pub fn broadcasts_to(&self, target: &Self) -> bool {
        self.rank <= target.rank
            && self
                .dims()
                .iter()
                .rev()
                .zip(target.dims().iter().rev())
                .all(|(&dim, &to)| dim == to || dim == 1)
    }
}

impl Deref for Shape {
    type Target = [usize];

    #[inline]
    fn deref(&self) -> &[usize] {
        self.dims()
    }
}

impl PartialEq for Shape {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        // For a few extents, a loop is faster than the function call that comparing slices compiles to.
        self.rank == other.rank && self.dims().iter().zip(other.dims()).all(|(a, b)| a == b)
    }
}

impl Eq for Shape {}

impl std::hash::Hash for Shape {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.dims().hash(state);
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(dims: [usize; N]) -> Self {
        const { assert!(N <= MAX_RANK, "a tensor has at most eight dimensions") };
        Self::from_trusted(&dims)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.dims())
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Anything that can be given as a shape: an array, slice or vector of extents; a tuple of extents, also of different
/// integer types; a [`Shape`]; one extent; or `()` for rank 0.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no shape",
    note = "write the extents as an array, `[2, 3]`, or as a tuple, `(batch, -1)`; `()` is rank 0"
)]
pub trait IntoShape: Sized {
    /// The shape.
    ///
    /// # Errors
    /// When it has more than [`MAX_RANK`] dimensions, a negative one, or too many elements.
    fn into_shape(self) -> Result<Shape>;

    /// The shape for a given number of elements: one extent may be -1, and is computed from the others.
    ///
    /// # Errors
    /// As [`IntoShape::into_shape`], and when the others do not divide the number of elements.
    fn into_shape_of(self, numel: usize) -> Result<Shape> {
        let _ = numel;
        self.into_shape()
    }
}

impl IntoShape for Shape {
    fn into_shape(self) -> Result<Shape> {
        Ok(self)
    }
}

impl IntoShape for &Shape {
    fn into_shape(self) -> Result<Shape> {
        Ok(*self)
    }
}

impl IntoShape for () {
    fn into_shape(self) -> Result<Shape> {
        Ok(Shape::SCALAR)
    }
}

impl<E: Extent> IntoShape for E {
    fn into_shape(self) -> Result<Shape> {
        [self].into_shape()
    }

    fn into_shape_of(self, numel: usize) -> Result<Shape> {
        [self].into_shape_of(numel)
    }
}

/// An integer as an extent of a shape.
pub trait Extent: Copy {
    /// The extent; `None` if it is negative.
    #[doc(hidden)]
    fn extent(self) -> Option<usize>;

    /// Whether it is -1, an open extent that is computed from the others.
    #[doc(hidden)]
    fn is_open(self) -> bool;
}

macro_rules! extents {
    ($($type:ty)*) => {$(
        impl Extent for $type {
            #[inline]
            fn extent(self) -> Option<usize> {
                usize::try_from(self).ok()
            }

            #[inline]
            fn is_open(self) -> bool {
                i64::try_from(self) == Ok(-1)
            }
        }
    )*};
}

extents! { usize u32 i32 i64 isize }

/// The shape of these extents, of which one may be open if the number of elements is known.
fn of_extents<E: Extent>(extents: &[E], numel: Option<usize>) -> Result<Shape> {
    let mut dims = [1; MAX_RANK];
    let Some(list) = dims.get_mut(..extents.len()) else {
        // This always fails, and gives the error.
        return Shape::new(&vec![1; extents.len()]);
    };
    let mut open = None;
    for (i, (dim, extent)) in list.iter_mut().zip(extents).enumerate() {
        match extent.extent() {
            Some(extent) => *dim = extent,
            None if extent.is_open() && open.is_none() && numel.is_some() => open = Some(i),
            None => return Err(negative(i, extent.is_open(), numel.is_some())),
        }
    }
    if let (Some(i), Some(numel)) = (open, numel) {
        let others = Shape::new(list)?.numel();
        if others == 0 || numel % others != 0 {
            let mut written: Vec<String> = list.iter().map(ToString::to_string).collect();
            "-1".clone_into(&mut written[i]);
            return Err(Error::shape(format!(
                "{numel} elements do not fill shape [{}], whatever the open extent",
                written.join(", ")
            )));
        }
        list[i] = numel / others;
    }
    Shape::new(list)
}

#[cold]
fn negative(axis: usize, open: bool, known: bool) -> Error {
    match (open, known) {
        (true, true) => Error::shape(format!(
            "the extent of axis {axis} is -1, too: only one can be found out"
        ))
        .with_hint("write the others"),
        (true, false) => Error::shape(format!("the extent of axis {axis} is -1"))
            .with_hint("only where the elements are there, as in reshape, is it found out"),
        (false, _) => Error::shape(format!("the extent of axis {axis} is negative"))
            .with_hint("write 0 or more; -1, once, where the elements are there, is found out"),
    }
}

macro_rules! lists {
    ($([$($generic:tt)*] $type:ty;)*) => {$(
        impl<E: Extent, $($generic)*> IntoShape for $type {
            fn into_shape(self) -> Result<Shape> {
                of_extents(self.as_ref(), None)
            }

            fn into_shape_of(self, numel: usize) -> Result<Shape> {
                of_extents(self.as_ref(), Some(numel))
            }
        }
    )*};
}

lists! {
    [const N: usize] [E; N];
    [const N: usize] &[E; N];
    [] &[E];
    [] Vec<E>;
    [] &Vec<E>;
}

/// An extent of a tuple, independent of its type.
#[derive(Clone, Copy)]
struct Mixed {
    extent: Option<usize>,
    open: bool,
}

impl Mixed {
    fn new(extent: impl Extent) -> Self {
        Self {
            extent: extent.extent(),
            open: extent.is_open(),
        }
    }
}

impl Extent for Mixed {
    fn extent(self) -> Option<usize> {
        self.extent
    }

    fn is_open(self) -> bool {
        self.open
    }
}

macro_rules! tuples {
    ($($($name:ident $i:tt),+;)*) => {$(
        impl<$($name: Extent),+> IntoShape for ($($name,)+) {
            fn into_shape(self) -> Result<Shape> {
                of_extents(&[$(Mixed::new(self.$i)),+], None)
            }

            fn into_shape_of(self, numel: usize) -> Result<Shape> {
                of_extents(&[$(Mixed::new(self.$i)),+], Some(numel))
            }
        }
    )*};
}

tuples! {
    A 0;
    A 0, B 1;
    A 0, B 1, C 2;
    A 0, B 1, C 2, D 3;
    A 0, B 1, C 2, D 3, F 4;
    A 0, B 1, C 2, D 3, F 4, G 5;
}

/// A list of distinct axes counted from the front, stored inline; also a permutation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Axes {
    len: u8,
    axes: [u8; MAX_RANK],
}

impl Axes {
    /// No axis.
    pub const NONE: Self = Self {
        len: 0,
        axes: [0; MAX_RANK],
    };

    /// Axes from numbers below [`MAX_RANK`], in the order given.
    ///
    /// # Errors
    /// When an axis is [`MAX_RANK`] or more, or is given twice.
    pub fn new(axes: impl IntoIterator<Item = usize>) -> Result<Self> {
        let mut out = Self::NONE;
        for axis in axes {
            if axis >= MAX_RANK {
                return Err(Error::out_of_range(format!(
                    "axis {axis} is above the largest rank, {MAX_RANK}"
                )));
            }
            if out.contains(axis) {
                return Err(Error::invalid(format!("axis {axis} is given twice")));
            }
            out.axes[out.len as usize] = axis as u8;
            out.len += 1;
        }
        Ok(out)
    }

    /// A single axis, below [`MAX_RANK`].
    #[inline]
    pub fn one(axis: usize) -> Self {
        debug_assert!(axis < MAX_RANK);
        let mut out = Self::NONE;
        out.axes[0] = axis as u8;
        out.len = 1;
        out
    }

    /// All axes of a rank, in order.
    pub fn all(rank: usize) -> Self {
        let mut out = Self::NONE;
        for axis in 0..rank.min(MAX_RANK) {
            out.axes[axis] = axis as u8;
        }
        out.len = rank.min(MAX_RANK) as u8;
        out
    }

    /// The number of axes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether `axis` is among them.
    #[inline]
    pub fn contains(&self, axis: usize) -> bool {
        self.iter().any(|a| a == axis)
    }

    /// The axes in order.
    #[inline]
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = usize> + ExactSizeIterator + '_ {
        self.axes[..self.len as usize].iter().map(|&axis| axis as usize)
    }

    /// The `i`-th axis; `i` must be below [`Axes::len`].
    #[inline]
    pub fn get(&self, i: usize) -> usize {
        self.axes[..self.len as usize][i] as usize
    }

    /// The inverse, for a permutation.
    #[must_use]
    pub fn inverse(&self) -> Self {
        let mut out = *self;
        for (i, axis) in self.iter().enumerate() {
            out.axes[axis] = i as u8;
        }
        out
    }
}

impl fmt::Debug for Axes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcasts_as_numpy_does() {
        let shape = |dims: &[usize]| Shape::new(dims).unwrap();
        let cases: [(&[usize], &[usize], &[usize]); 5] = [
            (&[2, 3], &[3], &[2, 3]),
            (&[2, 1, 4], &[3, 1], &[2, 3, 4]),
            (&[], &[5], &[5]),
            (&[0, 3], &[1, 3], &[0, 3]),
            (&[1], &[0], &[0]),
        ];
        for (a, b, out) in cases {
            assert_eq!(shape(a).broadcast(&shape(b)).unwrap(), shape(out));
            assert_eq!(shape(b).broadcast(&shape(a)).unwrap(), shape(out));
            assert!(shape(a).broadcasts_to(&shape(out)));
        }
        let error = shape(&[2, 3]).broadcast(&shape(&[2])).unwrap_err();
        assert!(error.to_string().contains("[2, 3] and [2] do not broadcast"));
    }

    #[test]
    fn refuses_what_it_cannot_hold() {
        assert!(Shape::new(&[1; 9]).unwrap_err().to_string().contains("rank 9"));
        assert!(Shape::new(&[usize::MAX, 0, 2]).is_err());
        assert!(Shape::new(&[1 << 40, 1 << 40]).is_err());
        assert_eq!(Shape::new(&[0, 7]).unwrap().numel(), 0);
        assert_eq!(Shape::SCALAR.numel(), 1);
    }

    #[test]
    fn resolves_axes() {
        let shape = Shape::from([2, 3, 4]);
        assert_eq!(shape.axis(-1).unwrap(), 2);
        assert!(
            shape
                .axis(3)
                .unwrap_err()
                .to_string()
                .contains("axis 3 is outside -3..3")
        );
        assert!(Shape::SCALAR.axis(0).is_err());
        assert_eq!(shape.reduced(Axes::one(1), false), Shape::from([2, 4]));
        assert_eq!(shape.reduced(Axes::one(1), true), Shape::from([2, 1, 4]));
        assert!(Axes::new([1, 1]).is_err());
        let permutation = Axes::new([2, 0, 1]).unwrap();
        assert_eq!(permutation.inverse(), Axes::new([1, 2, 0]).unwrap());
    }
}
