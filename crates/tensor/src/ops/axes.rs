//! How axes are written.

use polygrad_core::{Axes, Result, Shape};

/// One axis, several, or (as `()`) all of them; negative ones count from the back.
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
        shape.axis(self).map(Axes::one)
    }
}

impl IntoAxes for &[isize] {
    fn into_axes(self, shape: &Shape) -> Result<Axes> {
        let axes = self.iter().map(|&axis| shape.axis(axis)).collect::<Result<Vec<_>>>()?;
        Axes::new(axes)
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

impl IntoAxes for &Vec<isize> {
    fn into_axes(self, shape: &Shape) -> Result<Axes> {
        self.as_slice().into_axes(shape)
    }
}
