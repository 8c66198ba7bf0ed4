//! Channels to pixels and back.

use polygrad_tensor::{Backend, Error, Result, Shape, Tensor};

use super::stateless::stateless;
use crate::watch;

/// Rearranges `r²` channels into one with `r` times the height and width: `[…, C · r², H, W]` to `[…, C, H · r, W ·
/// r]`, for an upscale factor `r`.
///
/// Source: Shi et al., "Real-time single image and video super-resolution using an efficient sub-pixel convolutional
/// neural network" (2016).
#[derive(Clone, Copy, Debug)]
pub struct PixelShuffle(pub usize);

/// Rearranges each square of `r` by `r` pixels into `r²` channels: `[…, C, H · r, W · r]` to `[…, C · r², H, W]`, for a
/// downscale factor `r`; the inverse of [`PixelShuffle`].
#[derive(Clone, Copy, Debug)]
pub struct PixelUnshuffle(pub usize);

impl PixelShuffle {
    /// The input with fewer channels and more pixels.
    ///
    /// # Errors
    /// When the rank is below 3, the factor is 0, or its square does not divide the channels.
    pub fn forward<B: Backend>(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let run = || {
            let (r, [batch, channels, height, width]) = (self.0, images(x)?);
            let Some(square) = r
                .checked_mul(r)
                .filter(|&square| square > 0 && channels.is_multiple_of(square))
            else {
                return Err(Error::shape(format!("{channels} channels are not divisible by {r}²")));
            };
            let out = channels / square;
            let parts = x.reshape([batch, out, r, r, height, width])?;
            let pixels = parts.permute([0, 1, 4, 2, 5, 3])?;
            pixels.reshape(with_images(
                x,
                [out, height.saturating_mul(r), width.saturating_mul(r)],
            )?)
        };
        watch::layer(self, x, run).map_err(|e| located(e, "PixelShuffle", x))
    }
}

impl PixelUnshuffle {
    /// The input with more channels and fewer pixels.
    ///
    /// # Errors
    /// When the rank is below 3, or the factor is 0 or does not divide height and width.
    pub fn forward<B: Backend>(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let run = || {
            let (r, [batch, channels, height, width]) = (self.0, images(x)?);
            if r == 0 || !height.is_multiple_of(r) || !width.is_multiple_of(r) {
                return Err(Error::shape(format!(
                    "{height} × {width} pixels are not divisible by {r}"
                )));
            }
            let (height, width) = (height / r, width / r);
            let parts = x.reshape([batch, channels, height, r, width, r])?;
            let channelled = parts.permute([0, 1, 3, 5, 2, 4])?;
            channelled.reshape(with_images(
                x,
                [channels.saturating_mul(r).saturating_mul(r), height, width],
            )?)
        };
        watch::layer(self, x, run).map_err(|e| located(e, "PixelUnshuffle", x))
    }
}

/// The extents as those of a batch of images, with all leading axes merged.
fn images<B: Backend>(x: &Tensor<B>) -> Result<[usize; 4]> {
    match x.shape().dims() {
        [batch @ .., channels, height, width] => Ok([batch.iter().product(), *channels, *height, *width]),
        _ => Err(Error::shape("takes […, C, H, W]")),
    }
}

/// The input's leading axes, with the last three replaced.
fn with_images<B: Backend>(x: &Tensor<B>, last: [usize; 3]) -> Result<Shape> {
    Shape::new(&[&x.shape()[..x.rank() - 3], &last].concat())
}

#[cold]
fn located<B: Backend>(error: Error, layer: &'static str, x: &Tensor<B>) -> Error {
    error.with_op(layer).with_operands([(x.shape(), x.dtype())])
}

stateless!(PixelShuffle, PixelUnshuffle);
