//! Layer normalisation.

use polygrad_tensor::{AnyBackend, Backend, Device, Error, IntoShape, Result, Shape, Tensor};

use crate::options::options;
use crate::{Init, Module, Param, watch};

/// Brings the last axes of each sample to mean 0 and variance 1, then scales by `weight` and shifts by `bias`, which
/// have the shape of those axes.
///
/// Source: Ba, Kiros and Hinton, "Layer normalization" (2016).
#[derive(Debug, Module)]
#[module(forward)]
pub struct LayerNorm<B: Backend = AnyBackend> {
    /// Of the normalised shape, 1 at first.
    pub weight: Option<Param<B>>,
    /// Of the normalised shape, 0 at first.
    pub bias: Option<Param<B>>,
    normalized_shape: Shape,
    eps: f64,
}

options! {
    /// Options of [`LayerNorm`].
    #[derive(Clone, Debug)]
    pub struct LayerNormConfig {
        /// Normalises over the last axes, which have these extents.
        pub fn new(
            normalized_shape: Vec<usize> = |normalized_shape: impl AsRef<[usize]>| normalized_shape.as_ref().to_vec()
        );
        /// Added to the variance.
        eps: f64 = 1e-5;
        /// Whether there are a weight and a bias.
        elementwise_affine: bool = true;
        /// Whether there is a bias, if there is a weight.
        bias: bool = true;
    }
}

impl LayerNormConfig {
    /// The layer, on a device.
    ///
    /// # Errors
    /// When the shape has no axes or too many, or memory runs out.
    #[track_caller]
    pub fn build<B: Backend>(self, device: &Device<B>) -> Result<LayerNorm<B>> {
        let shape = normalized_shape(&self.normalized_shape).map_err(|e| e.with_op("layer_norm"))?;
        Ok(LayerNorm {
            weight: Init::ONES.param_if(self.elementwise_affine, shape, device)?,
            bias: Init::ZEROS.param_if(self.elementwise_affine && self.bias, shape, device)?,
            normalized_shape: shape,
            eps: self.eps,
        })
    }
}

/// The extents of the last axes; at least one is required.
pub(super) fn normalized_shape(extents: &[usize]) -> Result<Shape> {
    if extents.is_empty() {
        return Err(Error::invalid("the normalised shape has no axes")
            .with_hint("give the extents of the last axes, such as [512]"));
    }
    Shape::new(extents)
}

/// Fails unless the input's last axes have this shape.
pub(super) fn check_end<B: Backend>(x: &Tensor<B>, inner: Shape) -> Result<()> {
    if x.shape().ends_with(&inner) {
        return Ok(());
    }
    Err(
        Error::shape(format!("the input does not end in the normalised shape {inner}"))
            .with_operands([(x.shape(), x.dtype())]),
    )
}

impl<B: Backend> LayerNorm<B> {
    /// Normalises over the last axes, which have the extents of `normalized_shape`: a number for one axis, or an array.
    /// [`LayerNormConfig`] has the other options.
    ///
    /// # Errors
    /// As [`LayerNormConfig::build`].
    #[track_caller]
    pub fn new(normalized_shape: impl IntoShape, device: &Device<B>) -> Result<Self> {
        LayerNormConfig::new(normalized_shape.into_shape()?.dims()).build(device)
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
        check_end(x, inner).map_err(|e| e.with_op("layer_norm"))?;
        let weight = self.weight.as_ref().map(Param::tensor);
        let bias = self.bias.as_ref().map(Param::tensor);
        x.layer_norm(weight.as_ref(), bias.as_ref(), inner.rank(), self.eps)
    }
}
