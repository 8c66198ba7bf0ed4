//! Root mean square normalisation.

use polygrad_tensor::{AnyBackend, Backend, DType, Device, IntoShape, Result, Shape, Tensor};

use super::layer_norm::{check_end, normalized_shape};
use crate::options::options;
use crate::{Init, Module, Param, watch};

/// Divides the last axes of each sample by the root of their mean square, then scales by `weight`, which has the shape
/// of those axes.
///
/// Source: Zhang and Sennrich, "Root mean square layer normalization" (2019).
#[derive(Debug, Module)]
#[module(forward)]
pub struct RMSNorm<B: Backend = AnyBackend> {
    /// Of the normalised shape, 1 at first.
    pub weight: Option<Param<B>>,
    normalized_shape: Shape,
    eps: Option<f64>,
}

options! {
    /// Options of [`RMSNorm`].
    #[derive(Clone, Debug)]
    pub struct RMSNormConfig {
        /// Normalises over the last axes, which have these extents.
        pub fn new(
            normalized_shape: Vec<usize> = |normalized_shape: impl AsRef<[usize]>| normalized_shape.as_ref().to_vec()
        );
        /// Added to the mean square. Default: none, which means, as in PyTorch, the distance from 1 to the next number
        /// of the dtype in which the mean is taken: 2⁻⁵² for f64, and 2⁻²³ for f32 and narrower ones.
        eps: Option<f64> = None, from |eps: impl Into<Option<f64>>| eps.into();
        /// Whether there is a weight.
        elementwise_affine: bool = true;
    }
}

impl RMSNormConfig {
    /// The layer, on a device.
    ///
    /// # Errors
    /// When the shape has no axes or too many, or memory runs out.
    #[track_caller]
    pub fn build<B: Backend>(self, device: &Device<B>) -> Result<RMSNorm<B>> {
        let shape = normalized_shape(&self.normalized_shape).map_err(|e| e.with_op("rms_norm"))?;
        Ok(RMSNorm {
            weight: Init::ONES.param_if(self.elementwise_affine, shape, device)?,
            normalized_shape: shape,
            eps: self.eps,
        })
    }
}

impl<B: Backend> RMSNorm<B> {
    /// Normalises over the last axes, which have the extents of `normalized_shape`: a number for one axis, or an array.
    /// [`RMSNormConfig`] has the other options.
    ///
    /// # Errors
    /// As [`RMSNormConfig::build`].
    #[track_caller]
    pub fn new(normalized_shape: impl IntoShape, device: &Device<B>) -> Result<Self> {
        RMSNormConfig::new(normalized_shape.into_shape()?.dims()).build(device)
    }

    /// The normalised input, of the input's shape.
    ///
    /// # Errors
    /// When the input does not end in the normalised shape, or dtype or device differ from the weight's.
    pub fn forward(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        watch::layer(self, x, || self.compute(x))
    }

    fn compute(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let inner = self.normalized_shape;
        check_end(x, inner).map_err(|e| e.with_op("rms_norm"))?;
        let weight = self.weight.as_ref().map(Param::tensor);
        let default = match x.dtype() {
            DType::F64 => f64::EPSILON,
            _ => f32::EPSILON.into(),
        };
        x.rms_norm(weight.as_ref(), inner.rank(), self.eps.unwrap_or(default))
    }
}
