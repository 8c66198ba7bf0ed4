//! What transformer layers have in common.

use polygrad_tensor::{Backend, Device, Error, Result};

use super::{TransformerDecoderLayer, TransformerEncoderLayer};

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
    pub(super) d_model: usize,
    pub(super) nhead: usize,
    pub(super) dim_feedforward: usize,
    pub(super) dropout: f64,
    pub(super) activation: TransformerActivation,
    pub(super) layer_norm_eps: f64,
    pub(super) batch_first: bool,
    pub(super) norm_first: bool,
    pub(super) bias: bool,
}

/// What stands between the two linear layers of a transformer's feed-forward part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransformerActivation {
    /// `max(x, 0)`.
    #[default]
    Relu,
    /// `x · Φ(x)`, exactly.
    Gelu,
}

impl TransformerLayerConfig {
    /// Vectors of `d_model`, attended to by `nhead` heads, with PyTorch's defaults for the rest.
    pub const fn new(d_model: usize, nhead: usize) -> Self {
        Self {
            d_model,
            nhead,
            dim_feedforward: 2048,
            dropout: 0.1,
            activation: TransformerActivation::Relu,
            layer_norm_eps: 1e-5,
            batch_first: false,
            norm_first: false,
            bias: true,
        }
    }

    /// Width between the two linear layers. Default: 2048.
    #[must_use]
    pub const fn dim_feedforward(mut self, width: usize) -> Self {
        self.dim_feedforward = width;
        self
    }

    /// Probability of dropout in training: of attention weights, after the activation, and after each block. Default: 0.1.
    #[must_use]
    pub const fn dropout(mut self, p: f64) -> Self {
        self.dropout = p;
        self
    }

    /// The activation of the feed-forward part. Default: ReLU.
    #[must_use]
    pub const fn activation(mut self, activation: TransformerActivation) -> Self {
        self.activation = activation;
        self
    }

    /// Added to the variance in the norms. Default: 1e-5.
    #[must_use]
    pub const fn layer_norm_eps(mut self, eps: f64) -> Self {
        self.layer_norm_eps = eps;
        self
    }

    /// Whether inputs are `[N, S, E]`, in place of `[S, N, E]`. Default: false.
    #[must_use]
    pub const fn batch_first(mut self, batch_first: bool) -> Self {
        self.batch_first = batch_first;
        self
    }

    /// Whether each block normalises its input (pre-norm), in place of its sum with the input (post-norm). Default: false.
    #[must_use]
    pub const fn norm_first(mut self, norm_first: bool) -> Self {
        self.norm_first = norm_first;
        self
    }

    /// Whether linear layers and norms have biases. Default: true.
    #[must_use]
    pub const fn bias(mut self, bias: bool) -> Self {
        self.bias = bias;
        self
    }

    /// An encoder layer, on a device.
    ///
    /// # Errors
    /// When the heads do not divide `d_model`, the dropout is no probability, or memory runs out.
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
