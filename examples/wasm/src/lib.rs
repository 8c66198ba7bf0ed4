//! An MLP 784-128-10 that learns to distinguish patterns, in WebAssembly, with one function for the host, `train`.
//!
//! `cargo xtask check-wasm` builds it and runs it under Node.

use polygrad::nn::loss::cross_entropy;
use polygrad::nn::{Linear, ReLU, Sequential};
use polygrad::optim::Adam;
use polygrad::prelude::*;
use polygrad::{manual_seed, tensor::Distribution};

const BATCH: usize = 64;
const CLASSES: usize = 10;

/// Trains for `steps` steps and returns the last loss, or NaN if something failed.
#[unsafe(no_mangle)]
pub extern "C" fn train(steps: u32) -> f32 {
    run(steps).unwrap_or(f32::NAN)
}

fn run(steps: u32) -> Result<f32> {
    manual_seed(7);
    let device = Device::<Cpu>::default();
    let model = Sequential::new()
        .push(Linear::new(784, 128, &device)?)
        .push(ReLU)
        .push(Linear::new(128, CLASSES, &device)?);
    let mut optimizer = Adam::new(model.parameters(), 1e-3)?;
    let normal = Distribution::Normal { mean: 0.0, std: 1.0 };
    // Each class is a pattern, and each image is one of them with noise.
    let patterns = Tensor::random([CLASSES, 784], normal, (&device, DType::F32))?;
    let classes: Vec<i64> = (0..BATCH).map(|i| (i % CLASSES) as i64).collect();
    let classes = Tensor::from_vec(classes, BATCH, &device)?;
    let mut last = f32::NAN;
    for _ in 0..steps {
        let noise = Tensor::random([BATCH, 784], normal, &device)?;
        let images = (patterns.index_select(0, &classes)? + &noise)?;
        let loss = cross_entropy(&model.forward(&images)?, &classes)?;
        last = optimizer.backward_step(loss)? as f32;
    }
    Ok(last)
}
