//! Trainers in mixed precision do what the loop written out does.

use polygrad_core::Result;
use polygrad_data::{DataLoader, DataLoaderConfig};
use polygrad_nn::optim::{Adam, GradScaler, clip_grad_norm};
use polygrad_nn::{Linear, Module, ReLU, Sequential, loss::cross_entropy};
use polygrad_tensor::{DType, Device, Tensor, autocast, manual_seed};
use polygrad_train::{Control, Ended, Event, Progress, Run, Trainer, TrainerConfig};
use tempfile::tempdir;

type Batch = (Tensor, Tensor);

fn device() -> Device {
    Device::<polygrad_cpu::Cpu>::default().into_any()
}

fn loader() -> DataLoader<Batch> {
    let points: Vec<([f32; 2], usize)> = (0..96)
        .map(|i| {
            (
                [(i * 37 % 101) as f32 / 50.0 - 1.0, (i * 53 % 97) as f32 / 48.0 - 1.0],
                i % 2,
            )
        })
        .collect();
    let config = DataLoaderConfig::new(points).batch_size(16).shuffle(5);
    config.build(&device()).unwrap()
}

fn model() -> Sequential {
    manual_seed(3);
    Sequential::new()
        .push(Linear::new(2, 16, &device()).unwrap())
        .push(ReLU)
        .push(Linear::new(16, 2, &device()).unwrap())
}

/// A loss whose gradients, times the first scale, are too large for f16.
fn loss(model: &Sequential, (x, y): &Batch) -> Result<Tensor> {
    cross_entropy(&model.forward(x)?, y)?.mul(100.0)
}

fn weights(model: &Sequential) -> Vec<Vec<f32>> {
    let values = model.parameters();
    values.iter().map(|p| p.tensor().to_vec::<f32>().unwrap()).collect()
}

/// The loop written out, and how many of its steps were left out.
fn written_out(dtype: DType, epochs: usize) -> (Vec<Vec<f32>>, usize) {
    let model = model();
    let mut optimizer = Adam::new(model.parameters(), 0.01).unwrap();
    let mut scaler = GradScaler::new();
    let (loader, mut left_out) = (loader(), 0);
    for _ in 0..epochs {
        for batch in &loader {
            let batch = batch.unwrap();
            let loss = autocast(dtype, || loss(&model, &batch)).unwrap();
            if dtype == DType::BF16 {
                let mut gradients = loss.backward().unwrap();
                clip_grad_norm(&mut gradients, 1.0).unwrap();
                polygrad_nn::optim::Optimizer::step(&mut optimizer, &gradients).unwrap();
                continue;
            }
            let mut gradients = scaler.scale(loss).unwrap().backward().unwrap();
            if scaler.unscale(&mut gradients).unwrap() {
                clip_grad_norm(&mut gradients, 1.0).unwrap();
            }
            left_out += usize::from(!scaler.step(&mut optimizer, gradients).unwrap());
            scaler.update().unwrap();
        }
    }
    (weights(&model), left_out)
}

fn trainer(config: TrainerConfig, captured: bool) -> Trainer<Sequential, Batch> {
    let model = model();
    let optimizer = Adam::new(model.parameters(), 0.01).unwrap();
    match captured {
        true => config.build_captured(model, optimizer, loss),
        false => config.build(model, optimizer, loss),
    }
    .unwrap()
}

fn options(dtype: DType) -> TrainerConfig {
    TrainerConfig::epochs(4).autocast(dtype).clip_grad_norm(1.0)
}

#[test]
fn a_trainer_takes_the_steps_of_the_loop() {
    for dtype in [DType::BF16, DType::F16] {
        let (expected, left_out) = written_out(dtype, 4);
        assert_eq!(left_out > 0, dtype == DType::F16, "{left_out} steps were left out");
        for captured in [false, true] {
            let mut trainer = trainer(options(dtype), captured);
            let summary = trainer.fit(&loader(), Some(&loader())).unwrap();
            assert_eq!((summary.steps, summary.ended), (24, Ended::Done));
            assert_eq!(weights(trainer.model()), expected, "{dtype}, captured: {captured}");
            let evaluated = autocast(dtype, || trainer.evaluate(&loader())).unwrap();
            assert_eq!(summary.evaluation.unwrap().loss, evaluated.0);
        }
    }
}

#[test]
fn the_scale_goes_on_with_the_run() {
    let folder = tempdir().unwrap();
    for session in 1..=4 {
        let run = Run::open(folder.path()).unwrap();
        let mut left = 6;
        let stop = move |event: Event<'_>, _: &Progress<'_>| {
            left -= u64::from(matches!(event, Event::Step));
            Ok(if left == 0 { Control::Stop } else { Control::Continue })
        };
        let mut trainer = trainer(options(DType::F16).run(run).callback(stop), session % 2 == 0);
        trainer.fit(&loader(), None).unwrap();
        if session == 4 {
            assert_eq!(weights(trainer.model()), written_out(DType::F16, 4).0);
        }
    }
}

#[test]
fn a_dtype_that_is_none_for_products_is_refused() {
    let mut trainer = trainer(options(DType::I64), false);
    let error = trainer.fit(&loader(), None).unwrap_err().to_string();
    assert!(error.contains("products cannot be cast to i64"), "{error}");
}
