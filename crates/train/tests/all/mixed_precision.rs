//! Trainers in mixed precision do the same as a handwritten loop.

use std::sync::Arc;
use std::time::Duration;

use polygrad_core::Result;
use polygrad_core::communicator::Communicator;
use polygrad_data::{DataLoader, DataLoaderConfig};
use polygrad_nn::loss::{cross_entropy, mse_loss};
use polygrad_nn::optim::{Adam, GradScaler, SGD, clip_grad_norm};
use polygrad_nn::{Linear, LinearConfig, Module, ReLU, Sequential};
use polygrad_tensor::{DType, Device, Tensor, autocast, manual_seed};
use polygrad_threads::Threads;
use polygrad_train::{Control, Ended, Event, NonFiniteLoss, Progress, Run, Summary, Trainer, TrainerConfig};
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

/// A loss whose gradients, times the initial scale, overflow f16.
fn loss(model: &Sequential, (x, y): &Batch) -> Result<Tensor> {
    cross_entropy(&model.forward(x)?, y)?.mul(100.0)
}

fn weights(model: &Sequential) -> Vec<Vec<f32>> {
    let values = model.parameters();
    values.iter().map(|p| p.tensor().to_vec::<f32>().unwrap()).collect()
}

/// A handwritten loop; also returns the number of skipped steps.
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

/// The product of two of these overflows f16 in the forward pass.
const LARGE: f32 = 60_000.0;

/// Trains `w = 2` to give 1.75 for each of these numbers; returns the weight and the losses of all rows.
fn fitted(config: TrainerConfig, inputs: &[f32], size: usize, captured: bool) -> Result<(Summary, f64, Vec<f64>)> {
    let model = LinearConfig::new(1, 1).bias(false).build(&device())?;
    model.weight.set(&Tensor::full([1, 1], 2.0, &device())?)?;
    let optimizer = SGD::new(model.parameters(), 0.1)?;
    let loss = |model: &Linear, (x, y): &Batch| mse_loss(&model.forward(x)?, y);
    let mut trainer = match captured {
        true => config.build_captured(model, optimizer, loss),
        false => config.build(model, optimizer, loss),
    }?;
    let data: Vec<([f32; 1], [f32; 1])> = inputs.iter().map(|x| ([*x], [1.75])).collect();
    let loader = DataLoaderConfig::new(data).batch_size(size).build(&device())?;
    let summary = trainer.fit(&loader, None)?;
    let losses = trainer.history().iter().map(|row| row.loss).collect();
    let weight = trainer.model().weight.tensor().item()?;
    Ok((summary, weight, losses))
}

#[test]
fn a_forward_pass_that_overflows_in_f16_leaves_its_step_out() {
    let options = || TrainerConfig::epochs(2).autocast(DType::F16).log_every(3);
    for captured in [false, true] {
        let (_, expected, _) = fitted(options(), &[1.0, 1.0], 1, captured).unwrap();
        let (summary, weight, losses) = fitted(options(), &[1.0, LARGE, 1.0], 1, captured).unwrap();
        assert_eq!((summary.steps, summary.ended), (6, Ended::Done));
        assert_eq!(weight, expected);
        assert!(losses.iter().all(|loss| loss.is_finite()), "{losses:?}");
        // A step of several batches is skipped as a whole.
        let config = options().accumulate(2);
        let (summary, weight, _) = fitted(config, &[1.0, LARGE, 1.0, 1.0], 1, captured).unwrap();
        let (_, expected, _) = fitted(options().accumulate(2), &[1.0, 1.0], 1, captured).unwrap();
        assert_eq!((summary.steps, weight), (4, expected));
    }
}

#[test]
fn ranks_leave_a_step_out_together() {
    let ends = Threads::group(2, Duration::from_secs(20)).unwrap();
    let weights: Vec<f64> = std::thread::scope(|scope| {
        let started: Vec<_> = ends
            .into_iter()
            .map(|end| {
                scope.spawn(move || {
                    let group: Arc<dyn Communicator> = Arc::new(end);
                    let config = TrainerConfig::epochs(2).autocast(DType::F16).parallel(group);
                    fitted(config, &[1.0, 1.0, 1.0, LARGE, 1.0, 1.0], 1, false).unwrap()
                })
            })
            .collect();
        started.into_iter().map(|rank| rank.join().unwrap().1).collect()
    });
    let (_, expected, _) = fitted(TrainerConfig::epochs(2).autocast(DType::F16), &[1.0, 1.0], 1, false).unwrap();
    assert_eq!(weights, [expected, expected]);
}

#[test]
fn losses_that_stay_infinite_end_training_and_in_f32_the_first_one_does() {
    let step_of = |error: &polygrad_core::Error| {
        let source = std::error::Error::source(error).unwrap();
        source.downcast_ref::<NonFiniteLoss>().unwrap().step
    };
    let f16 = TrainerConfig::epochs(1).autocast(DType::F16);
    let error = fitted(f16, &[LARGE; 40], 1, false).unwrap_err();
    assert_eq!(step_of(&error), 32);
    let text = error.to_string();
    assert!(
        text.contains("the loss is inf at step 32") && text.contains("31 steps before it"),
        "{text}"
    );
    for config in [TrainerConfig::epochs(1), TrainerConfig::epochs(1).autocast(DType::BF16)] {
        let error = fitted(config, &[1.0, f32::MAX, 1.0], 1, false).unwrap_err();
        assert_eq!(step_of(&error), 2);
    }
    // Gradients for which no scale is small enough.
    let model = model();
    let optimizer = Adam::new(model.parameters(), 0.01).unwrap();
    let root = |model: &Sequential, (x, _): &Batch| model.forward(x)?.mul(0.0)?.sqrt()?.mean_all();
    let config = TrainerConfig::epochs(9).autocast(DType::F16);
    let error = config
        .build(model, optimizer, root)
        .unwrap()
        .fit(&loader(), None)
        .unwrap_err();
    assert!(
        error.to_string().contains("the gradients are not finite at step 32"),
        "{error}"
    );
}
