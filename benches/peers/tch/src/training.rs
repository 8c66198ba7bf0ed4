//! Weights, data and optimizers.

use polygrad_peer::data::{INPUT, TARGET, classes, noise};
use polygrad_peer::{Result, Step, Weights};
use tch::nn::{self, OptimizerConfig, VarStore};
use tch::{Device, Reduction, Tensor};

/// A model's parameters in the order of all peers.
pub struct Params {
    weights: Weights,
    count: usize,
    pub store: VarStore,
}

/// A weight and a bias.
pub struct Layer(pub Tensor, pub Tensor);

impl Layer {
    pub fn linear(&self, x: &Tensor) -> Tensor {
        x.linear(&self.0, Some(&self.1))
    }
}

impl Params {
    pub fn new() -> Self {
        Self {
            weights: Weights::default(),
            count: 0,
            store: VarStore::new(Device::Cpu),
        }
    }

    pub fn take(&mut self, shape: &[usize], scales: bool) -> Tensor {
        self.count += 1;
        let value = tensor(&self.weights.take(shape, scales), shape);
        self.store.root().add(&format!("p{}", self.count), value, true)
    }

    pub fn linear(&mut self, inputs: usize, outputs: usize) -> Layer {
        Layer(self.take(&[outputs, inputs], false), self.take(&[outputs], false))
    }

    pub fn norm(&mut self, features: usize) -> Layer {
        Layer(self.take(&[features], true), self.take(&[features], false))
    }
}

pub fn tensor(values: &[f32], shape: &[usize]) -> Tensor {
    let shape: Vec<i64> = shape.iter().map(|&extent| extent as i64).collect();
    Tensor::from_slice(values).reshape(shape)
}

pub fn input(shape: &[usize]) -> Tensor {
    tensor(&noise(shape.iter().product(), INPUT), shape)
}

pub fn tokens(count: usize, of: usize, seed: u64) -> Tensor {
    Tensor::from_slice(&classes(count, of, seed))
}

/// Trains on one batch whose targets are `rows` classes out of `of`.
pub fn training(
    params: Params,
    optimizer: &str,
    x: Tensor,
    (rows, of): (usize, usize),
    forward: impl Fn(&Tensor) -> Tensor + 'static,
) -> Result<Step> {
    let store = params.store;
    let momentum = nn::Sgd {
        momentum: 0.9,
        ..nn::Sgd::default()
    };
    let mut optimizer = match optimizer {
        "sgd" => nn::Sgd::default().build(&store, 0.01),
        "momentum" => momentum.build(&store, 0.01),
        "adam" => nn::Adam::default().build(&store, 1e-3),
        _ => nn::AdamW::default().build(&store, 1e-3),
    }?;
    let target = tokens(rows, of, TARGET);
    Ok(Box::new(move || {
        let loss = forward(&x).cross_entropy_loss::<Tensor>(&target, None, Reduction::Mean, -100, 0.0);
        optimizer.backward_step(&loss);
        Ok(Some(loss.double_value(&[])))
    }))
}
