//! One training run over all available backends: five minibatches on each, then model and optimizer move to the next.
//!
//! `cargo run --release --example every_backend` uses the backends enabled by cargo features; add more with `--features
//! candle,burn,luminal` and so on. The losses form one curve, as if nothing had moved.

#[path = "support/fashion_mnist.rs"]
mod fashion_mnist;

use polygrad::backend::{Availability, Registry};
use polygrad::nn::{Flatten, Linear, ReLU, Sequential, loss::CrossEntropyLoss};
use polygrad::optim::Adam;
use polygrad::prelude::*;

const BATCH: usize = 64;
const STEPS: usize = 5;

/// The first device of each available backend.
fn devices() -> Result<Vec<(String, Device)>> {
    let mut devices = Vec::new();
    for entry in Registry::global().entries() {
        let found = entry.devices();
        let there = found.iter().find(|found| found.availability == Availability::Available);
        match (there, found.first().map(|found| &found.availability)) {
            (Some(info), _) => devices.push((info.spec.clone(), Device::new(&info.spec)?)),
            (None, Some(Availability::Unavailable(reason))) => println!("{}: not available: {reason}", entry.name()),
            (None, _) => println!("{}: no device found", entry.name()),
        }
    }
    Ok(devices)
}

fn main() -> Result<()> {
    let devices = devices()?;
    let Some((_, first)) = devices.first() else {
        println!("no backend is built in: try --features cpu");
        return Ok(());
    };
    polygrad::manual_seed(0);
    let (images, labels) = fashion_mnist::load("train", first)?;
    let model = Sequential::new()
        .push(Flatten::default())
        .push(Linear::new(784, 128, first)?)
        .push(ReLU)
        .push(Linear::new(128, 10, first)?);
    let mut optimizer = Adam::new(model.parameters(), 1e-3)?;
    let loss_function = CrossEntropyLoss::default();
    let mut batch = 0;
    for (name, device) in &devices {
        // The optimizer's state follows its parameters.
        model.to_device(device)?;
        for _ in 0..STEPS {
            let images = images.narrow(0, batch * BATCH, BATCH)?.to_device(device)?;
            let labels = labels.narrow(0, batch * BATCH, BATCH)?.to_device(device)?;
            let loss = loss_function.forward(&model.forward(&images)?, &labels)?;
            let loss = optimizer.backward_step(loss)?;
            batch += 1;
            println!(
                "{name:<10} step {batch:>2}  loss {loss:.4}  {}",
                "#".repeat((20.0 * loss) as usize)
            );
        }
    }
    Ok(())
}
