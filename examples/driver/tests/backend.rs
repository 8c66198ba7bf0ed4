//! The driver as a backend: a model trains on it.

use polygrad::backend::Registry;
use polygrad::compute::entry;
use polygrad::nn::loss::mse_loss;
use polygrad::nn::{Linear, ReLU, Sequential};
use polygrad::optim::Adam;
use polygrad::prelude::*;
use polygrad_toy_driver::ToyDriver;

#[test]
fn a_model_learns_on_it() -> Result<()> {
    let entry = entry("a toy chip", |_spec| Ok(ToyDriver::default()), Vec::new);
    Registry::global().register(entry)?;
    let mut losses = Vec::new();
    for name in ["toy", "toy:fusion=off"] {
        polygrad::manual_seed(1);
        let device = Device::new(name)?;
        let x = Tensor::new([[0.0f32, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], &device)?;
        let y = Tensor::new([[0.0f32], [1.0], [1.0], [0.0]], &device)?;
        let model = Sequential::new()
            .push(Linear::new(2, 16, &device)?)
            .push(ReLU)
            .push(Linear::new(16, 1, &device)?);
        let mut optimizer = Adam::new(model.parameters(), 0.05)?;
        let mut last = f64::NAN;
        for _ in 0..200 {
            last = optimizer.backward_step(mse_loss(&model.forward(&x)?, &y)?)?;
        }
        assert!(last < 1e-3, "{name}: {last}");
        losses.push(last);
    }
    assert!((losses[0] - losses[1]).abs() <= 1e-6, "{losses:?}");
    Ok(())
}
