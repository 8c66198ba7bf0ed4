//! The same weights and batches give the same losses on every backend.

use polygrad::nn::loss::cross_entropy;
use polygrad::nn::{Conv2d, Flatten, Linear, MaxPool2d, ReLU, Sequential, StateDict};
use polygrad::optim::{Adam, Optimizer, SGD};
use polygrad::prelude::*;

use crate::devices;

const STEPS: usize = 100;
const BATCH: usize = 8;

/// A model, its optimizer and its batches, with the same numbers on every device.
struct Run {
    build: fn(&Device) -> Result<Sequential>,
    optimizer: fn(&Sequential) -> Result<Box<dyn Optimizer>>,
    /// Number of different batches, which are repeated in turn.
    batches: usize,
}

impl Run {
    /// The loss of each step, from the weights `start`.
    fn losses(&self, start: &StateDict, device: &Device) -> Result<Vec<f64>> {
        let model = (self.build)(device)?;
        model.load_state_dict(start, true)?;
        let mut optimizer = (self.optimizer)(&model)?;
        polygrad::manual_seed(5);
        let batches = (0..self.batches).map(|_| batch(device)).collect::<Result<Vec<_>>>()?;
        let step = |(x, target): &(Tensor, Tensor)| optimizer.backward_step(cross_entropy(&model.forward(x)?, target)?);
        batches.iter().cycle().take(STEPS).map(step).collect()
    }

    /// All devices follow the first one's losses to within `tolerance`, relative.
    fn agrees(&self, tolerance: f64) {
        let devices = devices().unwrap();
        polygrad::manual_seed(4);
        let start = (self.build)(&devices[0].1).unwrap().state_dict().unwrap();
        let expected = self.losses(&start, &devices[0].1).unwrap();
        assert!(
            expected[STEPS - 1] < 0.9 * expected[0],
            "nothing was learned: {expected:?}"
        );
        for (name, device) in &devices[1..] {
            let losses = self.losses(&start, device).unwrap();
            let errors = losses
                .iter()
                .zip(&expected)
                .map(|(loss, right)| ((loss - right) / right).abs());
            let worst = errors.fold(0.0, f64::max);
            println!("{name}: losses differ by at most {worst:.1e}, relative");
            assert!(worst <= tolerance, "{name}: {worst}\n{losses:?}\n{expected:?}");
        }
    }
}

/// Noisy images of ten classes.
fn batch(device: &Device) -> Result<(Tensor, Tensor)> {
    let noise = Tensor::randn([BATCH, 1, 28, 28], device)?;
    let target = Tensor::randint(0, 10, [BATCH], device)?;
    let shade = target.to_dtype(DType::F32)?.reshape([BATCH, 1, 1, 1])?;
    Ok((((noise * 0.3)? + (shade * 0.1)?)?, target))
}

fn mlp(device: &Device) -> Result<Sequential> {
    Ok(Sequential::new()
        .push(Flatten::default())
        .push(Linear::new(784, 128, device)?)
        .push(ReLU)
        .push(Linear::new(128, 10, device)?))
}

fn cnn(device: &Device) -> Result<Sequential> {
    Ok(Sequential::new()
        .push(Conv2d::new(1, 8, 3, device)?)
        .push(ReLU)
        .push(MaxPool2d::new(2))
        .push(Conv2d::new(8, 16, 3, device)?)
        .push(ReLU)
        .push(MaxPool2d::new(2))
        .push(Flatten::default())
        .push(Linear::new(400, 10, device)?))
}

#[test]
fn an_mlp_with_sgd() {
    let run = Run {
        build: mlp,
        optimizer: |model| Ok(Box::new(SGD::new(model.parameters(), 0.02)?)),
        batches: 5,
    };
    run.agrees(1e-4);
}

#[test]
fn an_mlp_with_adam() {
    let run = Run {
        build: mlp,
        optimizer: |model| Ok(Box::new(Adam::new(model.parameters(), 1e-4)?)),
        batches: 5,
    };
    run.agrees(1e-4);
}

#[test]
fn a_cnn_with_adam() {
    let run = Run {
        build: cnn,
        optimizer: |model| Ok(Box::new(Adam::new(model.parameters(), 1e-3)?)),
        batches: 5,
    };
    run.agrees(1e-3);
}
