//! Options shared by transformer layers.

use polygrad_tensor::{Backend, Device, Error, Result};

use super::{TransformerDecoderLayer, TransformerEncoderLayer};
use crate::options::options;

options! {
    /// Options of [`TransformerEncoderLayer`] and [`TransformerDecoderLayer`].
    ///
    /// ```
    /// use polygrad_nn::{TransformerActivation, TransformerEncoder, TransformerLayerConfig};
    /// # use polygrad_reference::Reference;
    /// # use polygrad_tensor::{Device, Result, Tensor};
    /// # fn main() -> Result<()> {
    /// let device = Device::<Reference>::default();
    /// let layer = TransformerLayerConfig::new(16, 4)
    ///     .dim_feedforward(32)
    ///     .activation(TransformerActivation::Gelu)
    ///     .batch_first(true)
    ///     .norm_first(true);
    /// let encoder = TransformerEncoder::new(layer, 2, &device)?;
    /// assert_eq!(encoder.forward(&Tensor::randn([3, 5, 16], &device)?, Default::default())?.dims(), [3, 5, 16]);
    /// # Ok(())
    /// # }
    /// ```
    #[derive(Clone, Copy, Debug)]
    pub struct TransformerLayerConfig {
        /// Vectors of `d_model` and `nhead` attention heads, with PyTorch's defaults for the rest.
        pub const fn new(d_model: usize, nhead: usize);
        /// Width between the two linear layers.
        dim_feedforward: usize = 2048;
        /// Dropout probability in training: of attention weights, after the activation, and after each block.
        dropout: f64 = 0.1;
        /// The activation of the feed-forward part. Default: ReLU.
        activation: TransformerActivation = TransformerActivation::Relu;
        /// Added to the variance in the norms.
        layer_norm_eps: f64 = 1e-5;
        /// Whether inputs are `[N, S, E]` instead of `[S, N, E]`.
        batch_first: bool = false;
        /// Whether each block normalises its input (pre-norm) instead of its sum with the input (post-norm).
        norm_first: bool = false;
        /// Whether linear layers and norms have biases.
        bias: bool = true;
    }
}

/// The activation between the two linear layers of a transformer's feed-forward part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransformerActivation {
    /// `max(x, 0)`.
    #[default]
    Relu,
    /// `x · Φ(x)`, exactly.
    Gelu,
}

impl TransformerLayerConfig {
    /// An encoder layer, on a device.
    ///
    /// # Errors
    /// When the heads do not divide `d_model`, the dropout is not a probability, or memory runs out.
    pub fn encoder_layer<B: Backend>(self, device: &Device<B>) -> Result<TransformerEncoderLayer<B>> {
        TransformerEncoderLayer::build(self, device)
    }

    /// A decoder layer, on a device.
    ///
    /// # Errors
    /// As [`TransformerLayerConfig::encoder_layer`].
    pub fn decoder_layer<B: Backend>(self, device: &Device<B>) -> Result<TransformerDecoderLayer<B>> {
        TransformerDecoderLayer::build(self, device)
    }

    /// A stack of layers.
    pub(super) fn layers<L>(self, count: usize, build: impl Fn(Self) -> Result<L>) -> Result<Vec<L>> {
        (0..count)
            .map(|i| build(self).map_err(|e: Error| e.in_module(format!("layers.{i}"))))
            .collect()
    }
}
