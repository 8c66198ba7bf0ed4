//! A small convolutional network in the style of LeNet-5.

use polygrad_tensor::{AnyBackend, Backend, Device, Error, Result, Tensor};
use serde::{Deserialize, Serialize};

use super::ModelConfig;

use crate::{Conv2d, Conv2dConfig, Linear, MaxPool2d, Module, defaults, watch};

defaults! {
    /// Options of [`LeNet`]. The defaults are for MNIST's 28×28 grey images.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct LeNetConfig {
        /// Channels of the images. Default: 1.
        pub in_channels: usize = 1,
        /// Height and width of the images. Default: 28 each.
        pub image_size: [usize; 2] = [28, 28],
        /// Zero padding around the image in the first convolution. Default: 2.
        pub padding: usize = 2,
        /// Channels after the first and after the second convolution. Default: 6 and 16.
        pub channels: [usize; 2] = [6, 16],
        /// Features of the two hidden layers. Default: 120 and 84.
        pub hidden: [usize; 2] = [120, 84],
        /// Number of classes. Default: 10.
        pub num_classes: usize = 10,
    }
}

impl ModelConfig for LeNetConfig {}

/// Two 5×5 convolutions and three linear layers. It uses ReLU and max-pooling where LeNet-5 has its own functions, as
/// in PyTorch's tutorials, whose names it has: `conv1`, `conv2`, `fc1`, `fc2`, `fc3`. From `[N, in_channels, height,
/// width]` to logits `[N, num_classes]`.
///
/// Source: LeCun et al., "Gradient-based learning applied to document recognition" (1998).
///
/// ```
/// use polygrad_nn::models::{LeNet, LeNetConfig};
/// # use polygrad_reference::Reference;
/// use polygrad_tensor::{Device, Tensor};
///
/// # fn main() -> polygrad_tensor::Result<()> {
/// let device = Device::<Reference>::default();
/// let model = LeNet::new(&LeNetConfig::default(), &device)?;
/// assert_eq!(model.forward(&Tensor::ones([2, 1, 28, 28], &device)?)?.dims(), [2, 10]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Module)]
#[module(forward)]
pub struct LeNet<B: Backend = AnyBackend> {
    /// 5×5, with padding.
    pub conv1: Conv2d<B>,
    /// 5×5, without padding.
    pub conv2: Conv2d<B>,
    /// From the flattened image to the first hidden layer.
    pub fc1: Linear<B>,
    /// The second hidden layer.
    pub fc2: Linear<B>,
    /// From the second hidden layer to the logits.
    pub fc3: Linear<B>,
    pool: MaxPool2d,
}

impl<B: Backend> LeNet<B> {
    /// A network with PyTorch's initial values.
    ///
    /// # Errors
    /// When the images are too small, or memory runs out.
    pub fn new(config: &LeNetConfig, device: &Device<B>) -> Result<Self> {
        let [first, second] = config.channels;
        let [height, width] = config.image_size.map(|extent| after_both(extent, config.padding));
        let (Some(height), Some(width)) = (height, width) else {
            let [height, width] = config.image_size;
            return Err(Error::invalid(format!(
                "an image of {height}×{width} leaves nothing after two convolutions and poolings"
            ))
            .with_op("LeNet")
            .with_hint("take images of at least 16×16, or 12×12 with padding = 2"));
        };
        let features = second.saturating_mul(height).saturating_mul(width);
        let [hidden1, hidden2] = config.hidden;
        Ok(Self {
            conv1: Conv2dConfig::new(config.in_channels, first, 5)
                .padding(config.padding)
                .build(device)?,
            conv2: Conv2d::new(first, second, 5, device)?,
            fc1: Linear::new(features, hidden1, device)?,
            fc2: Linear::new(hidden1, hidden2, device)?,
            fc3: Linear::new(hidden2, config.num_classes, device)?,
            pool: MaxPool2d::new(2),
        })
    }

    /// `[N, in_channels, height, width]` to `[N, num_classes]`.
    ///
    /// # Errors
    /// When shape, dtype or device do not fit.
    pub fn forward(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        watch::layer(self, x, || {
            let x = self.pool.forward(&self.conv1.forward(x)?.relu()?)?;
            let x = self.pool.forward(&self.conv2.forward(&x)?.relu()?)?;
            let x = self.fc1.forward(&x.flatten(1, -1)?)?.relu()?;
            let x = self.fc2.forward(&x)?.relu()?;
            self.fc3.forward(&x)
        })
    }
}

/// An extent after both convolutions and poolings, `None` if nothing is left.
fn after_both(extent: usize, padding: usize) -> Option<usize> {
    let padded = extent.checked_add(padding.checked_mul(2)?)?;
    let first = padded.checked_sub(4)? / 2;
    Some(first.checked_sub(4)? / 2).filter(|&left| left > 0)
}
