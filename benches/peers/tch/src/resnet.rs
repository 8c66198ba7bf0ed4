//! ResNet-18 for images of 32×32.

use polygrad_peer::{Result, Step};
use tch::{Device, Kind, Tensor};

use crate::training::{Layer, Params, input, training};

struct ConvNorm {
    weight: Tensor,
    norm: Layer,
    mean: Tensor,
    var: Tensor,
    stride: i64,
    padding: i64,
}

impl ConvNorm {
    fn new(inputs: usize, outputs: usize, size: usize, stride: i64, params: &mut Params) -> Self {
        let options = (Kind::Float, Device::Cpu);
        Self {
            weight: params.take(&[outputs, inputs, size, size], false),
            norm: params.norm(outputs),
            mean: Tensor::zeros([outputs as i64], options),
            var: Tensor::ones([outputs as i64], options),
            stride,
            padding: size as i64 / 2,
        }
    }

    fn forward(&self, x: &Tensor) -> Tensor {
        let (stride, padding) = ([self.stride; 2], [self.padding; 2]);
        let x = x.conv2d::<Tensor>(&self.weight, None, stride, padding, [1, 1], 1);
        let (weight, bias) = (Some(&self.norm.0), Some(&self.norm.1));
        x.batch_norm(weight, bias, Some(&self.mean), Some(&self.var), true, 0.1, 1e-5, true)
    }
}

struct Block(ConvNorm, ConvNorm, Option<ConvNorm>);

impl Block {
    fn forward(&self, x: &Tensor) -> Tensor {
        let y = self.1.forward(&self.0.forward(x).relu());
        match &self.2 {
            Some(beside) => (y + beside.forward(x)).relu(),
            None => (y + x).relu(),
        }
    }
}

pub fn resnet() -> Result<Step> {
    let mut params = Params::new();
    let first = ConvNorm::new(3, 64, 3, 1, &mut params);
    let mut blocks = Vec::new();
    for stage in 0..4 {
        for block in 0..2 {
            let outputs = 64 << stage;
            let shrinks = stage > 0 && block == 0;
            let (inputs, stride) = if shrinks { (outputs / 2, 2) } else { (outputs, 1) };
            let conv1 = ConvNorm::new(inputs, outputs, 3, stride, &mut params);
            let conv2 = ConvNorm::new(outputs, outputs, 3, 1, &mut params);
            let beside = shrinks.then(|| ConvNorm::new(inputs, outputs, 1, stride, &mut params));
            blocks.push(Block(conv1, conv2, beside));
        }
    }
    let fc = params.linear(512, 10);
    training(params, "momentum", input(&[16, 3, 32, 32]), (16, 10), move |x| {
        let mut x = first.forward(x).relu();
        for block in &blocks {
            x = block.forward(&x);
        }
        fc.linear(&x.mean_dim(&[2i64, 3][..], false, None))
    })
}
