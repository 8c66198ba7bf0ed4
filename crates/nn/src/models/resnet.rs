//! Residual networks.

use polygrad_tensor::{AnyBackend, Backend, Device, Error, Result, Tensor};
use serde::{Deserialize, Serialize};

use super::ModelConfig;

use crate::{
    AdaptiveAvgPool2d, BatchNorm2d, Conv2d, Conv2dConfig, Extent, Fan, Init, Linear, MaxPool2d, Module, Sequential,
    watch,
};

/// Options of [`ResNet`]. The defaults are ResNet-18's for ImageNet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ResNetConfig {
    /// Blocks in each of the four stages. Default: 2 each.
    pub layers: [usize; 4],
    /// Channels of the images. Default: 3.
    pub in_channels: usize,
    /// Number of classes. Default: 1000.
    pub num_classes: usize,
    /// Channels of the first stage; each further one has twice as many. Default: 64.
    pub width: usize,
    /// Whether the network begins with a 3×3 convolution and without pooling, for small images such as CIFAR's 32×32.
    /// Default: false.
    pub small_images: bool,
    /// Whether each block initially is the identity: its last normalisation's weight is 0. Default: false.
    pub zero_init_residual: bool,
}

impl Default for ResNetConfig {
    fn default() -> Self {
        Self::resnet18(1000)
    }
}

impl ModelConfig for ResNetConfig {}

impl ResNetConfig {
    /// ResNet-18.
    pub const fn resnet18(num_classes: usize) -> Self {
        Self {
            layers: [2, 2, 2, 2],
            in_channels: 3,
            num_classes,
            width: 64,
            small_images: false,
            zero_init_residual: false,
        }
    }

    /// ResNet-34.
    pub const fn resnet34(num_classes: usize) -> Self {
        Self {
            layers: [3, 4, 6, 3],
            ..Self::resnet18(num_classes)
        }
    }
}

/// A residual network of basic blocks, with torchvision's names: `conv1`, `bn1`, `layer1.0.conv1`,
/// `layer2.0.downsample.0`, `fc`. From `[N, in_channels, height, width]`, of any extents, to logits `[N, num_classes]`.
/// Convolutions are initialised as in torchvision: Kaiming normal, over the outputs.
///
/// Source: He et al., "Deep residual learning for image recognition" (2015).
///
/// ```
/// use polygrad_nn::models::{ResNet, ResNetConfig};
/// # use polygrad_reference::Reference;
/// use polygrad_tensor::{Device, Tensor};
///
/// # fn main() -> polygrad_tensor::Result<()> {
/// let device = Device::<Reference>::default();
/// let config = ResNetConfig { width: 4, small_images: true, ..ResNetConfig::resnet18(10) };
/// let model = ResNet::new(&config, &device)?;
/// assert_eq!(model.forward(&Tensor::ones([2, 3, 8, 8], &device)?)?.dims(), [2, 10]);
/// // The weights of torchvision's: ResNet::new(&ResNetConfig::resnet18(1000), &device)?.load("resnet18.safetensors")?
/// # Ok(())
/// # }
/// ```
#[derive(Module)]
#[module(forward)]
pub struct ResNet<B: Backend = AnyBackend> {
    /// 7×7 with stride 2, or 3×3 for small images.
    pub conv1: Conv2d<B>,
    /// Normalises the output of `conv1`.
    pub bn1: BatchNorm2d<B>,
    maxpool: Option<MaxPool2d>,
    /// The first stage.
    pub layer1: Vec<BasicBlock<B>>,
    /// The second stage, at half the extents.
    pub layer2: Vec<BasicBlock<B>>,
    /// The third stage, at a quarter of the extents.
    pub layer3: Vec<BasicBlock<B>>,
    /// The fourth stage, at an eighth of the extents.
    pub layer4: Vec<BasicBlock<B>>,
    avgpool: AdaptiveAvgPool2d,
    /// Maps to the logits.
    pub fc: Linear<B>,
}

/// Two 3×3 convolutions with a shortcut, which has a 1×1 convolution if the shape changes.
#[derive(Module)]
#[module(forward)]
pub struct BasicBlock<B: Backend = AnyBackend> {
    /// 3×3, with the block's stride.
    pub conv1: Conv2d<B>,
    /// Normalises the output of `conv1`.
    pub bn1: BatchNorm2d<B>,
    /// 3×3.
    pub conv2: Conv2d<B>,
    /// Normalises the output of `conv2`.
    pub bn2: BatchNorm2d<B>,
    /// Convolution and normalisation of the shortcut; `None` if the shape stays the same.
    pub downsample: Option<Sequential<B>>,
}

fn conv<B: Backend>(
    channels: (usize, usize),
    kernel: impl Extent<2>,
    stride: usize,
    padding: usize,
    device: &Device<B>,
) -> Result<Conv2d<B>> {
    let he = Init::KaimingNormal {
        gain: Init::gain_leaky_relu(0.0),
        fan: Fan::Out,
    };
    let config = Conv2dConfig::new(channels.0, channels.1, kernel).stride(stride);
    config.padding(padding).bias(false).init(he).build(device)
}

impl<B: Backend> BasicBlock<B> {
    fn new(inputs: usize, outputs: usize, stride: usize, device: &Device<B>) -> Result<Self> {
        let downsample = match stride != 1 || inputs != outputs {
            false => None,
            true => Some(
                Sequential::new()
                    .push(conv((inputs, outputs), 1, stride, 0, device)?)
                    .push(BatchNorm2d::new(outputs, device)?),
            ),
        };
        Ok(Self {
            conv1: conv((inputs, outputs), 3, stride, 1, device)?,
            bn1: BatchNorm2d::new(outputs, device)?,
            conv2: conv((outputs, outputs), 3, 1, 1, device)?,
            bn2: BatchNorm2d::new(outputs, device)?,
            downsample,
        })
    }

    /// `[N, inputs, H, W]` to `[N, outputs, ⌈H / stride⌉, ⌈W / stride⌉]`.
    ///
    /// # Errors
    /// When shape, dtype or device do not fit.
    pub fn forward(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        watch::layer(self, x, || {
            let y = self.bn1.forward(&self.conv1.forward(x)?)?.relu()?;
            let y = self.bn2.forward(&self.conv2.forward(&y)?)?;
            let beside = match &self.downsample {
                Some(downsample) => downsample.forward(x)?,
                None => x.clone(),
            };
            y.add(&beside)?.relu()
        })
    }
}

impl<B: Backend> ResNet<B> {
    /// A network with torchvision's initial values.
    ///
    /// # Errors
    /// When a size is 0 or too large, or memory runs out.
    pub fn new(config: &ResNetConfig, device: &Device<B>) -> Result<Self> {
        let width = config.width;
        let fits = width.checked_mul(8).is_some();
        if config.in_channels == 0 || width == 0 || !fits || config.layers.contains(&0) {
            let what = format!(
                "in_channels = {}, width = {width} and each of layers = {:?} must be at least 1, and fit in memory",
                config.in_channels, config.layers
            );
            return Err(Error::invalid(what).with_op("ResNet"));
        }
        let stage = |i: usize| -> Result<Vec<BasicBlock<B>>> {
            let outputs = width << i;
            let (inputs, stride) = if i == 0 { (width, 1) } else { (outputs / 2, 2) };
            let blocks: Result<Vec<_>> = (0..config.layers[i])
                .map(|block| match block {
                    0 => BasicBlock::new(inputs, outputs, stride, device),
                    _ => BasicBlock::new(outputs, outputs, 1, device),
                })
                .collect();
            let blocks = blocks?;
            if config.zero_init_residual {
                for weight in blocks.iter().filter_map(|block| block.bn2.weight.as_ref()) {
                    weight.set(&weight.tensor().zeros_like()?)?;
                }
            }
            Ok(blocks)
        };
        let stem = (config.in_channels, width);
        Ok(Self {
            conv1: match config.small_images {
                false => conv(stem, 7, 2, 3, device)?,
                true => conv(stem, 3, 1, 1, device)?,
            },
            bn1: BatchNorm2d::new(width, device)?,
            maxpool: (!config.small_images).then(|| MaxPool2d::new(3).stride(2).padding(1)),
            layer1: stage(0)?,
            layer2: stage(1)?,
            layer3: stage(2)?,
            layer4: stage(3)?,
            avgpool: AdaptiveAvgPool2d::new(1),
            fc: Linear::new(width * 8, config.num_classes, device)?,
        })
    }

    /// `[N, in_channels, H, W]` to `[N, num_classes]`.
    ///
    /// # Errors
    /// When shape, dtype or device do not fit, or a channel is left with a single value in training.
    pub fn forward(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        watch::layer(self, x, || {
            let mut x = self.bn1.forward(&self.conv1.forward(x)?)?.relu()?;
            if let Some(maxpool) = &self.maxpool {
                x = maxpool.forward(&x)?;
            }
            for block in [&self.layer1, &self.layer2, &self.layer3, &self.layer4]
                .into_iter()
                .flatten()
            {
                x = block.forward(&x)?;
            }
            self.fc.forward(&self.avgpool.forward(&x)?.flatten(1, -1)?)
        })
    }
}
