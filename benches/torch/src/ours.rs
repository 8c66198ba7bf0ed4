//! The workloads through Polygrad.

use polygrad_nn::{
    Adam, AdamW, Conv2d, Conv2dConfig, LayerNorm, Linear, LinearConfig, Module, Param, SGD, loss::cross_entropy,
};
use polygrad_tensor::{Activation, Backend, Device, PoolParams, Result, Tensor};
use polygrad_torch::Torch;

use crate::{Optimizer, Step};

type T = Tensor<Torch>;

/// Numbers between −1 and 1 that look random.
pub fn noise(count: usize) -> Vec<f32> {
    let mut state = 1u64;
    (0..count)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

/// Classes that look random.
pub fn classes(count: usize, of: i64) -> Vec<i64> {
    noise(count)
        .iter()
        .map(|x| ((x + 1.0) * 0.4999 * of as f32) as i64)
        .collect()
}

/// By which optimizer a workload is trained.
pub fn optimizer(name: &str) -> Optimizer {
    match name {
        "gpt" => Optimizer::AdamW,
        _ if name.ends_with("sgd") => Optimizer::Sgd,
        _ => Optimizer::Adam,
    }
}

/// A step of a workload, and its weights as they are before the first, by name.
pub fn step(name: &str, device: &Device<Torch>) -> Result<(Step, Vec<(String, Vec<usize>, Vec<f32>)>)> {
    match name.split(' ').next() {
        Some("mlp-rl") => train(
            name,
            mlp(&[4, 64, 64, 2], device)?,
            inputs(&[32, 4], device)?,
            (32, 2),
            forward_mlp,
            device,
        ),
        Some("mlp-big") => {
            let model = mlp(&[784, 512, 512, 10], device)?;
            train(
                name,
                model,
                inputs(&[128, 784], device)?,
                (128, 10),
                forward_mlp,
                device,
            )
        }
        Some("cnn") => train(
            name,
            Cnn::new(device)?,
            inputs(&[64, 1, 28, 28], device)?,
            (64, 10),
            Cnn::forward,
            device,
        ),
        _ => {
            let tokens = Tensor::from_vec(classes(16 * 64, 1024), [16, 64], device)?;
            train(name, Gpt::new(device)?, tokens, (16 * 64, 1024), Gpt::forward, device)
        }
    }
}

fn inputs(shape: &[usize], device: &Device<Torch>) -> Result<T> {
    Tensor::from_vec(noise(shape.iter().product()), shape, device)
}

fn train<M: Module<Torch> + 'static>(
    name: &str,
    model: M,
    x: T,
    (rows, of): (usize, i64),
    forward: fn(&M, &T) -> Result<T>,
    device: &Device<Torch>,
) -> Result<(Step, Vec<(String, Vec<usize>, Vec<f32>)>)> {
    let target = Tensor::from_vec(classes(rows, of), [rows], device)?;
    let weights = model
        .named_parameters()
        .into_iter()
        .map(|(name, param): (String, Param<Torch>)| {
            let value = param.tensor();
            Ok((name, value.dims(), value.to_vec::<f32>()?))
        })
        .collect::<Result<Vec<_>>>()?;
    let params = model.parameters();
    let step: Step = match optimizer(name) {
        Optimizer::Sgd => run(model, x, target, forward, SGD::new(params, 0.01)?),
        Optimizer::Adam => run(model, x, target, forward, Adam::new(params, 1e-3)?),
        Optimizer::AdamW => run(model, x, target, forward, AdamW::new(params, 1e-3)?),
    };
    Ok((step, weights))
}

fn run<M: Module<Torch> + 'static>(
    model: M,
    x: T,
    target: T,
    forward: fn(&M, &T) -> Result<T>,
    mut optimizer: impl polygrad_nn::Optimizer<Torch> + 'static,
) -> Step {
    Box::new(move || {
        let loss = cross_entropy(&forward(&model, &x)?, &target)?;
        let (gradients, value) = (loss.backward()?, loss.item()?);
        // The graph holds the parameters: without it they are updated in place.
        drop(loss);
        optimizer.step(&gradients)?;
        Ok(value)
    })
}

#[derive(Module)]
struct Mlp<B: Backend> {
    layers: Vec<Linear<B>>,
}

fn mlp<B: Backend>(sizes: &[usize], device: &Device<B>) -> Result<Mlp<B>> {
    let layers = sizes.windows(2).map(|pair| Linear::new(pair[0], pair[1], device));
    Ok(Mlp {
        layers: layers.collect::<Result<_>>()?,
    })
}

fn forward_mlp<B: Backend>(mlp: &Mlp<B>, x: &Tensor<B>) -> Result<Tensor<B>> {
    let mut x = x.clone();
    for (i, layer) in mlp.layers.iter().enumerate() {
        x = layer.forward(&x)?;
        if i + 1 < mlp.layers.len() {
            x = x.relu()?;
        }
    }
    Ok(x)
}

#[derive(Module)]
struct Cnn<B: Backend> {
    conv1: Conv2d<B>,
    conv2: Conv2d<B>,
    fc1: Linear<B>,
    fc2: Linear<B>,
}

impl<B: Backend> Cnn<B> {
    fn new(device: &Device<B>) -> Result<Self> {
        Ok(Self {
            conv1: Conv2dConfig::new(1, 32, 3).padding(1).build(device)?,
            conv2: Conv2dConfig::new(32, 64, 3).padding(1).build(device)?,
            fc1: Linear::new(3136, 128, device)?,
            fc2: Linear::new(128, 10, device)?,
        })
    }

    fn forward(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let pool = PoolParams::new([2, 2, 1]);
        let x = self.conv1.forward(x)?.relu()?.max_pool(&pool)?.0;
        let x = self.conv2.forward(&x)?.relu()?.max_pool(&pool)?.0;
        let x = self.fc1.forward(&x.flatten(1, -1)?)?.relu()?;
        self.fc2.forward(&x)
    }
}

#[derive(Module)]
struct Block<B: Backend> {
    ln1: LayerNorm<B>,
    qkv: Linear<B>,
    proj: Linear<B>,
    ln2: LayerNorm<B>,
    fc1: Linear<B>,
    fc2: Linear<B>,
}

impl<B: Backend> Block<B> {
    fn new(device: &Device<B>) -> Result<Self> {
        Ok(Self {
            ln1: LayerNorm::new([128], device)?,
            qkv: Linear::new(128, 384, device)?,
            proj: Linear::new(128, 128, device)?,
            ln2: LayerNorm::new([128], device)?,
            fc1: Linear::new(128, 512, device)?,
            fc2: Linear::new(512, 128, device)?,
        })
    }

    fn forward(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let qkv = self.qkv.forward(&self.ln1.forward(x)?)?.chunk(3, -1)?;
        let heads = |x: &Tensor<B>| x.reshape([16, 64, 4, 32])?.transpose(1, 2);
        let (q, k, v) = (heads(&qkv[0])?, heads(&qkv[1])?, heads(&qkv[2])?);
        let mixed = q.scaled_dot_product_attention(&k, &v, None, true, None)?;
        let mixed = mixed.transpose(1, 2)?.reshape([16, 64, 128])?;
        let x = x.add(&self.proj.forward(&mixed)?)?;
        let wide = self.fc1.forward(&self.ln2.forward(&x)?)?.activation(Activation::Gelu)?;
        x.add(&self.fc2.forward(&wide)?)
    }
}

#[derive(Module)]
struct Gpt<B: Backend> {
    tokens: Linear<B>,
    positions: Linear<B>,
    blocks: Vec<Block<B>>,
    ln: LayerNorm<B>,
    head: Linear<B>,
}

impl<B: Backend> Gpt<B> {
    fn new(device: &Device<B>) -> Result<Self> {
        Ok(Self {
            tokens: LinearConfig::new(128, 1024).bias(false).build(device)?,
            positions: LinearConfig::new(128, 64).bias(false).build(device)?,
            blocks: (0..4).map(|_| Block::new(device)).collect::<Result<_>>()?,
            ln: LayerNorm::new([128], device)?,
            head: Linear::new(128, 1024, device)?,
        })
    }

    fn forward(&self, tokens: &Tensor<B>) -> Result<Tensor<B>> {
        let mut x = tokens.embedding(&self.tokens.weight.tensor(), None)?;
        x = x.add(&self.positions.weight.tensor())?;
        for block in &self.blocks {
            x = block.forward(&x)?;
        }
        self.head.forward(&self.ln.forward(&x)?)?.reshape([16 * 64, 1024])
    }
}
