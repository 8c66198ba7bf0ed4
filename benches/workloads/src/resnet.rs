//! `resnet`: ResNet-18 for 16 images of 32×32, with SGD and momentum.

use polygrad_nn::models::{ResNet, ResNetConfig};
use polygrad_tensor::{Backend, Device, Result};

use crate::Prepared;
use crate::training::{Mode, Optim, input, training};

const BATCH: usize = 16;

pub(crate) fn flops() -> u64 {
    let first = 32 * 32 * 64 * 3 * 9;
    let mut rest = 512 * 10;
    for stage in 0..4 {
        let (width, side) = (64 << stage, 32 >> stage);
        let square = side * side * width;
        // Each later stage begins with half its channels, and its first block has an additional 1×1 convolution.
        rest += match stage {
            0 => 4 * square * width * 9,
            _ => square * (width / 2) * (9 + 1) + 3 * square * width * 9,
        };
    }
    // The images need no gradient.
    2 * (BATCH * (2 * first + 3 * rest)) as u64
}

pub(crate) fn prepare<B: Backend, W: Mode<B>>(device: &Device<B>) -> Result<Prepared<B>> {
    let config = ResNetConfig {
        small_images: true,
        ..ResNetConfig::resnet18(10)
    };
    let model = ResNet::new(&config, device)?;
    let x = input(&[BATCH, 3, 32, 32], device)?;
    training::<B, W, _>(model, Optim::Momentum, x, (BATCH, 10), ResNet::forward)
}
