//! Sizes along one to three spatial axes, and inputs with such axes.

use std::borrow::Cow;

use polygrad_tensor::{Backend, Error, Result, Tensor};

/// One number for all spatial axes, or an array with one for each.
pub trait Extent<const D: usize> {
    /// Converts it to one number for each axis.
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

/// Extends the sizes to the three that ops expect; they ignore entries beyond the spatial rank.
pub(super) fn padded<const D: usize>(extent: [usize; D], fill: usize) -> [usize; 3] {
    const { assert!(D <= 3, "there are at most three spatial axes") };
    let mut out = [fill; 3];
    out[..D].copy_from_slice(&extent);
    out
}

/// The entry for `D` spatial axes, from entries for one, two and three.
pub(super) fn by_axes<const D: usize, T: Copy>(all: [T; 3]) -> T {
    const { assert!(D >= 1 && D <= 3, "there are one to three spatial axes") };
    all[D - 1]
}

/// The input of a layer over `D` spatial axes as a batch `[N, C, spatial…]`. If it was one sample `[C, spatial…]`, the
/// returned [`Batched`] removes the batch axis from the result.
pub(super) fn batched<'a, const D: usize, B: Backend>(
    x: &'a Tensor<B>,
    layer: &'static str,
) -> Result<(Cow<'a, Tensor<B>>, Batched)> {
    match x.rank().checked_sub(D) {
        Some(2) => Ok((Cow::Borrowed(x), Batched { one: false })),
        Some(1) => Ok((Cow::Owned(x.unsqueeze(0)?), Batched { one: true })),
        _ => {
            let spatial = by_axes::<D, _>(["L", "H, W", "D, H, W"]);
            let form = format!("takes [N, C, {spatial}], or [C, {spatial}] for one sample");
            let error = Error::shape(form).with_op(layer);
            Err(error.with_operands([(x.shape(), x.dtype())]))
        }
    }
}

/// Whether the batch was made from one sample.
#[derive(Clone, Copy)]
pub(super) struct Batched {
    one: bool,
}

impl Batched {
    /// The result in the form of the input: a batch, or one sample.
    pub(super) fn restore<B: Backend>(self, y: Tensor<B>) -> Result<Tensor<B>> {
        if self.one { y.squeeze(0) } else { Ok(y) }
    }
}
