//! Captured steps on every backend.

use polygrad::nn::loss::cross_entropy;
use polygrad::nn::{Adam, Linear, Module, ReLU, Sequential, TrainStep};
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
