//! Arguments that name axes.

use polygrad_core::{Axes, MAX_RANK, Result, Shape};
use smallvec::SmallVec;

/// One axis, several, or (as `()`) all of them; negative axes count from the back. For a scalar, 0 and −1 are allowed
/// and name no axis, as in PyTorch.
#[diagnostic::on_unimplemented(
    message = "`{Self}` names no axes",
    label = "takes an axis, several as an array or a tuple, or `()` for all",
    note = "an axis is an `isize`, since -1 is the last one: write `axis as isize`"
)]
pub trait IntoAxes {
    /// The axes of a shape.
    ///
    /// # Errors
    /// When an axis is out of range, or is given twice.
    fn into_axes(self, shape: &Shape) -> Result<Axes>;
}

impl IntoAxes for () {
    fn into_axes(self, shape: &Shape) -> Result<Axes> {
        Ok(Axes::all(shape.rank()))
    }
}

impl IntoAxes for isize {
    fn into_axes(self, shape: &Shape) -> Result<Axes> {
        [self].as_slice().into_axes(shape)
    }
}

impl IntoAxes for &[isize] {
    fn into_axes(self, shape: &Shape) -> Result<Axes> {
        if shape.rank() == 0 && self.iter().all(|axis| matches!(axis, 0 | -1)) {
            return Ok(Axes::NONE);
        }
        let axes = self.iter().map(|&axis| shape.axis(axis));
        Axes::new(axes.collect::<Result<SmallVec<[usize; MAX_RANK]>>>()?)
    }
}

impl<const N: usize> IntoAxes for [isize; N] {
    fn into_axes(self, shape: &Shape) -> Result<Axes> {
        self.as_slice().into_axes(shape)
    }
}

impl<const N: usize> IntoAxes for &[isize; N] {
    fn into_axes(self, shape: &Shape) -> Result<Axes> {
        self.as_slice().into_axes(shape)
    }
}

macro_rules! tuples {
    ($(($($axis:ident),+): ($($type:ty),+);)*) => {$(
        impl IntoAxes for ($($type),+) {
            fn into_axes(self, shape: &Shape) -> Result<Axes> {
                let ($($axis),+) = self;
                [$($axis),+].into_axes(shape)
            }
        }
    )*};
}

tuples! {
    (a, b): (isize, isize);
    (a, b, c): (isize, isize, isize);
    (a, b, c, d): (isize, isize, isize, isize);
}

impl IntoAxes for &Vec<isize> {
    fn into_axes(self, shape: &Shape) -> Result<Axes> {
        self.as_slice().into_axes(shape)
    }
}
