//! Captured steps and compiled models on every backend.

use polygrad::nn::loss::cross_entropy;
use polygrad::nn::{BatchNorm2d, Conv2dConfig, Flatten, Linear, MaxPool2d, Module, ReLU, Sequential, TrainStep};
use polygrad::optim::Adam;
use polygrad::prelude::*;

use crate::devices;

type Loss = fn(&Sequential, &[Tensor]) -> Result<Tensor>;

fn train_step(device: &Device) -> Result<TrainStep<Sequential, Adam, Loss>> {
    polygrad::manual_seed(3);
    let model = Sequential::new()
        .push(Linear::new(8, 16, device)?)
        .push(ReLU)
        .push(Linear::new(16, 4, device)?);
    let optimizer = Adam::new(model.parameters(), 1e-2)?;
    Ok(TrainStep::new(
        model,
        optimizer,
        |model: &Sequential, batch: &[Tensor]| cross_entropy(&model.forward(&batch[0])?, &batch[1]),
    ))
}

#[test]
fn a_replay_follows_the_step_as_written() {
    for (name, device) in devices().unwrap() {
        let mut plain = train_step(&device).unwrap();
        let mut captured = train_step(&device).unwrap().captured();
        for i in 0..6 {
            polygrad::manual_seed(i);
            let batch = [
                Tensor::randn([8, 8], &device).unwrap(),
                Tensor::randint(0, 4, [8], &device).unwrap(),
            ];
            let expected = plain.step(&batch).unwrap().item().unwrap();
            let loss = captured.step(&batch).unwrap().item().unwrap();
            assert!(
                (loss - expected).abs() <= 1e-5 * expected,
                "{name}, step {i}: {loss} for {expected}"
            );
        }
        assert_eq!(captured.refusal(), None, "{name}");
        assert!(captured.is_ready(), "{name}");
    }
}

/// Two convolutions, the second with a residual.
#[derive(Module)]
struct Block {
    body: Sequential,
    second: Sequential,
    head: Sequential,
}

impl Forward for Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.body.forward(x)?;
        let z = (&self.second.forward(&y)? + &y)?.relu()?;
        self.head.forward(&z)
    }
}

#[test]
fn a_compiled_model_follows_the_model_as_written() {
    for (name, device) in devices().unwrap() {
        polygrad::manual_seed(5);
        let conv = |from, to| Conv2dConfig::new(from, to, 3).padding(1).build(&device).unwrap();
        let norm = || BatchNorm2d::new(4, &device).unwrap();
        let model = Block {
            body: Sequential::new()
                .push(conv(2, 4))
                .push(norm())
                .push(ReLU)
                .push(MaxPool2d::new(2)),
            second: Sequential::new().push(conv(4, 4)).push(norm()),
            head: Sequential::new()
                .push(Flatten::default())
                .push(Linear::new(64, 3, &device).unwrap())
                .push(ReLU),
        };
        let x = Tensor::randn([2, 2, 8, 8], &device).unwrap();
        model.train();
        model.forward(&x).unwrap();
        model.eval();
        let expected = no_grad(|| model.forward(&x)).unwrap().to_f64_vec().unwrap();
        let compiled = model.compile(&x).unwrap();
        let names = ["conv", "max_pool", "conv", "reshape", "linear"];
        assert_eq!(compiled.ops(), names, "{name}");
        for _ in 0..2 {
            let found = compiled.forward(&x).unwrap().to_f64_vec().unwrap();
            for (found, expected) in found.iter().zip(&expected) {
                assert!((found - expected).abs() <= 1e-4, "{name}: {found} for {expected}");
            }
        }
    }
}
