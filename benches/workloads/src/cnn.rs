//! `cnn`: two convolutions and two linear layers on 64 images of 28×28, with Adam.

use polygrad_nn::{Conv2dConfig, Flatten, Linear, MaxPool2d, ReLU, Sequential};
use polygrad_tensor::{Backend, Device, Result};

use crate::Prepared;
use crate::training::{Mode, Optim, input, training};

const BATCH: usize = 64;

pub(crate) fn flops() -> u64 {
    let first = 28 * 28 * 32 * 9;
    let rest = 14 * 14 * 64 * 32 * 9 + 3136 * 128 + 128 * 10;
    // The images need no gradient.
    2 * (BATCH * (2 * first + 3 * rest)) as u64
}

pub(crate) fn prepare<B: Backend, W: Mode<B>>(device: &Device<B>) -> Result<Prepared<B>> {
    let conv = |from, to| Conv2dConfig::new(from, to, 3).padding(1).build(device);
    let model = Sequential::new()
        .push(conv(1, 32)?)
        .push(ReLU)
        .push(MaxPool2d::new(2))
        .push(conv(32, 64)?)
        .push(ReLU)
        .push(MaxPool2d::new(2))
        .push(Flatten::default())
        .push(Linear::new(3136, 128, device)?)
        .push(ReLU)
        .push(Linear::new(128, 10, device)?);
    let x = input(&[BATCH, 1, 28, 28], device)?;
    training::<B, W, _>(model, Optim::Adam, x, (BATCH, 10), Sequential::forward)
}
