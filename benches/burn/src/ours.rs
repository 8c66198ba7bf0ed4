//! Polygrad's side.

use polygrad_burn::Burn;
use polygrad_nn::loss::cross_entropy;
use polygrad_nn::{
    Adam, AdamConfig, Conv2dConfig, Embedding, Flatten, LayerNorm, Linear, MaxPool2d, Module, Optimizer, ReLU, SGD,
    Sequential,
};
use polygrad_tensor::{Device, Result, Tensor};

use crate::{Data, Optim, RATE, Step};

type T = Tensor<Burn>;

/// The values of all parameters, in order.
fn weights(model: &impl Module<Burn>) -> Vec<Vec<f32>> {
    model
        .parameters()
        .iter()
        .map(|p| p.tensor().to_vec::<f32>().unwrap())
        .collect()
}

fn sequential(model: Sequential<Burn>, x: T, optim: Optim, data: &Data) -> (Step, Vec<Vec<f32>>) {
    let weights = weights(&model);
    let targets = T::from_vec(data.targets.clone(), [data.targets.len()], &Device::default()).unwrap();
    let params = model.parameters();
    let mut optimizer: Box<dyn Optimizer<Burn>> = match optim {
        Optim::Sgd => Box::new(SGD::new(params, RATE).unwrap()),
        _ => Box::new(Adam::new(params, RATE).unwrap()),
    };
    let run = Box::new(move || {
        let loss = cross_entropy(&model.forward(&x).unwrap(), &targets).unwrap();
        let gradients = loss.backward().unwrap();
        optimizer.step(&gradients).unwrap();
        loss.item().unwrap()
    });
    (run, weights)
}

pub fn mlp(sizes: &[usize], batch: usize, data: &Data, optim: Optim) -> (Step, Vec<Vec<f32>>) {
    let device = Device::default();
    let mut model = Sequential::new();
    for (i, pair) in sizes.windows(2).enumerate() {
        if i > 0 {
            model = model.push(ReLU);
        }
        model = model.push(Linear::new(pair[0], pair[1], &device).unwrap());
    }
    let x = T::from_vec(data.x.clone(), [batch, sizes[0]], &device).unwrap();
    sequential(model, x, optim, data)
}

pub fn cnn(data: &Data) -> (Step, Vec<Vec<f32>>) {
    let device = Device::default();
    let conv = |from, to| Conv2dConfig::new(from, to, 3).padding(1).build(&device).unwrap();
    let model = Sequential::new()
        .push(conv(1, 32))
        .push(ReLU)
        .push(MaxPool2d::new(2))
        .push(conv(32, 64))
        .push(ReLU)
        .push(MaxPool2d::new(2))
        .push(Flatten::default())
        .push(Linear::new(3136, 128, &device).unwrap())
        .push(ReLU)
        .push(Linear::new(128, 10, &device).unwrap());
    let x = T::from_vec(data.x.clone(), [64, 1, 28, 28], &device).unwrap();
    sequential(model, x, Optim::Adam, data)
}

#[derive(Module)]
struct Block<B: polygrad_tensor::Backend> {
    norm1: LayerNorm<B>,
    qkv: Linear<B>,
    out: Linear<B>,
    norm2: LayerNorm<B>,
    up: Linear<B>,
    down: Linear<B>,
}

#[derive(Module)]
struct Gpt<B: polygrad_tensor::Backend> {
    tokens: Embedding<B>,
    positions: Embedding<B>,
    blocks: Vec<Block<B>>,
    norm: LayerNorm<B>,
    head: Linear<B>,
}

const WIDTH: usize = 128;
const HEADS: usize = 4;

impl Block<Burn> {
    fn new(device: &Device<Burn>) -> Result<Self> {
        Ok(Self {
            norm1: LayerNorm::new([WIDTH], device)?,
            qkv: Linear::new(WIDTH, 3 * WIDTH, device)?,
            out: Linear::new(WIDTH, WIDTH, device)?,
            norm2: LayerNorm::new([WIDTH], device)?,
            up: Linear::new(WIDTH, 4 * WIDTH, device)?,
            down: Linear::new(4 * WIDTH, WIDTH, device)?,
        })
    }

    fn forward(&self, x: &T) -> Result<T> {
        let dims = x.dims();
        let (batch, length) = (dims[0], dims[1]);
        let qkv = self.qkv.forward(&self.norm1.forward(x)?)?;
        let part = |i: usize| -> Result<T> {
            qkv.narrow(2, i * WIDTH, WIDTH)?
                .reshape([batch, length, HEADS, WIDTH / HEADS])?
                .transpose(1, 2)
        };
        let seen = part(0)?.scaled_dot_product_attention(&part(1)?, &part(2)?, None, true, None)?;
        let seen = seen.transpose(1, 2)?.reshape([batch, length, WIDTH])?;
        let x = (x + &self.out.forward(&seen)?)?;
        let inner = self.up.forward(&self.norm2.forward(&x)?)?.gelu()?;
        &x + &self.down.forward(&inner)?
    }
}

impl Gpt<Burn> {
    fn forward(&self, tokens: &T, positions: &T) -> Result<T> {
        let mut x = (self.tokens.forward(tokens)? + self.positions.forward(positions)?)?;
        for block in &self.blocks {
            x = block.forward(&x)?;
        }
        self.head.forward(&self.norm.forward(&x)?)?.reshape([16 * 64, 1024])
    }
}

pub fn gpt(data: &Data) -> (Step, Vec<Vec<f32>>) {
    let device = Device::default();
    let model = Gpt {
        tokens: Embedding::new(1024, WIDTH, &device).unwrap(),
        positions: Embedding::new(64, WIDTH, &device).unwrap(),
        blocks: (0..4).map(|_| Block::new(&device).unwrap()).collect(),
        norm: LayerNorm::new([WIDTH], &device).unwrap(),
        head: Linear::new(WIDTH, 1024, &device).unwrap(),
    };
    let weights = weights(&model);
    let tokens = T::from_vec(data.tokens.clone(), [16, 64], &device).unwrap();
    let positions = T::from_vec((0..64i64).collect::<Vec<_>>(), [1, 64], &device).unwrap();
    let targets = T::from_vec(data.targets.clone(), [data.targets.len()], &device).unwrap();
    let mut optimizer = AdamConfig::adamw(RATE)
        .weight_decay(0.01)
        .build(model.parameters())
        .unwrap();
    let run = Box::new(move || {
        let loss = cross_entropy(&model.forward(&tokens, &positions).unwrap(), &targets).unwrap();
        let gradients = loss.backward().unwrap();
        optimizer.step(&gradients).unwrap();
        loss.item().unwrap()
    });
    (run, weights)
}
