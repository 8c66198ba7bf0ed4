//! Burn's side, with its modules, autodiff and optimizers.

use burn::module::{Module, Param};
use burn_nn::conv::{Conv2d, Conv2dConfig};
use burn_nn::loss::CrossEntropyLossConfig;
use burn_nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn_nn::{Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig, PaddingConfig2d};
use burn_optim::{AdamConfig, AdamWConfig, GradientsParams, ModuleOptimizer, SgdConfig};
use burn_tensor::activation::{gelu, relu};
use burn_tensor::module::attention;
use burn_tensor::ops::AttentionModuleOptions;
use burn_tensor::{Device, Int, Tensor, TensorData};

use polygrad_workloads::Weight;
use polygrad_workloads::data::{INPUT, TARGET, classes, noise};

use crate::Step;

/// Weights in the order in which our modules have them.
struct Weights(std::vec::IntoIter<Weight>, Device);

impl Weights {
    fn take<const D: usize>(&mut self, shape: [usize; D]) -> Tensor<D> {
        Tensor::from_data(TensorData::new(self.0.next().unwrap().2, shape), &self.1)
    }

    fn linear(&mut self, from: usize, to: usize) -> Linear {
        let mut layer = LinearConfig::new(from, to).init(&self.1);
        // Ours is [out, in]; a fresh copy in Burn's own order.
        let weight = self.take([to, from]).transpose().into_data();
        layer.weight = Param::from_tensor(Tensor::from_data(weight, &self.1));
        layer.bias = Some(Param::from_tensor(self.take([to])));
        layer
    }

    fn conv(&mut self, from: usize, to: usize) -> Conv2d {
        let config = Conv2dConfig::new([from, to], [3, 3]).with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1));
        let mut layer = config.init(&self.1);
        layer.weight = Param::from_tensor(self.take([to, from, 3, 3]));
        layer.bias = Some(Param::from_tensor(self.take([to])));
        layer
    }

    fn norm(&mut self) -> LayerNorm {
        let mut layer = LayerNormConfig::new(WIDTH).init(&self.1);
        layer.gamma = Param::from_tensor(self.take([WIDTH]));
        layer.beta = Some(Param::from_tensor(self.take([WIDTH])));
        layer
    }

    fn embedding(&mut self, count: usize) -> Embedding {
        let mut layer = EmbeddingConfig::new(count, WIDTH).init(&self.1);
        layer.weight = Param::from_tensor(self.take([count, WIDTH]));
        layer
    }
}

/// A step of a case from given weights.
pub fn step(case: &str, weights: Vec<Weight>) -> Step {
    let weights = Weights(weights.into_iter(), device());
    match case.split(' ').next() {
        Some("mlp-rl") => mlp(&[4, 64, 64, 2], 32, case, weights),
        Some("mlp-big") => mlp(&[784, 512, 512, 10], 128, case, weights),
        Some("cnn") => cnn(weights),
        _ => gpt(weights),
    }
}

fn device() -> Device {
    Device::flex().autodiff()
}

fn input<const D: usize>(shape: [usize; D]) -> Tensor<D> {
    Tensor::from_data(TensorData::new(noise(shape.iter().product(), INPUT), shape), &device())
}

fn tokens<const D: usize>(shape: [usize; D], of: usize, seed: u64) -> Tensor<D, Int> {
    let classes = classes(shape.iter().product(), of, seed);
    Tensor::from_data(TensorData::new(classes, shape), &device())
}

fn optimizer(case: &str) -> (ModuleOptimizer, f64) {
    match case {
        "gpt" => (
            AdamWConfig::new().with_epsilon(1e-8).with_weight_decay(0.01).init(),
            1e-3,
        ),
        _ if case.ends_with("sgd") => (SgdConfig::new().init(), 0.01),
        _ => (AdamConfig::new().with_epsilon(1e-8).init(), 1e-3),
    }
}

fn training<M: Module + 'static>(
    model: M,
    case: &str,
    targets: Tensor<1, Int>,
    logits: impl Fn(&M) -> Tensor<2> + 'static,
) -> Step {
    let mut model = Some(model);
    let (mut optimizer, rate) = optimizer(case);
    let loss = CrossEntropyLossConfig::new().init(&device());
    Box::new(move || {
        let current = model.take().unwrap();
        let loss = loss.forward(logits(&current), targets.clone());
        let gradients = GradientsParams::from_grads(loss.backward(), &current);
        model = Some(optimizer.step(rate, current, gradients));
        f64::from(loss.into_scalar::<f32>())
    })
}

#[derive(Module, Debug)]
struct Mlp {
    layers: Vec<Linear>,
}

fn mlp(sizes: &[usize], batch: usize, case: &str, mut weights: Weights) -> Step {
    let layers = sizes.windows(2).map(|pair| weights.linear(pair[0], pair[1])).collect();
    let x = input([batch, sizes[0]]);
    let targets = tokens([batch], sizes[sizes.len() - 1], TARGET);
    training(Mlp { layers }, case, targets, move |model| {
        let mut x = x.clone();
        for (i, layer) in model.layers.iter().enumerate() {
            x = layer.forward(if i > 0 { relu(x) } else { x });
        }
        x
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

fn cnn(mut weights: Weights) -> Step {
    let model = Cnn {
        conv1: weights.conv(1, 32),
        conv2: weights.conv(32, 64),
        pool: MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init(),
        linear1: weights.linear(3136, 128),
        linear2: weights.linear(128, 10),
    };
    let x = input([64, 1, 28, 28]);
    training(model, "cnn", tokens([64], 10, TARGET), move |model| {
        let x = model.pool.forward(relu(model.conv1.forward(x.clone())));
        let x = model.pool.forward(relu(model.conv2.forward(x)));
        let x: Tensor<2> = x.flatten(1, 3);
        model.linear2.forward(relu(model.linear1.forward(x)))
    })
}

const WIDTH: usize = 128;
const HEADS: usize = 4;

#[derive(Module, Debug)]
struct Block {
    norm1: LayerNorm,
    qkv: Linear,
    out: Linear,
    norm2: LayerNorm,
    up: Linear,
    down: Linear,
}

#[derive(Module, Debug)]
struct Gpt {
    tokens: Embedding,
    positions: Embedding,
    blocks: Vec<Block>,
    norm: LayerNorm,
    head: Linear,
}

impl Block {
    fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let [batch, length, _] = x.dims();
        let qkv = self.qkv.forward(self.norm1.forward(x.clone()));
        let part = |i: usize| {
            let part = qkv.clone().narrow(2, i * WIDTH, WIDTH);
            part.reshape([batch, length, HEADS, WIDTH / HEADS]).swap_dims(1, 2)
        };
        let options = AttentionModuleOptions {
            scale: None,
            softcap: None,
            is_causal: true,
        };
        let seen = attention(part(0), part(1), part(2), None, None, options);
        let x = x + self.out.forward(seen.swap_dims(1, 2).reshape([batch, length, WIDTH]));
        let inner = gelu(self.up.forward(self.norm2.forward(x.clone())));
        x + self.down.forward(inner)
    }
}

fn gpt(mut weights: Weights) -> Step {
    let model = Gpt {
        tokens: weights.embedding(1024),
        positions: weights.embedding(64),
        blocks: (0..4)
            .map(|_| Block {
                norm1: weights.norm(),
                qkv: weights.linear(WIDTH, 3 * WIDTH),
                out: weights.linear(WIDTH, WIDTH),
                norm2: weights.norm(),
                up: weights.linear(WIDTH, 4 * WIDTH),
                down: weights.linear(4 * WIDTH, WIDTH),
            })
            .collect(),
        norm: weights.norm(),
        head: weights.linear(WIDTH, 1024),
    };
    let texts = tokens([16, 64], 1024, INPUT);
    let positions: Vec<i64> = (0..64).collect();
    let positions: Tensor<2, Int> = Tensor::from_data(TensorData::new(positions, [1, 64]), &device());
    training(model, "gpt", tokens([16 * 64], 1024, TARGET), move |model| {
        let mut x = model.tokens.forward(texts.clone()) + model.positions.forward(positions.clone());
        for block in &model.blocks {
            x = block.forward(x);
        }
        model.head.forward(model.norm.forward(x)).reshape([16 * 64, 1024])
    })
}
