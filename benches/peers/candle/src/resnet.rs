//! ResNet-18 for images of 32×32.

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::{BatchNorm, Conv2d, Conv2dConfig, Module, ModuleT};
use polygrad_peer::Step;

use crate::training::{Params, input, training};

struct ConvNorm(Conv2d, BatchNorm);

impl ConvNorm {
    fn new(inputs: usize, outputs: usize, size: usize, stride: usize, params: &mut Params) -> Result<Self> {
        let config = Conv2dConfig {
            padding: size / 2,
            stride,
            ..Default::default()
        };
        let conv = Conv2d::new(params.take(&[outputs, inputs, size, size], false)?, None, config);
        let (weight, bias) = (params.take(&[outputs], true)?, params.take(&[outputs], false)?);
        let mean = Tensor::zeros(outputs, DType::F32, &Device::Cpu)?;
        let var = Tensor::ones(outputs, DType::F32, &Device::Cpu)?;
        Ok(Self(conv, BatchNorm::new(outputs, mean, var, weight, bias, 1e-5)?))
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.1.forward_t(&self.0.forward(x)?, true)
    }
}

struct Block(ConvNorm, ConvNorm, Option<ConvNorm>);

impl Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.1.forward(&self.0.forward(x)?.relu()?)?;
        match &self.2 {
            Some(beside) => (y + beside.forward(x)?)?.relu(),
            None => (y + x)?.relu(),
        }
    }
}

pub fn resnet() -> Result<Step> {
    let mut params = Params::default();
    let first = ConvNorm::new(3, 64, 3, 1, &mut params)?;
    let mut blocks = Vec::new();
    for stage in 0..4 {
        for block in 0..2 {
            let outputs = 64 << stage;
            let shrinks = stage > 0 && block == 0;
            let (inputs, stride) = if shrinks { (outputs / 2, 2) } else { (outputs, 1) };
            let conv1 = ConvNorm::new(inputs, outputs, 3, stride, &mut params)?;
            let conv2 = ConvNorm::new(outputs, outputs, 3, 1, &mut params)?;
            let beside = match shrinks {
                true => Some(ConvNorm::new(inputs, outputs, 1, stride, &mut params)?),
                false => None,
            };
            blocks.push(Block(conv1, conv2, beside));
        }
    }
    let fc = params.linear(512, 10)?;
    training(params, "momentum", input(&[16, 3, 32, 32])?, (16, 10), move |x| {
        let mut x = first.forward(x)?.relu()?;
        for block in &blocks {
            x = block.forward(&x)?;
        }
        fc.forward(&x.mean((2, 3))?)
    })
}
