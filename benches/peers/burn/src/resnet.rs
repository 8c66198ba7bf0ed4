//! ResNet-18 for images of 32×32.

use burn::module::Module;
use burn_nn::conv::Conv2d;
use burn_nn::{BatchNorm, Linear};
use burn_tensor::Tensor;
use burn_tensor::activation::relu;
use polygrad_peer::Step;

use crate::training::{Weights, device, input, training};

#[derive(Module, Debug)]
struct ConvNorm {
    conv: Conv2d,
    norm: BatchNorm,
}

impl ConvNorm {
    fn new(inputs: usize, outputs: usize, size: usize, stride: usize, weights: &mut Weights) -> Self {
        Self {
            conv: weights.conv(inputs, outputs, size, stride, false),
            norm: weights.batch_norm(outputs),
        }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        self.norm.forward(self.conv.forward(x))
    }
}

#[derive(Module, Debug)]
struct Block {
    first: ConvNorm,
    second: ConvNorm,
    beside: Option<ConvNorm>,
}

impl Block {
    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let y = self.second.forward(relu(self.first.forward(x.clone())));
        relu(match &self.beside {
            Some(beside) => y + beside.forward(x),
            None => y + x,
        })
    }
}

#[derive(Module, Debug)]
struct ResNet {
    first: ConvNorm,
    blocks: Vec<Block>,
    fc: Linear,
}

pub fn resnet() -> Step {
    let mut weights = Weights::new(device());
    let first = ConvNorm::new(3, 64, 3, 1, &mut weights);
    let mut blocks = Vec::new();
    for stage in 0..4 {
        for block in 0..2 {
            let outputs = 64 << stage;
            let shrinks = stage > 0 && block == 0;
            let (inputs, stride) = if shrinks { (outputs / 2, 2) } else { (outputs, 1) };
            blocks.push(Block {
                first: ConvNorm::new(inputs, outputs, 3, stride, &mut weights),
                second: ConvNorm::new(outputs, outputs, 3, 1, &mut weights),
                beside: shrinks.then(|| ConvNorm::new(inputs, outputs, 1, stride, &mut weights)),
            });
        }
    }
    let model = ResNet {
        first,
        blocks,
        fc: weights.linear(512, 10),
    };
    let x = input([16, 3, 32, 32], &device());
    training(model, "momentum", (16, 10), move |model| {
        let mut x = relu(model.first.forward(x.clone()));
        for block in &model.blocks {
            x = block.forward(x);
        }
        let x: Tensor<2> = x.flatten::<3>(2, 3).mean_dim(2).flatten(1, 2);
        model.fc.forward(x)
    })
}
