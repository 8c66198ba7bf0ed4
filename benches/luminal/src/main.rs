//! Times of training steps on luminal. It has no gradients of its own, so that there is nothing to compare them with.

use std::time::{Duration, Instant};

use polygrad_core::Backend;
use polygrad_luminal::{Luminal, LuminalDevice};
use polygrad_nn::loss::cross_entropy;
use polygrad_nn::{Adam, Conv2dConfig, Flatten, Linear, MaxPool2d, Module, Optimizer, ReLU, Sequential};
use polygrad_tensor::{DType, Device, Result, Tensor};

type Model = Sequential<Luminal>;

fn mlp(sizes: &[usize], device: &Device<Luminal>) -> Result<Model> {
    let mut model = Sequential::new();
    for (i, pair) in sizes.windows(2).enumerate() {
        if i > 0 {
            model = model.push(ReLU);
        }
        model = model.push(Linear::new(pair[0], pair[1], device)?);
    }
    Ok(model)
}

fn cnn(device: &Device<Luminal>) -> Result<Model> {
    Ok(Sequential::new()
        .push(Conv2dConfig::new(1, 32, 3).padding(1).build(device)?)
        .push(ReLU)
        .push(MaxPool2d::new(2))
        .push(Conv2dConfig::new(32, 64, 3).padding(1).build(device)?)
        .push(ReLU)
        .push(MaxPool2d::new(2))
        .push(Flatten::default())
        .push(Linear::new(3136, 128, device)?)
        .push(ReLU)
        .push(Linear::new(128, 10, device)?))
}

fn time(name: &str, model: &Model, input: &[usize], classes: i64) -> Result<()> {
    let device = Device::<Luminal>::default();
    let x = Tensor::randn(input, &device)?;
    let numbers: Vec<i64> = (0..input[0] as i64).map(|i| i % classes).collect();
    let target = Tensor::from_slice(&numbers, [input[0]], &device)?.to_dtype(DType::I64)?;
    let mut optimizer = Adam::new(model.parameters(), 1e-3)?;
    let mut step = || -> Result<f64> {
        let loss = cross_entropy(&model.forward(&x)?, &target)?;
        optimizer.step(&loss.backward()?)?;
        Luminal::synchronize(&LuminalDevice)?;
        loss.item()
    };
    let first = step()?;
    let (start, mut times, mut last) = (Instant::now(), Vec::new(), first);
    while times.len() < 5 || (times.len() < 100 && start.elapsed() < Duration::from_secs(4)) {
        let begun = Instant::now();
        last = step()?;
        times.push(begun.elapsed());
    }
    times.sort();
    println!(
        "{name:10} median {:9.2} ms  minimum {:9.2} ms  {} steps  loss {first:.4} to {last:.4}",
        times[times.len() / 2].as_secs_f64() * 1e3,
        times[0].as_secs_f64() * 1e3,
        times.len()
    );
    Ok(())
}

fn main() -> Result<()> {
    let device = Device::<Luminal>::default();
    time("mlp-rl", &mlp(&[4, 64, 64, 2], &device)?, &[32, 4], 2)?;
    time("mlp-small", &mlp(&[784, 128, 10], &device)?, &[64, 784], 10)?;
    time("mlp-big", &mlp(&[784, 512, 512, 10], &device)?, &[128, 784], 10)?;
    time("cnn", &cnn(&device)?, &[64, 1, 28, 28], 10)
}
