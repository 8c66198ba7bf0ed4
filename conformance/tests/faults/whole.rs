//! Operations that change several things change all of them or none.

use std::collections::BTreeMap;

use polygrad_conformance::Faults;
use polygrad_core::decompose;
use polygrad_cpu::Cpu;
use polygrad_nn::optim::*;
use polygrad_nn::*;
use polygrad_tensor::{AdamParams, AnyBackend, DType, Device, Distribution, SgdParams, Tensor, manual_seed};

use crate::sweep::every_call;
use crate::training::{Training, cnn};

#[test]
fn saving_a_checkpoint_leaves_the_old_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint.safetensors");
    let ready = |device: &Device| {
        manual_seed(3);
        let mut training = cnn(device).unwrap();
        training.step().unwrap();
        training
    };
    let save = |training: &Training, step| Checkpoint::new(&training.model, &*training.optimizer, step)?.save(&path);
    save(&ready(&Device::<Cpu>::default().into_any()), 1).unwrap();
    let old = std::fs::read(&path).unwrap();
    every_call(
        &Device::<Cpu>::default(),
        ready,
        |_, training| save(training, 2),
        |_| {
            assert!(std::fs::read(&path).unwrap() == old);
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        },
    );
    assert!(std::fs::read(&path).unwrap() != old);
}

#[test]
fn loading_a_model_or_an_optimizer_takes_over_all_or_nothing() {
    let ready = |device: &Device| {
        manual_seed(3);
        let mut training = cnn(device).unwrap();
        training.step().unwrap();
        training
    };
    let mut other = ready(&Device::<Cpu>::default().into_any());
    let old = other.values();
    other.step().unwrap();
    let (model, optimizer) = (other.model.state_dict().unwrap(), other.optimizer.state_dict().unwrap());
    let is_old = |training: &Training| assert!(training.values() == old);
    let cpu = Device::<Cpu>::default();
    let load = |_: &Device, training: &mut Training| training.model.load_state_dict(&model, true).map(drop);
    every_call(&cpu, ready, load, is_old);
    let load = |_: &Device, training: &mut Training| training.optimizer.load_state_dict(&optimizer);
    every_call(&cpu, ready, load, is_old);
}

#[test]
fn a_model_moves_to_a_device_as_a_whole() {
    let ready = |device: &Device| {
        manual_seed(3);
        let mut training = cnn(device).unwrap();
        training.step().unwrap();
        training
    };
    let home = Device::<Cpu>::default().into_any();
    let mut undisturbed = ready(&home);
    let old = undisturbed.values();
    every_call(
        &Device::<Cpu>::default(),
        ready,
        |_, training| training.model.to_device(&home),
        |training| {
            let parameters = training.model.parameters();
            assert!(parameters.iter().all(|param| param.device() != home));
            assert!(training.values() == old);
        },
    );

    // A step after the move equals the step without it, including the optimizer's state.
    undisturbed.step().unwrap();
    let faults = Faults::over(&Device::<Cpu>::default());
    let mut moved = ready(&faults.device());
    moved.model.to_device(&home).unwrap();
    moved.input = moved.input.to_device(&home).unwrap();
    moved.target = moved.target.to_device(&home).unwrap();
    moved.step().unwrap();
    assert!(moved.values() == undisturbed.values());
    drop(faults.device());
    assert_eq!(faults.live_tensors(), 0, "something stayed behind");
}

#[test]
fn a_moving_average_moves_as_a_whole_and_gives_the_model_back() {
    // In bf16, so that the average is converted when it is copied to the model.
    let ready = |device: &Device| {
        manual_seed(3);
        let training = cnn(device).unwrap();
        training.model.to_dtype(DType::BF16).unwrap();
        let mut ema = EmaConfig::new(0.5).use_buffers(true).build(&training.model).unwrap();
        ema.update().unwrap();
        for param in training.model.parameters() {
            param.set(&param.tensor().zeros_like().unwrap()).unwrap();
        }
        (training, ema)
    };
    let cpu = Device::<Cpu>::default();
    let values = |model: &Sequential| format!("{:?}", state_values(&model.state_dict().unwrap()));
    let state = |ema: &Ema| format!("{:?}", state_values(&ema.state_dict().unwrap()));
    let (undisturbed, average) = ready(&cpu.clone().into_any());
    let (own, old) = (values(&undisturbed.model), state(&average));
    every_call(
        &cpu,
        ready,
        |_, (_, ema)| ema.update(),
        |(_, ema)| assert_eq!(state(ema), old),
    );
    every_call(
        &cpu,
        ready,
        |_, (training, ema)| ema.with_averaged(|| training.model.state_dict().map(drop))?,
        |(training, _)| assert_eq!(values(&training.model), own),
    );
}

fn state_values(state: &StateDict) -> BTreeMap<&str, &[u8]> {
    state.iter().map(|(name, value)| (name, value.bytes())).collect()
}

#[test]
fn batch_norm_moves_its_statistics_together() {
    let buffers = |training: &Training| -> Vec<_> {
        let buffers = training.model.named_buffers().into_iter();
        buffers
            .map(|(_, buffer)| buffer.tensor().to_f64_vec().unwrap())
            .collect()
    };
    let ready = |device: &Device| {
        manual_seed(3);
        cnn(device).unwrap()
    };
    let mut undisturbed = ready(&Device::<Cpu>::default().into_any());
    let old = buffers(&undisturbed);
    undisturbed.step().unwrap();
    let new = buffers(&undisturbed);
    assert!(old.iter().zip(&new).all(|(old, new)| old != new) && old.len() == 3);
    every_call(
        &Device::<Cpu>::default(),
        ready,
        |_, training| training.model.forward(&training.input).map(drop),
        |training| {
            let now = buffers(training);
            assert!(now == old || now == new, "{now:?}");
        },
    );
}

#[test]
fn decomposed_optimizer_steps_change_all_or_nothing() {
    for dtype in [DType::F32, DType::BF16] {
        let tensors = |device: &Device| -> Vec<_> {
            manual_seed(5);
            let random =
                |_| Tensor::random([4], Distribution::Uniform { low: 0.1, high: 1.0 }, (device, dtype)).unwrap();
            (0..5).map(random).map(|x| x.inner().clone()).collect()
        };
        let old: Vec<_> = tensors(&Device::<Cpu>::default().into_any());
        let bytes = |x: &polygrad_core::AnyTensor| x.backend().to_host(x).unwrap().bytes().to_vec();
        let is_old = |now: &Vec<_>| assert!(now.iter().zip(&old).all(|(now, old)| bytes(now) == bytes(old)));
        let cpu = Device::<Cpu>::default();
        let sgd = SgdParams {
            lr: 0.1,
            momentum: 0.9,
            dampening: 0.0,
            weight_decay: 0.1,
            nesterov: true,
            first: false,
        };
        let adam = AdamParams {
            lr: 0.1,
            beta1: 0.9,
            beta2: 0.99,
            eps: 1e-8,
            weight_decay: 0.1,
            decoupled: true,
            step: 3,
        };
        let step = |_: &Device, x: &mut Vec<_>| {
            let [param, grad, momentum, ..] = &mut x[..] else {
                panic!()
            };
            decompose::sgd_step::<AnyBackend>(param, grad, Some(momentum), &sgd).map_err(|e| e.with_op("sgd_step"))
        };
        every_call(&cpu, tensors, step, is_old);
        let step = |_: &Device, x: &mut Vec<_>| {
            let [param, grad, first, second, largest] = &mut x[..] else {
                panic!()
            };
            decompose::adam_step::<AnyBackend>(param, grad, first, second, Some(largest), &adam)
                .map_err(|e| e.with_op("adam_step"))
        };
        every_call(&cpu, tensors, step, is_old);
    }
}
