//! Sizes along one or more spatial axes.

/// One number for all spatial axes, or an array with one for each.
pub trait Extent<const D: usize> {
    /// One number for each axis.
    fn extent(self) -> [usize; D];
}

impl<const D: usize> Extent<D> for usize {
    fn extent(self) -> [usize; D] {
        [self; D]
    }
}

impl<const D: usize> Extent<D> for [usize; D] {
    fn extent(self) -> [usize; D] {
        self
    }
}

/// Fills up what ops expect, whose entries beyond the spatial rank are ignored.
pub(super) fn padded<const D: usize>(extent: [usize; D], fill: usize) -> [usize; 3] {
    const { assert!(D <= 3, "there are at most three spatial axes") };
    let mut out = [fill; 3];
    out[..D].copy_from_slice(&extent);
    out
}
