//! Vision transformers, and their building blocks for models of your own.

use polygrad_tensor::{AnyBackend, Backend, Device, Error, Result, Tensor};
use serde::{Deserialize, Serialize};

use super::config::{ModelConfig, check_heads, layers};
use crate::{
    Conv2d, Conv2dConfig, Dropout, GELU, Init, LayerNorm, LayerNormConfig, Linear, LinearConfig, Masks, Module,
    MultiheadAttention, MultiheadAttentionConfig, Param, Sequential, Slot, Visit, Visitor, defaults, watch,
};

const NAME: &str = "VisionTransformer";

/// A transformer over patches of an image, with the parameter names of torchvision's `VisionTransformer`.
///
/// Source: Dosovitskiy et al., "An image is worth 16x16 words: transformers for image recognition at scale" (2020).
///
/// ```
/// use polygrad_nn::models::{VisionTransformer, VitConfig};
/// # use polygrad_reference::Reference;
/// # use polygrad_tensor::{Device, Result, Tensor};
/// # fn main() -> Result<()> {
/// let device = Device::<Reference>::default();
/// let config = VitConfig {
///     image_size: 8,
///     patch_size: 4,
///     num_layers: 2,
///     num_heads: 2,
///     hidden_dim: 8,
///     mlp_dim: 16,
///     num_classes: 5,
///     ..VitConfig::default()
/// };
/// let model = VisionTransformer::new(&config, &device)?;
/// assert_eq!(model.forward(&Tensor::randn([2, 3, 8, 8], &device)?)?.dims(), [2, 5]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Module)]
#[module(forward)]
pub struct VisionTransformer<B: Backend = AnyBackend> {
    /// A token for the whole image, placed before its patches: `[1, 1, hidden_dim]`.
    pub class_token: Param<B>,
    /// Maps patches to vectors.
    pub conv_proj: Slot<Conv2d<B>, B>,
    /// The layers.
    pub encoder: Encoder<B>,
    /// Maps to the logits.
    pub heads: Heads<B>,
    #[module(skip)]
    config: VitConfig,
}

defaults! {
    /// The config of a [`VisionTransformer`], with torchvision's names; the defaults are those of ViT-B/16.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct VitConfig {
        /// Height and width of the images, in pixels. Default: 224.
        pub image_size: usize = 224,
        /// Height and width of a patch, which must divide the image's. Default: 16.
        pub patch_size: usize = 16,
        /// Channels of the images. Default: 3.
        pub in_channels: usize = 3,
        /// Number of layers. Default: 12.
        pub num_layers: usize = 12,
        /// Number of attention heads, which must divide `hidden_dim`. Default: 12.
        pub num_heads: usize = 12,
        /// Width of the vectors. Default: 768.
        pub hidden_dim: usize = 768,
        /// Width between the two linear layers of a layer. Default: 3,072.
        pub mlp_dim: usize = 3072,
        /// Dropout after each part of a layer. Default: 0.
        pub dropout: f64 = 0.0,
        /// Dropout of attention weights. Default: 0.
        pub attention_dropout: f64 = 0.0,
        /// Number of classes. Default: 1,000.
        pub num_classes: usize = 1000,
        /// Added to the variance in the norms. Default: 1e-6.
        pub layer_norm_eps: f64 = 1e-6,
    }
}

impl ModelConfig for VitConfig {}

/// The layers of a vision transformer.
#[derive(Debug, Module)]
pub struct Encoder<B: Backend = AnyBackend> {
    /// Positions of the class token and the patches: `[1, 1 + patches, hidden_dim]`.
    pub pos_embedding: Param<B>,
    /// Dropout before the first layer.
    pub dropout: Dropout,
    /// The layers.
    pub layers: Layers<B>,
    /// The norm after the last layer.
    pub ln: Slot<LayerNorm<B>, B>,
}

/// Layers whose names have their number in them: `encoder_layer_0`.
#[derive(Debug)]
pub struct Layers<B: Backend = AnyBackend>(pub Vec<Layer<B>>);

impl<B: Backend> Visit<B> for Layers<B> {
    fn visit(&self, visitor: &mut Visitor<'_, B>) {
        for (i, layer) in self.0.iter().enumerate() {
            visitor.field(&format!("encoder_layer_{i}"), layer);
        }
    }
}

/// A layer of a vision transformer.
#[derive(Debug, Module)]
pub struct Layer<B: Backend = AnyBackend> {
    /// The norm before attention.
    pub ln_1: Slot<LayerNorm<B>, B>,
    /// Attention between patches.
    pub self_attention: MultiheadAttention<B>,
    /// Dropout after attention.
    pub dropout: Dropout,
    /// The norm before the linear layers.
    pub ln_2: Slot<LayerNorm<B>, B>,
    /// The linear layers, applied to each patch.
    pub mlp: Slot<Sequential<B>, B>,
}

/// The classifier.
#[derive(Debug, Module)]
pub struct Heads<B: Backend = AnyBackend> {
    /// From the class token's vector to the logits.
    pub head: Slot<Linear<B>, B>,
}

impl VitConfig {
    fn norm<B: Backend>(&self, device: &Device<B>) -> Result<Slot<LayerNorm<B>, B>> {
        LayerNormConfig::new([self.hidden_dim])
            .eps(self.layer_norm_eps)
            .build(device)
            .map(Slot::new)
    }

    fn layer<B: Backend>(&self, device: &Device<B>) -> Result<Layer<B>> {
        let linear = |inputs: usize, outputs: usize| {
            LinearConfig::new(inputs, outputs)
                .init(Init::xavier_uniform())
                .bias_init(Init::Normal { mean: 0.0, std: 1e-6 })
                .build(device)
        };
        Ok(Layer {
            ln_1: self.norm(device)?,
            self_attention: MultiheadAttentionConfig::new(self.hidden_dim, self.num_heads)
                .dropout(self.attention_dropout)
                .batch_first(true)
                .build(device)?,
            dropout: Dropout::new(self.dropout)?,
            ln_2: self.norm(device)?,
            mlp: Sequential::new()
                .push(linear(self.hidden_dim, self.mlp_dim)?)
                .push(GELU::Exact)
                .push(Dropout::new(self.dropout)?)
                .push(linear(self.mlp_dim, self.hidden_dim)?)
                .push(Dropout::new(self.dropout)?)
                .into(),
        })
    }
}

impl<B: Backend> VisionTransformer<B> {
    /// A model with random weights, initialised as in torchvision; the classifier's are 0.
    ///
    /// # Errors
    /// When the config is contradictory, or memory runs out.
    pub fn new(config: &VitConfig, device: &Device<B>) -> Result<Self> {
        let (width, patch) = (config.hidden_dim, config.patch_size);
        check_heads(NAME, config.num_heads, width)?;
        if patch == 0 || config.image_size == 0 || !config.image_size.is_multiple_of(patch) {
            return Err(Error::invalid(format!(
                "patches of {patch} pixels do not divide images of {}",
                config.image_size
            ))
            .with_op(NAME));
        }
        let side = config.image_size / patch;
        let places = side
            .checked_mul(side)
            .and_then(|patches| patches.checked_add(1))
            .ok_or_else(|| Error::invalid(format!("{side} patches a side are too many")).with_op(NAME))?;
        let fan_in = config.in_channels.max(1) as f64 * (patch as f64).powi(2);
        let std = fan_in.sqrt().recip();
        let patches = Init::TruncNormal {
            mean: 0.0,
            std,
            low: -2.0,
            high: 2.0,
        };
        let positions = Init::Normal { mean: 0.0, std: 0.02 };
        let layers = layers(NAME, config.num_layers)?.map(|_| config.layer(device));
        Ok(Self {
            class_token: Init::ZEROS.param([1, 1, width], device)?,
            conv_proj: Conv2dConfig::new(config.in_channels, width, patch)
                .stride(patch)
                .init(patches)
                .bias_init(Init::ZEROS)
                .build(device)?
                .into(),
            encoder: Encoder {
                pos_embedding: positions.param([1, places, width], device)?,
                dropout: Dropout::new(config.dropout)?,
                layers: Layers(layers.collect::<Result<_>>()?),
                ln: config.norm(device)?,
            },
            heads: Heads {
                head: LinearConfig::new(width, config.num_classes)
                    .init(Init::ZEROS)
                    .bias_init(Init::ZEROS)
                    .build(device)?
                    .into(),
            },
            config: config.clone(),
        })
    }

    /// The config.
    pub fn config(&self) -> &VitConfig {
        &self.config
    }

    /// The logits of the classes `[N, num_classes]` for images `[N, in_channels, image_size, image_size]`.
    ///
    /// # Errors
    /// When the images have another shape.
    pub fn forward(&self, images: &Tensor<B>) -> Result<Tensor<B>> {
        watch::layer(self, images, || {
            let x = self.features(images)?;
            self.heads.head.forward(&x.select(1, 0)?)
        })
    }

    /// The vectors `[N, 1 + patches, hidden_dim]` of the class token and of the patches, row by row, after the last
    /// layer and its norm.
    ///
    /// # Errors
    /// As [`VisionTransformer::forward`].
    pub fn features(&self, images: &Tensor<B>) -> Result<Tensor<B>> {
        self.encoder.forward(&self.embed(images)?, |_| {})
    }

    /// The vectors after the embeddings and after each layer, without the last norm: Hugging Face's `hidden_states` of
    /// `ViTModel`.
    ///
    /// # Errors
    /// As [`VisionTransformer::forward`].
    pub fn hidden_states(&self, images: &Tensor<B>) -> Result<Vec<Tensor<B>>> {
        let mut states = Vec::with_capacity(self.encoder.layers.0.len() + 1);
        self.encoder.forward(&self.embed(images)?, |x| states.push(x.clone()))?;
        Ok(states)
    }

    /// The vectors of the class token and the patches.
    fn embed(&self, images: &Tensor<B>) -> Result<Tensor<B>> {
        let VitConfig {
            image_size,
            in_channels,
            hidden_dim,
            ..
        } = self.config;
        match images.dims()[..] {
            [_, c, h, w] if [c, h, w] == [in_channels, image_size, image_size] => {}
            _ => {
                return Err(
                    Error::shape(format!("takes images [N, {in_channels}, {image_size}, {image_size}]"))
                        .with_op(NAME)
                        .with_operands([(images.shape(), images.dtype())]),
                );
            }
        }
        let patches = self.conv_proj.forward(images)?.flatten(2, 3)?.transpose(1, 2)?;
        let class = self.class_token.tensor().expand([images.shape()[0], 1, hidden_dim])?;
        Tensor::cat(&[&class, &patches], 1)
    }
}

impl<B: Backend> Encoder<B> {
    /// `each` is called with the embeddings and with each layer's output.
    fn forward(&self, x: &Tensor<B>, mut each: impl FnMut(&Tensor<B>)) -> Result<Tensor<B>> {
        watch::layer(self, x, || {
            let mut x = self.dropout.forward(&x.add(self.pos_embedding.tensor())?)?;
            each(&x);
            for layer in &self.layers.0 {
                x = layer.forward(&x)?;
                each(&x);
            }
            self.ln.forward(&x)
        })
    }
}

impl<B: Backend> Layer<B> {
    fn forward(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        watch::layer(self, x, || {
            let attended = self
                .self_attention
                .forward_self(&self.ln_1.forward(x)?, Masks::default())?;
            let x = x.add(&self.dropout.forward(&attended)?)?;
            x.add(&self.mlp.forward(&self.ln_2.forward(&x)?)?)
        })
    }
}
