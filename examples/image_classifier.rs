//! Trains a small CNN on Fashion-MNIST, with an explicit training loop: `cargo run --release --example image_classifier
//! [EPOCHS [DEVICE]]`.
//!
//! On another device: `… image_classifier 3 candle`, built with `--features candle`.

#[path = "support/fashion_mnist.rs"]
mod fashion_mnist;

use fashion_mnist::load;
use polygrad::nn::{Conv2d, Linear, loss::CrossEntropyLoss};
use polygrad::optim::Adam;
use polygrad::prelude::*;

#[derive(Module)]
struct Cnn {
    conv1: Conv2d,
    conv2: Conv2d,
    fc: Linear,
}

impl Cnn {
    fn new(device: &Device) -> Result<Self> {
        Ok(Self {
            conv1: Conv2d::new(1, 16, 3, device)?,
            conv2: Conv2d::new(16, 32, 3, device)?,
            fc: Linear::new(32 * 5 * 5, 10, device)?,
        })
    }

    /// `[N, 1, 28, 28]` to `[N, 10]`.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.conv1.forward(x)?.relu()?.max_pool2d(2)?;
        let x = self.conv2.forward(&x)?.relu()?.max_pool2d(2)?;
        self.fc.forward(&x.flatten(1, -1)?)
    }
}

fn train(device: &Device, epochs: usize) -> Result<()> {
    polygrad::manual_seed(0);
    let (images, labels) = load("train", device)?;
    let (test_images, test_labels) = load("t10k", device)?;
    let (count, batch) = (labels.numel(), 64);
    let model = Cnn::new(device)?;
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

fn accuracy(model: &Cnn, images: &Tensor, labels: &Tensor) -> Result<f64> {
    let mut right = 0.0;
    for (images, labels) in images.split(500, 0)?.iter().zip(labels.split(500, 0)?) {
        let answers = model.forward(images)?.argmax(1)?;
        right += answers.eq(&labels)?.sum_all()?.item()?;
    }
    Ok(right / labels.numel() as f64)
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let epochs = args.next().and_then(|n| n.parse().ok()).unwrap_or(3);
    train(&Device::new(args.next().as_deref().unwrap_or("cpu"))?, epochs)
}
