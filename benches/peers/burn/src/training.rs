//! Weights, data and optimizers.

use burn::module::{Module, Param};
use burn_nn::conv::{Conv2d, Conv2dConfig};
use burn_nn::loss::CrossEntropyLossConfig;
use burn_nn::{BatchNorm, BatchNormConfig, Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig};
use burn_nn::{Linear, LinearConfig, PaddingConfig2d};
use burn_optim::momentum::MomentumConfig;
use burn_optim::{AdamConfig, AdamWConfig, GradientsParams, ModuleOptimizer, SgdConfig};
use burn_tensor::{Device, Int, Tensor, TensorData};
use polygrad_peer::Step;
use polygrad_peer::data::{INPUT, TARGET, classes, noise};

pub fn device() -> Device {
    Device::flex().autodiff()
}

/// Parameters in the order of all peers, on a device.
pub struct Weights {
    values: polygrad_peer::Weights,
    pub device: Device,
}

impl Weights {
    pub fn new(device: Device) -> Self {
        Self {
            values: polygrad_peer::Weights::default(),
            device,
        }
    }

    pub fn take<const D: usize>(&mut self, shape: [usize; D], scales: bool) -> Tensor<D> {
        let values = self.values.take(&shape, scales);
        Tensor::from_data(TensorData::new(values, shape), &self.device)
    }

    pub fn linear(&mut self, inputs: usize, outputs: usize) -> Linear {
        let weight = self.take([outputs, inputs], false);
        let bias = self.take([outputs], false);
        self.layer(weight, bias)
    }

    /// The other peers' layout is [out, in]; this copies it to Burn's own.
    pub fn layer(&self, weight: Tensor<2>, bias: Tensor<1>) -> Linear {
        let [outputs, inputs] = weight.dims();
        let mut layer = LinearConfig::new(inputs, outputs).init(&self.device);
        layer.weight = Param::from_tensor(Tensor::from_data(weight.transpose().into_data(), &self.device));
        layer.bias = Some(Param::from_tensor(Tensor::from_data(bias.into_data(), &self.device)));
        layer
    }

    pub fn conv(&mut self, inputs: usize, outputs: usize, size: usize, stride: usize, bias: bool) -> Conv2d {
        let padding = size / 2;
        let config = Conv2dConfig::new([inputs, outputs], [size, size])
            .with_stride([stride, stride])
            .with_padding(PaddingConfig2d::Explicit(padding, padding, padding, padding))
            .with_bias(bias);
        let mut layer = config.init(&self.device);
        layer.weight = Param::from_tensor(self.take([outputs, inputs, size, size], false));
        if bias {
            layer.bias = Some(Param::from_tensor(self.take([outputs], false)));
        }
        layer
    }

    pub fn batch_norm(&mut self, features: usize) -> BatchNorm {
        let mut layer = BatchNormConfig::new(features).init(&self.device);
        layer.gamma = Param::from_tensor(self.take([features], true));
        layer.beta = Param::from_tensor(self.take([features], false));
        layer
    }

    pub fn layer_norm(&mut self, features: usize) -> LayerNorm {
        let mut layer = LayerNormConfig::new(features).init(&self.device);
        layer.gamma = Param::from_tensor(self.take([features], true));
        layer.beta = Some(Param::from_tensor(self.take([features], false)));
        layer
    }

    pub fn embedding(&mut self, count: usize, features: usize) -> Embedding {
        let mut layer = EmbeddingConfig::new(count, features).init(&self.device);
        layer.weight = Param::from_tensor(self.take([count, features], false));
        layer
    }
}

pub fn input<const D: usize>(shape: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::from_data(TensorData::new(noise(shape.iter().product(), INPUT), shape), device)
}

pub fn tokens<const D: usize>(shape: [usize; D], of: usize, seed: u64) -> Tensor<D, Int> {
    let classes = classes(shape.iter().product(), of, seed);
    Tensor::from_data(TensorData::new(classes, shape), &device())
}

fn optimizer(name: &str) -> (ModuleOptimizer, f64) {
    let momentum = MomentumConfig::new().with_dampening(0.0);
    match name {
        "sgd" => (SgdConfig::new().init(), 0.01),
        "momentum" => (SgdConfig::new().with_momentum(Some(momentum)).init(), 0.01),
        "adam" => (AdamConfig::new().with_epsilon(1e-8).init(), 1e-3),
        _ => (
            AdamWConfig::new().with_epsilon(1e-8).with_weight_decay(0.01).init(),
            1e-3,
        ),
    }
}

/// Trains on one batch whose targets are `rows` classes out of `of`.
pub fn training<M: Module + 'static>(
    model: M,
    optim: &str,
    (rows, of): (usize, usize),
    logits: impl Fn(&M) -> Tensor<2> + 'static,
) -> Step {
    let targets = tokens([rows], of, TARGET);
    let mut model = Some(model);
    let (mut optimizer, rate) = optimizer(optim);
    let loss = CrossEntropyLossConfig::new().init(&device());
    Box::new(move || {
        let current = model.take().ok_or("an earlier step failed")?;
        let loss = loss.forward(logits(&current), targets.clone());
        let gradients = GradientsParams::from_grads(loss.backward(), &current);
        model = Some(optimizer.step(rate, current, gradients));
        Ok(Some(f64::from(loss.into_scalar::<f32>())))
    })
}
