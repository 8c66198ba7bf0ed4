//! The workloads in tch, with LibTorch's own autograd and optimizers.

use std::collections::HashMap;

use polygrad_torch::tch::nn::{self, OptimizerConfig};
use polygrad_torch::tch::{Device, Reduction, Tensor};

use polygrad_workloads::data::{INPUT, TARGET, classes, noise};
use polygrad_workloads::{Step, Weight};

type Weights = HashMap<String, Tensor>;

/// A step of a workload from given weights.
pub fn step(name: &str, weights: Vec<Weight>) -> Step {
    let store = nn::VarStore::new(Device::Cpu);
    let mut named = Weights::new();
    for (name, shape, values) in weights {
        let shape: Vec<i64> = shape.iter().map(|&dim| dim as i64).collect();
        let value = Tensor::from_slice(&values).reshape(shape);
        let tensor = store.root().add(&name.replace('.', "_"), value, true);
        named.insert(name, tensor);
    }
    let mut optimizer = match name {
        "gpt" => nn::AdamW::default().build(&store, 1e-3),
        _ if name.ends_with("sgd") => nn::Sgd::default().build(&store, 0.01),
        _ => nn::Adam::default().build(&store, 1e-3),
    }
    .expect("an optimizer");
    let of = |shape: &[i64]| Tensor::from_slice(&noise(shape.iter().product::<i64>() as usize, INPUT)).reshape(shape);
    let (x, rows, out): (Tensor, usize, usize) = match name.split(' ').next() {
        Some("mlp-rl") => (of(&[32, 4]), 32, 2),
        Some("mlp-big") => (of(&[128, 784]), 128, 10),
        Some("cnn") => (of(&[64, 1, 28, 28]), 64, 10),
        _ => (
            Tensor::from_slice(&classes(16 * 64, 1024, INPUT)).reshape([16, 64]),
            16 * 64,
            1024,
        ),
    };
    let target = Tensor::from_slice(&classes(rows, out, TARGET));
    let forward = match name.split(' ').next() {
        Some("cnn") => cnn,
        Some("gpt") => gpt,
        _ => mlp,
    };
    Box::new(move || {
        let logits = forward(&named, &x);
        let loss = logits.cross_entropy_loss::<Tensor>(&target, None, Reduction::Mean, -100, 0.0);
        let value = loss.double_value(&[]);
        optimizer.backward_step(&loss);
        Ok(Some(value))
    })
}

fn linear(w: &Weights, name: &str, x: &Tensor) -> Tensor {
    x.linear(&w[&format!("{name}.weight")], Some(&w[&format!("{name}.bias")]))
}

fn mlp(w: &Weights, x: &Tensor) -> Tensor {
    let x = linear(w, "0", x).relu();
    let x = linear(w, "2", &x).relu();
    linear(w, "4", &x)
}

fn cnn(w: &Weights, x: &Tensor) -> Tensor {
    let conv = |name: &str, x: &Tensor| {
        let (weight, bias) = (&w[&format!("{name}.weight")], &w[&format!("{name}.bias")]);
        let x = x.conv2d(weight, Some(bias), [1, 1], [1, 1], [1, 1], 1).relu();
        x.max_pool2d([2, 2], [2, 2], [0, 0], [1, 1], false)
    };
    let x = conv("3", &conv("0", x)).flatten(1, -1);
    linear(w, "9", &linear(w, "7", &x).relu())
}

fn norm(w: &Weights, name: &str, x: &Tensor) -> Tensor {
    let (weight, bias) = (&w[&format!("{name}.weight")], &w[&format!("{name}.bias")]);
    x.layer_norm([128], Some(weight), Some(bias), 1e-5, false)
}

fn gpt(w: &Weights, tokens: &Tensor) -> Tensor {
    let mut x = Tensor::embedding(&w["tokens.weight"], tokens, -1, false, false) + &w["positions"];
    for i in 0..4 {
        let name = |part: &str| format!("blocks.{i}.{part}");
        let qkv = linear(w, &name("qkv"), &norm(w, &name("ln1"), &x)).chunk(3, -1);
        let heads = |x: &Tensor| x.reshape([16, 64, 4, 32]).transpose(1, 2);
        let (q, k, v) = (heads(&qkv[0]), heads(&qkv[1]), heads(&qkv[2]));
        let mixed = Tensor::scaled_dot_product_attention::<Tensor>(&q, &k, &v, None, 0.0, true, None, false);
        let mixed = mixed.transpose(1, 2).reshape([16, 64, 128]);
        x = &x + linear(w, &name("proj"), &mixed);
        let wide = linear(w, &name("fc1"), &norm(w, &name("ln2"), &x)).gelu("none");
        x = &x + linear(w, &name("fc2"), &wide);
    }
    let x = linear(w, "head", &norm(w, "ln", &x));
    x.reshape([16 * 64, 1024])
}
