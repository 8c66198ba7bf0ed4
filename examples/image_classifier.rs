//! Trains a small CNN on Fashion-MNIST, with the loop in plain sight: `cargo run --release --example image_classifier [EPOCHS]`.
//!
//! Everything is generic over the backend. `main` takes the native CPU at compile time; `Device::new("…")` would choose at run time.

#[path = "support/fashion_mnist.rs"]
mod fashion_mnist;

use fashion_mnist::load;
use polygrad::nn::{Conv2d, Flatten, Linear, MaxPool2d, ReLU, Sequential, loss::CrossEntropyLoss};
use polygrad::optim::Adam;
use polygrad::prelude::*;

fn model<B: Backend>(device: &Device<B>) -> Result<Sequential<B>> {
    Ok(Sequential::new()
        .push(Conv2d::new(1, 16, 3, device)?)
        .push(ReLU)
        .push(MaxPool2d::new(2))
        .push(Conv2d::new(16, 32, 3, device)?)
        .push(ReLU)
        .push(MaxPool2d::new(2))
        .push(Flatten::default())
        .push(Linear::new(32 * 5 * 5, 10, device)?))
}

fn train<B: Backend>(device: &Device<B>, epochs: usize) -> Result<()> {
    polygrad::manual_seed(0);
    let (images, labels) = load("train", device)?;
    let (test_images, test_labels) = load("t10k", device)?;
    let (count, batch) = (labels.numel(), 64);
    let model = model(device)?;
    let mut optimizer = Adam::new(model.parameters(), 2e-3)?;
    let loss_function = CrossEntropyLoss::default();
    for epoch in 1..=epochs {
        model.train();
        let order = Tensor::randperm(count, device)?;
        let mut total = 0.0;
        for start in (0..count).step_by(batch) {
            let picked = order.narrow(0, start, batch.min(count - start))?;
            let logits = model.forward(&images.index_select(0, &picked)?)?;
            let loss = loss_function.forward(&logits, &labels.index_select(0, &picked)?)?;
            total += optimizer.backward_step(loss)? * picked.numel() as f64;
        }
        model.eval();
        let right = no_grad(|| accuracy(&model, &test_images, &test_labels))?;
        println!(
            "epoch {epoch}  loss {:.4}  test accuracy {:.2} %",
            total / count as f64,
            100.0 * right
        );
    }
    Ok(())
}

fn accuracy<B: Backend>(model: &Sequential<B>, images: &Tensor<B>, labels: &Tensor<B>) -> Result<f64> {
    let mut right = 0.0;
    for (images, labels) in images.split(500, 0)?.iter().zip(labels.split(500, 0)?) {
        let answers = model.forward(images)?.argmax(1)?;
        right += answers.eq(&labels)?.sum_all()?.item()?;
    }
    Ok(right / labels.numel() as f64)
}

fn main() -> Result<()> {
    let epochs = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(3);
    train(&Device::<Cpu>::default(), epochs)
}
