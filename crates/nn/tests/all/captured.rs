//! Captured steps compared with steps that are not captured.

use std::cell::Cell;

use polygrad_core::{AnyDevice, Backend};
use polygrad_nn::loss::{cross_entropy, mse_loss};
use polygrad_nn::optim::{Adam, Optimizer, SGDConfig};
use polygrad_nn::{
    BatchNorm1d, CapturedStep, Conv2dConfig, Dropout, Flatten, Linear, MaxPool2d, Module, ReLU, Sequential, TrainStep,
};
use polygrad_tensor::{AnyBackend, Device, GeneratorState, Result, Tensor, manual_seed};

fn cpu() -> Device {
    erased::<polygrad_cpu::Cpu>()
}

fn reference() -> Device {
    erased::<polygrad_reference::Reference>()
}

fn erased<B: Backend<Device: Default>>() -> Device {
    Device::<AnyBackend>::from_inner(AnyDevice::new::<B>(B::Device::default()))
}

/// With dropout and running statistics, so that a step changes more than parameters.
fn model(device: &Device) -> Sequential {
    manual_seed(7);
    Sequential::new()
        .push(Linear::new(5, 16, device).unwrap())
        .push(BatchNorm1d::new(16, device).unwrap())
        .push(ReLU)
        .push(Dropout::new(0.25).unwrap())
        .push(Linear::new(16, 16, device).unwrap())
        .push(ReLU)
        .push(Linear::new(16, 3, device).unwrap())
}

type Loss = fn(&Sequential, &[Tensor]) -> Result<Tensor>;

fn loss(model: &Sequential, batch: &[Tensor]) -> Result<Tensor> {
    cross_entropy(&model.forward(&batch[0])?, &batch[1])
}

fn step<L: Fn(&Sequential, &[Tensor]) -> Result<Tensor>>(device: &Device, loss: L) -> TrainStep<Sequential, Adam, L> {
    let model = model(device);
    let optimizer = Adam::new(model.parameters(), 1e-2).unwrap();
    TrainStep::new(model, optimizer, loss)
}

fn batch(rows: usize, number: usize, device: &Device) -> [Tensor; 2] {
    let x = (0..rows * 5)
        .map(|i| ((i * 37 + number * 11) % 29) as f32 / 14.0 - 1.0)
        .collect();
    let y = (0..rows).map(|i| ((i * 5 + number) % 3) as i64).collect();
    [
        Tensor::from_vec::<f32>(x, [rows, 5], device).unwrap(),
        Tensor::from_vec::<i64>(y, [rows], device).unwrap(),
    ]
}

/// Parameters, buffers and random numbers after some steps, and the losses.
fn outcome(
    device: &Device,
    mut step: impl FnMut(&[Tensor]) -> Tensor,
    batches: &[(usize, usize)],
) -> (Vec<f64>, GeneratorState) {
    manual_seed(11);
    let losses = batches
        .iter()
        .map(|&(rows, number)| step(&batch(rows, number, device)).item().unwrap())
        .collect();
    (losses, GeneratorState::current())
}

fn weights(model: &impl Module) -> Vec<u8> {
    let state = model.state_dict().unwrap();
    state.iter().flat_map(|(_, value)| value.bytes().to_vec()).collect()
}

/// Takes the same steps with and without capturing.
fn same(device: &Device, batches: &[(usize, usize)]) -> CapturedStep<Sequential, Adam, Loss> {
    let mut plain = step(device, loss as Loss);
    let mut captured = step(device, loss as Loss).captured();
    let expected = outcome(device, |batch| plain.step(batch).unwrap(), batches);
    let found = outcome(device, |batch| captured.step(batch).unwrap(), batches);
    assert_eq!(found, expected);
    assert_eq!(weights(captured.model()), weights(plain.model()));
    captured
}

#[test]
fn a_replay_gives_the_same_bits_and_random_numbers() {
    for device in [cpu(), reference()] {
        let batches: Vec<(usize, usize)> = (0..12).map(|i| (8, i)).collect();
        let captured = same(&device, &batches);
        assert!(captured.is_ready());
        assert_eq!(captured.refusal(), None);
    }
}

#[test]
fn gradients_that_are_not_finite_are_refused_in_replays() {
    let device = cpu();
    let mut captured = step(&device, loss as Loss).captured();
    captured.optimizer_mut().error_if_nonfinite(true);
    for i in 0..4 {
        captured.step(&batch(8, i, &device)).unwrap();
    }
    assert!(captured.is_ready());
    let params = captured.model().parameters();
    let values = || -> Vec<Vec<f64>> { params.iter().map(|p| p.tensor().to_f64_vec().unwrap()).collect() };
    let before = values();
    let mut bad = batch(8, 4, &device);
    bad[0] = (&bad[0] * f64::INFINITY).unwrap();
    let error = captured.step(&bad).unwrap_err().to_string();
    assert!(error.contains("not finite: 0.weight"), "{error}");
    assert_eq!(values(), before);
}

#[test]
fn other_shapes_are_recorded_anew() {
    let batches = [(8, 0), (8, 1), (8, 2), (3, 3), (8, 4), (3, 5), (3, 6), (8, 7)];
    assert!(same(&cpu(), &batches).is_ready());
}

#[test]
fn more_shapes_than_are_kept_are_computed_as_written() {
    let batches: Vec<(usize, usize)> = (2..13).map(|rows| (rows, rows)).collect();
    let refusal = same(&cpu(), &batches).refusal().map(str::to_owned).unwrap();
    assert!(refusal.contains("more than 8"), "{refusal}");
}

#[test]
fn rates_modes_and_freezing_may_change_on_the_way() {
    let device = cpu();
    let mut plain = step(&device, loss as Loss);
    let mut captured = step(&device, loss as Loss).captured();
    // Frozen parameters have no gradient.
    plain.optimizer_mut().allow_unused(true);
    captured.optimizer_mut().allow_unused(true);
    let frozen = |model: &Sequential, frozen: bool| {
        let (_, param) = model
            .named_parameters()
            .into_iter()
            .find(|(name, _)| name == "0.weight")
            .unwrap();
        param.set_trainable(!frozen);
    };
    for i in 0..24 {
        if i == 6 {
            plain.optimizer_mut().set_lr(1e-3);
            captured.optimizer_mut().set_lr(1e-3);
        }
        for model in [plain.model(), captured.model()] {
            match i {
                9 => model.eval(),
                14 => model.train(),
                18 => frozen(model, true),
                _ => {}
            }
        }
        let batch = batch(8, i, &device);
        manual_seed(i as u64);
        let expected = plain.step(&batch).unwrap().item().unwrap();
        manual_seed(i as u64);
        assert_eq!(captured.step(&batch).unwrap().item().unwrap(), expected, "step {i}");
    }
    assert_eq!(weights(captured.model()), weights(plain.model()));
}

#[test]
fn gradients_are_clipped() {
    let device = cpu();
    let mut plain = step(&device, loss as Loss).clip_grad_norm(0.05);
    let mut captured = step(&device, loss as Loss).clip_grad_norm(0.05).captured();
    let batches: Vec<(usize, usize)> = (0..6).map(|i| (8, i)).collect();
    let expected = outcome(&device, |batch| plain.step(batch).unwrap(), &batches);
    assert_eq!(
        outcome(&device, |batch| captured.step(batch).unwrap(), &batches),
        expected
    );
    assert_eq!(weights(captured.model()), weights(plain.model()));
}

#[test]
fn nan_is_the_same_number_each_time() {
    let device = cpu();
    let masked = |model: &Sequential, batch: &[Tensor]| {
        let x = batch[0].masked_fill(&batch[0].gt(1e9)?, f64::NAN)?;
        cross_entropy(&model.forward(&x)?, &batch[1])
    };
    let mut captured = step(&device, masked).captured();
    for i in 0..4 {
        captured.step(&batch(8, i, &device)).unwrap();
    }
    assert!(captured.is_ready(), "{:?}", captured.refusal());
}

/// Checks that a step with this loss is computed without capturing, and gives the reason.
fn refused(loss: impl Fn(&Sequential, &[Tensor]) -> Result<Tensor>, why: &str) {
    let device = cpu();
    let mut captured = step(&device, loss).captured();
    for i in 0..4 {
        captured.step(&batch(8, i, &device)).unwrap();
    }
    let refusal = captured.refusal().unwrap();
    assert!(refusal.contains(why), "{refusal}");
    assert!(!captured.is_ready());
}

#[test]
fn what_cannot_be_replayed_is_computed_as_written() {
    refused(
        |model, batch| {
            let loss = loss(model, batch)?;
            assert!(loss.item()?.is_finite());
            Ok(loss)
        },
        "reads values on the host",
    );
    let calls = Cell::new(0);
    refused(
        |model, batch| {
            calls.set(calls.get() + 1);
            &loss(model, batch)? * (1.0 + f64::from(calls.get()))
        },
        "became",
    );
    refused(
        |model, batch| {
            calls.set(calls.get() + 1);
            let noise = Tensor::from_vec(vec![calls.get() as f32; 40], [8, 5], &batch[0].device())?;
            cross_entropy(&model.forward(&(&batch[0] + &noise)?)?, &batch[1])
        },
        "other values the second time",
    );
    refused(
        |model, batch| {
            manual_seed(3);
            loss(model, batch)
        },
        "thread's stream",
    );
    refused(
        |model, batch| {
            let elsewhere =
                Device::<AnyBackend>::from_inner(AnyDevice::new::<polygrad_reference::Reference>(Default::default()));
            let x = batch[0].to_device(&elsewhere)?.to_device(&batch[0].device())?;
            cross_entropy(&model.forward(&x)?, &batch[1])
        },
        "host",
    );
}

#[test]
fn parameters_of_another_model_are_not_forgotten() {
    let device = cpu();
    let make = || {
        let model = model(&device);
        let other = Linear::new(5, 5, &device).unwrap();
        let params = model.parameters().into_iter().chain(other.parameters());
        let optimizer = Adam::new(params, 1e-2).unwrap();
        TrainStep::new(model, optimizer, move |model: &Sequential, batch: &[Tensor]| {
            loss(model, &[other.forward(&batch[0])?, batch[1].clone()])
        })
    };
    let (mut plain, mut captured) = (make(), make().captured());
    let batches: Vec<(usize, usize)> = (0..6).map(|i| (8, i)).collect();
    let expected = outcome(&device, |batch| plain.step(batch).unwrap(), &batches);
    assert_eq!(
        outcome(&device, |batch| captured.step(batch).unwrap(), &batches),
        expected
    );
    assert!(captured.refusal().unwrap().contains("no parameters of the model"));
}

#[test]
fn constants_are_kept() {
    let device = cpu();
    let scale = Tensor::from_vec(vec![0.5f32; 5], [5], &device).unwrap();
    let scaled = move |model: &Sequential, batch: &[Tensor]| loss(model, &[(&batch[0] * &scale)?, batch[1].clone()]);
    let mut plain = step(&device, scaled.clone());
    let mut captured = step(&device, scaled).captured();
    let batches: Vec<(usize, usize)> = (0..6).map(|i| (8, i)).collect();
    let expected = outcome(&device, |batch| plain.step(batch).unwrap(), &batches);
    assert_eq!(
        outcome(&device, |batch| captured.step(batch).unwrap(), &batches),
        expected
    );
    assert!(captured.is_ready());
}

#[test]
fn weights_used_twice_add_their_gradients() {
    let device = cpu();
    let make = || {
        manual_seed(2);
        let layer = Linear::new(5, 5, &device).unwrap();
        let optimizer = SGDConfig::new(0.1).momentum(0.9).build(layer.parameters()).unwrap();
        TrainStep::new(layer, optimizer, |layer: &Linear, batch: &[Tensor]| {
            let twice = layer.forward(&layer.forward(&batch[0])?.tanh()?)?;
            mse_loss(&twice, &batch[0])
        })
    };
    let (mut plain, mut captured) = (make(), make().captured());
    let batches: Vec<(usize, usize)> = (0..8).map(|i| (4, i)).collect();
    let expected = outcome(&device, |batch| plain.step(batch).unwrap(), &batches);
    assert_eq!(
        outcome(&device, |batch| captured.step(batch).unwrap(), &batches),
        expected
    );
    assert_eq!(weights(captured.model()), weights(plain.model()));
    assert!(captured.is_ready());
}

#[test]
fn a_step_that_fails_leaves_the_capture_whole() {
    let device = cpu();
    let mut captured = step(&device, loss as Loss).captured();
    let fine = batch(8, 0, &device);
    for _ in 0..3 {
        captured.step(&fine).unwrap();
    }
    // Class 7 of 3: the device detects it, also in a replay.
    let bad = [fine[0].clone(), Tensor::from_vec(vec![7i64; 8], [8], &device).unwrap()];
    let error = captured.step(&bad).unwrap_err().to_string();
    assert!(error.contains("cross_entropy"), "{error}");
    captured.step(&fine).unwrap();
    assert_eq!(captured.refusal(), None);
}

/// A clip range, or any other number that changes, is a tensor of the batch; further outputs of the loss function are
/// also returned.
#[test]
fn numbers_of_the_batch_change_between_replays() {
    let device = cpu();
    let clipped = |model: &Sequential, batch: &[Tensor]| {
        let logits = model.forward(&batch[0])?;
        let kept = logits.clamp(Some(&batch[2].neg()?), Some(&batch[2]))?;
        Ok((cross_entropy(&kept, &batch[1])?, logits))
    };
    let make = || {
        let model = model(&device);
        let optimizer = Adam::new(model.parameters(), 1e-2).unwrap();
        TrainStep::new(model, optimizer, clipped)
    };
    let (mut plain, mut captured) = (make(), make().captured());
    let run = |step: &mut dyn FnMut(&[Tensor]) -> (Tensor, Tensor)| -> Vec<f64> {
        manual_seed(5);
        let mut seen = Vec::new();
        for i in 0..8 {
            let [x, y] = batch(8, i, &device);
            let range = Tensor::full((), 0.1 * (i + 1) as f64, (&device, x.dtype())).unwrap();
            let (loss, logits) = step(&[x, y, range]);
            assert_eq!(logits.dims(), [8, 3]);
            seen.extend(loss.to_f64_vec().unwrap());
            seen.extend(logits.to_f64_vec().unwrap());
        }
        seen
    };
    let wanted = run(&mut |batch| plain.step(batch).unwrap());
    assert_eq!(run(&mut |batch| captured.step(batch).unwrap()), wanted);
    assert!(captured.is_ready());
}

/// Replays may pool before ReLU, and fuse activations into convolutions; the numbers equal those of steps that are not
/// captured.
#[test]
fn convolutions_and_poolings_give_the_same_bits() {
    let make = |device: &Device| {
        manual_seed(4);
        let model = Sequential::new()
            .push(Conv2dConfig::new(1, 4, 3).padding(1).build(device).unwrap())
            .push(ReLU)
            .push(MaxPool2d::new(2))
            .push(Conv2dConfig::new(4, 6, 3).padding(1).build(device).unwrap())
            .push(ReLU)
            .push(Flatten::default())
            .push(Linear::new(96, 3, device).unwrap());
        let optimizer = Adam::new(model.parameters(), 1e-2).unwrap();
        TrainStep::new(model, optimizer, loss as Loss)
    };
    for device in [cpu(), reference()] {
        let (mut plain, mut captured) = (make(&device), make(&device).captured());
        let images = |number: usize| {
            let x = (0..5 * 64)
                .map(|i| ((i * 37 + number * 11) % 29) as f32 / 14.0 - 1.0)
                .collect();
            let y = (0..5).map(|i| ((i + number) % 3) as i64).collect();
            [
                Tensor::from_vec::<f32>(x, [5, 1, 8, 8], &device).unwrap(),
                Tensor::from_vec::<i64>(y, [5], &device).unwrap(),
            ]
        };
        for number in 0..6 {
            let batch = images(number);
            let wanted = plain.step(&batch).unwrap().item().unwrap();
            assert_eq!(captured.step(&batch).unwrap().item().unwrap(), wanted);
        }
        assert_eq!(weights(captured.model()), weights(plain.model()));
        assert!(captured.is_ready());
    }
}
