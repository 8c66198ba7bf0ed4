//! Some steps of an MLP 784-128-10 on 64 images of noise.

use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Distribution, Int, Tensor};

#[derive(Module, Debug)]
struct Mlp {
    fc1: Linear,
    fc2: Linear,
}

fn main() {
    let device = Device::flex().autodiff();
    let mut model = Mlp {
        fc1: LinearConfig::new(784, 128).init(&device),
        fc2: LinearConfig::new(128, 10).init(&device),
    };
    let mut optimizer = AdamConfig::new().init();
    let criterion = CrossEntropyLossConfig::new().init(&device);
    let x: Tensor<2> = Tensor::random([64, 784], Distribution::Normal(0.0, 1.0), &device);
    let target: Vec<i64> = (0..64).map(|i| i % 10).collect();
    let target: Tensor<1, Int> = Tensor::from_data(target.as_slice(), &device);
    for step in 0..20 {
        let logits = model.fc2.forward(relu(model.fc1.forward(x.clone())));
        let loss = criterion.forward(logits, target.clone());
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(1e-3, model, gradients);
        println!("{step} {:.4}", loss.into_scalar::<f32>());
    }
}
