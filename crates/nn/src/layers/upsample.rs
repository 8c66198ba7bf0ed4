//! Resizing of images.

use polygrad_tensor::{Backend, InterpolateMode, Resize, Result, Tensor};

use super::stateless::stateless;
use crate::options::options;
use crate::watch;

options! {
    /// Resizes the spatial axes of `[N, C, spatial…]`: [`Tensor::interpolate`] as a module.
    ///
    /// ```
    /// # use polygrad_nn::Upsample;
    /// # use polygrad_tensor::InterpolateMode;
    /// let doubled = Upsample::scale_factor(2.0).mode(InterpolateMode::Linear).align_corners(true);
    /// let fixed = Upsample::size([32, 48]);
    /// ```
    #[derive(Clone, Debug)]
    pub struct Upsample {
        fn new(target: Target);
        /// How values between elements are interpolated. Default: [`InterpolateMode::Nearest`].
        mode: InterpolateMode = InterpolateMode::Nearest;
        /// Whether the centres of the first and last elements stay in place, rather than the outer edges; for modes
        /// `Linear` and `Cubic`.
        align_corners: bool = false;
        /// Whether the positions of the new elements follow from the ratio of the extents instead of the factor. The
        /// two differ if a product was rounded.
        recompute_scale_factor: bool = false;
    }
}

/// One number for all spatial axes, or one for each.
#[derive(Clone, Debug)]
pub(super) enum Target {
    Size(Vec<usize>),
    Scale(Vec<f64>),
}

impl Upsample {
    /// Resizes to these extents: one for each spatial axis, as in `[32, 48]`, or one for all, as in `[32]`.
    pub fn size(size: impl AsRef<[usize]>) -> Self {
        Self::new(Target::Size(size.as_ref().to_vec()))
    }

    /// Scales all spatial axes by one factor; the product with an extent is rounded down.
    pub fn scale_factor(factor: f64) -> Self {
        Self::scale_factors([factor])
    }

    /// Scales by one factor for each spatial axis, or one for all; the product with an extent is rounded down.
    pub fn scale_factors(factors: impl AsRef<[f64]>) -> Self {
        Self::new(Target::Scale(factors.as_ref().to_vec()))
    }

    /// `[N, C, spatial…]` with other spatial extents.
    ///
    /// # Errors
    /// As [`Tensor::interpolate`].
    pub fn forward<B: Backend>(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        watch::layer(self, x, || self.compute(x)).map_err(|e| e.with_op("Upsample"))
    }

    fn compute<B: Backend>(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let shape = x.shape();
        let spatial = shape.get(2..).unwrap_or_default();
        let run = |to: Resize<'_>| x.interpolate(to, self.mode, self.align_corners);
        match &self.target {
            Target::Size(sizes) => run(Resize::Size(&for_each(sizes, spatial.len()))),
            Target::Scale(factors) => {
                let factors = for_each(factors, spatial.len());
                if self.recompute_scale_factor && factors.len() == spatial.len() {
                    let sizes = spatial.iter().zip(&factors);
                    let sizes: Vec<_> = sizes
                        .map(|(&extent, factor)| (extent as f64 * factor) as usize)
                        .collect();
                    return run(Resize::Size(&sizes));
                }
                run(Resize::Scale(&factors))
            }
        }
    }
}

/// The numbers, or a single number repeated for each axis.
fn for_each<T: Copy>(numbers: &[T], axes: usize) -> Vec<T> {
    match numbers {
        &[all] => vec![all; axes],
        numbers => numbers.to_vec(),
    }
}

stateless!(Upsample);
