//! Some steps of an MLP 784-128-10 on 64 images of noise.

use polygrad::nn::{Linear, ReLU, Sequential, loss::cross_entropy};
use polygrad::optim::Adam;
use polygrad::prelude::*;

fn main() -> Result<()> {
    let device = Device::new("cpu")?;
    let model = Sequential::new()
        .push(Linear::new(784, 128, &device)?)
        .push(ReLU)
        .push(Linear::new(128, 10, &device)?);
    let mut optimizer = Adam::new(model.parameters(), 1e-3)?;
    let x = Tensor::randn([64, 784], &device)?;
    let target = Tensor::from_vec((0..64i64).map(|i| i % 10).collect(), [64], &device)?;
    for step in 0..20 {
        let loss = optimizer.backward_step(cross_entropy(&model.forward(&x)?, &target)?)?;
        println!("{step} {loss:.4}");
    }
    Ok(())
}
