//! The models except ResNet.

use burn::module::Module;
use burn_nn::conv::Conv2d;
use burn_nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn_nn::{Embedding, LayerNorm, Linear, Lstm, LstmConfig};
use burn_tensor::activation::{gelu, relu, tanh};
use burn_tensor::module::attention;
use burn_tensor::ops::AttentionModuleOptions;
use burn_tensor::{Device, Tensor};
use polygrad_peer::Step;
use polygrad_peer::data::INPUT;

use crate::training::{Weights, device, input, tokens, training};

#[derive(Module, Debug)]
struct Mlp {
    layers: Vec<Linear>,
}

impl Mlp {
    fn new(sizes: &[usize], weights: &mut Weights) -> Self {
        Self {
            layers: sizes.windows(2).map(|pair| weights.linear(pair[0], pair[1])).collect(),
        }
    }

    fn forward(&self, mut x: Tensor<2>, activation: fn(Tensor<2>) -> Tensor<2>) -> Tensor<2> {
        for (i, layer) in self.layers.iter().enumerate() {
            x = layer.forward(if i > 0 { activation(x) } else { x });
        }
        x
    }
}

/// On the device without gradients.
pub fn act() -> Step {
    let device = Device::flex();
    let model = Mlp::new(&[4, 64, 64, 2], &mut Weights::new(device.clone()));
    let x = input([1, 4], &device);
    Box::new(move || {
        std::hint::black_box(model.forward(x.clone(), tanh));
        Ok(None)
    })
}

pub fn mlp(sizes: &[usize], batch: usize, optim: &str) -> Step {
    let model = Mlp::new(sizes, &mut Weights::new(device()));
    let x = input([batch, sizes[0]], &device());
    training(model, optim, (batch, sizes[sizes.len() - 1]), move |model| {
        model.forward(x.clone(), relu)
    })
}

#[derive(Module, Debug)]
struct Cnn {
    conv1: Conv2d,
    conv2: Conv2d,
    pool: MaxPool2d,
    linear1: Linear,
    linear2: Linear,
}

pub fn cnn() -> Step {
    let mut weights = Weights::new(device());
    let model = Cnn {
        conv1: weights.conv(1, 32, 3, 1, true),
        conv2: weights.conv(32, 64, 3, 1, true),
        pool: MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init(),
        linear1: weights.linear(3136, 128),
        linear2: weights.linear(128, 10),
    };
    let x = input([64, 1, 28, 28], &device());
    training(model, "adam", (64, 10), move |model| {
        let x = model.pool.forward(relu(model.conv1.forward(x.clone())));
        let x = model.pool.forward(relu(model.conv2.forward(x)));
        let x: Tensor<2> = x.flatten(1, 3);
        model.linear2.forward(relu(model.linear1.forward(x)))
    })
}

#[derive(Module, Debug)]
struct Block {
    norm1: LayerNorm,
    qkv: Linear,
    out: Linear,
    norm2: LayerNorm,
    up: Linear,
    down: Linear,
}

impl Block {
    fn new(weights: &mut Weights) -> Self {
        Self {
            norm1: weights.layer_norm(128),
            qkv: weights.linear(128, 384),
            out: weights.linear(128, 128),
            norm2: weights.layer_norm(128),
            up: weights.linear(128, 512),
            down: weights.linear(512, 128),
        }
    }

    fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let qkv = self.qkv.forward(self.norm1.forward(x.clone()));
        let part = |i: usize| {
            let part = qkv.clone().narrow(2, i * 128, 128);
            part.reshape([16, 64, 4, 32]).swap_dims(1, 2)
        };
        let options = AttentionModuleOptions {
            scale: None,
            softcap: None,
            is_causal: true,
        };
        let seen = attention(part(0), part(1), part(2), None, None, options);
        let x = x + self.out.forward(seen.swap_dims(1, 2).reshape([16, 64, 128]));
        let inner = gelu(self.up.forward(self.norm2.forward(x.clone())));
        x + self.down.forward(inner)
    }
}

#[derive(Module, Debug)]
struct Gpt {
    tokens: Embedding,
    positions: Embedding,
    blocks: Vec<Block>,
    norm: LayerNorm,
    head: Linear,
}

pub fn gpt() -> Step {
    let mut weights = Weights::new(device());
    let model = Gpt {
        tokens: weights.embedding(1024, 128),
        positions: weights.embedding(64, 128),
        blocks: (0..4).map(|_| Block::new(&mut weights)).collect(),
        norm: weights.layer_norm(128),
        head: weights.linear(128, 1024),
    };
    let texts = tokens([16, 64], 1024, INPUT);
    training(model, "adamw", (1024, 1024), move |model| {
        let positions = model.positions.weight.val().unsqueeze::<3>();
        let mut x = model.tokens.forward(texts.clone()) + positions;
        for block in &model.blocks {
            x = block.forward(x);
        }
        model.head.forward(model.norm.forward(x)).reshape([1024, 1024])
    })
}

#[derive(Module, Debug)]
struct Classifier {
    lstm: Lstm,
    head: Linear,
}

pub fn lstm() -> Step {
    let mut weights = Weights::new(device());
    let (ih, hh) = (weights.take([512, 64], false), weights.take([512, 128], false));
    let (bih, bhh) = (weights.take([512], false), weights.take([512], false));
    let mut lstm = LstmConfig::new(64, 128, true).with_batch_first(false).init(&device());
    // The other peers keep the gates in one matrix: input, forget, cell, output.
    let gates = [
        Some(&mut lstm.input_gate),
        lstm.forget_gate.as_mut(),
        Some(&mut lstm.cell_gate),
        Some(&mut lstm.output_gate),
    ];
    for (i, gate) in gates.into_iter().enumerate() {
        let layer = |weight: &Tensor<2>, bias: &Tensor<1>| {
            let rows = weight.clone().narrow(0, i * 128, 128);
            weights.layer(rows, bias.clone().narrow(0, i * 128, 128))
        };
        if let Some(gate) = gate {
            gate.input_transform = layer(&ih, &bih);
            gate.hidden_transform = layer(&hh, &bhh);
        }
    }
    let model = Classifier {
        lstm,
        head: weights.linear(128, 10),
    };
    let x = input([64, 32, 64], &device());
    training(model, "adam", (32, 10), move |model| {
        let (_, state) = model.lstm.forward(x.clone(), None);
        model.head.forward(state.hidden)
    })
}
