//! A device that fails, at whichever call of whatever training does: every layer reports it, none panics, nothing leaks, and nothing is
//! left half done but what the docs say.

use std::cell::Cell;
use std::collections::BTreeMap;

use polygrad_conformance::{Fault, Faults};
use polygrad_core::decompose;
use polygrad_cpu::Cpu;
use polygrad_nn::loss::{cross_entropy, mse_loss};
use polygrad_nn::*;
use polygrad_null::Null;
use polygrad_tensor::{
    AdamParams, Backend, BackwardOptions, DType, Device, Distribution, Error, Gradients, Result, SgdParams, Tensor,
    checkpoint, is_grad_enabled, manual_seed,
};

/// A part of a training step.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
enum Phase {
    Forward,
    Loss,
    Backward,
    Clip,
    Step,
}

/// All that a training step needs.
struct Training {
    model: Sequential,
    optimizer: Box<dyn Optimizer>,
    input: Tensor,
    target: Tensor,
    loss: fn(&Tensor, &Tensor) -> Result<Tensor>,
    /// Clips by the norm of all gradients, which needs values, rather than each by itself.
    by_norm: bool,
    phase: Cell<Phase>,
}

impl Training {
    fn step(&mut self) -> Result<()> {
        // The same dropout each time.
        manual_seed(7);
        self.phase.set(Phase::Forward);
        let output = self.model.forward(&self.input)?;
        self.phase.set(Phase::Loss);
        let loss = (self.loss)(&output, &self.target)?;
        self.phase.set(Phase::Backward);
        let mut gradients = loss.backward()?;
        self.phase.set(Phase::Clip);
        match self.by_norm {
            true => clip_grad_norm(&mut gradients, 1e-3).map(drop)?,
            false => clip_grad_value(&mut gradients, 1e-3)?,
        }
        self.phase.set(Phase::Step);
        self.optimizer.step(&gradients)
    }

    fn names(&self) -> Vec<String> {
        self.model
            .named_parameters()
            .into_iter()
            .map(|(name, _)| name)
            .collect()
    }

    /// The bytes of each parameter and of what the optimizer remembers about it.
    fn values(&self) -> BTreeMap<String, Vec<Vec<u8>>> {
        let state = self.optimizer.state_dict().unwrap();
        let of_one = |(name, param): (String, Param)| {
            let mut values = vec![param.tensor().to_host().unwrap().bytes().to_vec()];
            values.extend(
                state
                    .with_prefix(&format!("{name}."))
                    .iter()
                    .map(|(_, x)| x.bytes().to_vec()),
            );
            (name, values)
        };
        self.model.named_parameters().into_iter().map(of_one).collect()
    }

    fn is_finite(&self) -> bool {
        let finite = |(_, param): (String, Param)| param.tensor().to_f64_vec().unwrap().iter().all(|x| x.is_finite());
        self.model.named_parameters().into_iter().all(finite)
    }
}

fn training(
    device: &Device,
    model: Sequential,
    optimizer: impl Optimizer + 'static,
    input: Tensor,
    classes: usize,
) -> Result<Training> {
    let rows = input.shape()[0];
    let target = (0..rows).map(|i| (i % classes) as i64).collect();
    Ok(Training {
        model,
        optimizer: Box::new(optimizer),
        input,
        target: Tensor::from_vec::<i64>(target, [rows], device)?,
        loss: cross_entropy,
        by_norm: false,
        phase: Cell::new(Phase::Forward),
    })
}

fn mlp_layers(device: &Device) -> Result<Sequential> {
    Ok(Sequential::new()
        .push(Linear::new(6, 8, device)?)
        .push(Tanh)
        .push(Linear::new(8, 3, device)?))
}

fn mlp(device: &Device) -> Result<Training> {
    let model = mlp_layers(device)?;
    let optimizer = Adam::new(model.parameters(), 0.01)?;
    training(device, model, optimizer, Tensor::randn([5, 6], device)?, 3)
}

/// An optimizer that is many ops to the device, rather than one.
fn mlp_with_rmsprop(device: &Device) -> Result<Training> {
    let model = mlp_layers(device)?;
    let config = RMSpropConfig::new(0.01).momentum(0.9).weight_decay(0.1).centered(true);
    let optimizer = config.build(model.parameters())?;
    let mut out = training(device, model, optimizer, Tensor::randn([5, 6], device)?, 3)?;
    out.target = Tensor::randn([5, 3], device)?;
    out.loss = |output, target| mse_loss(output, target, Default::default());
    Ok(out)
}

/// A group of parameters for each layer.
fn mlp_with_lamb(device: &Device) -> Result<Training> {
    let model = mlp_layers(device)?;
    let params = model.parameters();
    let mut optimizer = LAMBConfig::new(0.01).build(params[..2].to_vec())?;
    optimizer.add_group(LAMBConfig::new(0.1).weight_decay(0.0), params[2..].to_vec())?;
    training(device, model, optimizer, Tensor::randn([5, 6], device)?, 3)
}

fn mlp_with_lion(device: &Device) -> Result<Training> {
    let model = mlp_layers(device)?;
    let optimizer = LionConfig::new(0.01).weight_decay(0.1).build(model.parameters())?;
    training(device, model, optimizer, Tensor::randn([5, 6], device)?, 3)
}

/// Matrices alone, one of which is taller than it is wide.
fn mlp_with_muon(device: &Device) -> Result<Training> {
    let model = Sequential::new()
        .push(LinearConfig::new(6, 8).bias(false).build(device)?)
        .push(Tanh)
        .push(LinearConfig::new(8, 3).bias(false).build(device)?);
    let optimizer = MuonConfig::new(0.02).ns_steps(2).build(model.parameters())?;
    training(device, model, optimizer, Tensor::randn([5, 6], device)?, 3)
}

fn cnn(device: &Device) -> Result<Training> {
    let model = Sequential::new()
        .push(Conv2d::new(1, 4, 3, device)?)
        .push(BatchNorm2d::new(4, device)?)
        .push(ReLU)
        .push(MaxPool2d::new(2))
        .push(AvgPool2d::new(2).stride(1))
        .push(Dropout::new(0.3)?)
        .push(Flatten::new())
        .push(Linear::new(16, 3, device)?);
    let optimizer = SGDConfig::new(0.05).momentum(0.9).nesterov(true).weight_decay(1e-4);
    let optimizer = optimizer.build(model.parameters())?;
    training(device, model, optimizer, Tensor::randn([4, 1, 8, 8], device)?, 3)
}

fn embedded(device: &Device) -> Result<Training> {
    let model = Sequential::new()
        .push(Embedding::new(11, 6, device)?)
        .push(LayerNorm::new(6, device)?)
        .push(GELU::default())
        .push(Flatten::new())
        .push(Linear::new(24, 5, device)?);
    let optimizer = AdamW::new(model.parameters(), 0.01)?;
    let words = (0..12).map(|i| (i * 7) % 11).collect();
    let words = Tensor::from_vec::<i64>(words, [3, 4], device)?;
    training(device, model, optimizer, words, 5)
}

type Build = fn(&Device) -> Result<Training>;

/// What every error of a failing device says.
fn check(error: &Error, faults: &Faults, fault: Fault, case: &str) {
    let op = faults.struck().unwrap_or_else(|| panic!("{case}: {error}"));
    assert_eq!(error.kind(), fault.kind(), "{case}: {error}");
    assert!(error.to_string().contains(op), "{case}: {error} does not name {op}");
    // The device itself names no op but in its message.
    assert!(error.op().is_some(), "{case}: {error} has no op");
    assert!(is_grad_enabled(), "{case}");
}

/// A training step with each fault at each of its calls, after `warm` steps that went well.
fn fails_well<B: Backend>(device: &Device<B>, has_values: bool, make: Build, warm: usize) {
    let ready = || {
        let faults = Faults::over(device);
        manual_seed(3);
        let mut training = make(&faults.device()).unwrap();
        training.by_norm = has_values;
        (0..warm).for_each(|_| training.step().unwrap());
        (faults, training)
    };
    let (faults, mut undisturbed) = ready();
    let values = |training: &Training| has_values.then(|| training.values());
    let before = values(&undisturbed);
    faults.disarm();
    undisturbed.step().unwrap();
    let calls = faults.calls();
    let after = values(&undisturbed);
    assert!(calls > 20 && (before.is_none() || before != after));

    for (n, fault) in (1..=calls).flat_map(|n| Fault::ALL.map(|fault| (n, fault))) {
        let (faults, mut training) = ready();
        let names = training.names();
        let live = faults.live_tensors();
        faults.arm(n, fault);
        let error = training.step().expect_err("a device that fails");
        let phase = training.phase.get();
        let case = format!("call {n} of {calls}, {fault:?}, {phase:?}");
        check(&error, &faults, fault, &case);
        let made_state = warm == 0 && phase == Phase::Step;
        assert!(
            faults.live_tensors() == live || made_state,
            "{case}: leaks while the model lives"
        );

        let path = error.module_path();
        let failed_at = match phase {
            Phase::Forward => {
                let layer = path.unwrap_or_else(|| panic!("{case}: {error} names no layer"));
                assert!(
                    layer.parse::<usize>().is_ok_and(|i| i < training.model.len()),
                    "{case}: {error}"
                );
                0
            }
            Phase::Step => {
                let path = path.unwrap_or_else(|| panic!("{case}: {error} names no parameter"));
                names
                    .iter()
                    .position(|name| *name == path)
                    .unwrap_or_else(|| panic!("{case}: {error}"))
            }
            _ => 0,
        };

        faults.disarm();
        // Parameters before the one that is named have taken the step; that and the others, and their state, are untouched.
        if let (Some(before), Some(after)) = (&before, &after) {
            let now = training.values();
            for (i, name) in names.iter().enumerate() {
                let expected = if i < failed_at { after } else { before };
                assert!(now[name] == expected[name], "{case}: {name}");
            }
        }
        training
            .step()
            .unwrap_or_else(|e| panic!("{case}: the next step fails with {e}"));
        if let Some(after) = &after {
            assert!(training.is_finite(), "{case}");
            assert!(
                failed_at > 0 || training.values() == *after,
                "{case}: the next step differs"
            );
        }
        drop((training, error));
        assert_eq!(faults.live_tensors(), 0, "{case}: leaks");
    }

    // There is no call behind the last.
    let (faults, mut training) = ready();
    faults.arm(calls + 1, Fault::DeviceLost);
    training.step().unwrap();
    assert_eq!(faults.struck(), None);
}

fn fails_well_everywhere(make: Build) {
    for warm in [0, 1] {
        fails_well(&Device::<Cpu>::default(), true, make, warm);
        let null = Device::<Null>::default();
        fails_well(&null, false, make, warm);
        assert_eq!(null.inner().stats().live_tensors, 0);
    }
}

#[test]
fn an_mlp_with_adam() {
    fails_well_everywhere(mlp);
}

#[test]
fn an_mlp_with_rmsprop() {
    fails_well_everywhere(mlp_with_rmsprop);
}

#[test]
fn an_mlp_with_lamb_in_groups() {
    fails_well_everywhere(mlp_with_lamb);
}

#[test]
fn an_mlp_with_lion() {
    fails_well_everywhere(mlp_with_lion);
}

#[test]
fn an_mlp_with_muon() {
    fails_well_everywhere(mlp_with_muon);
}

#[test]
fn a_cnn_with_sgd() {
    fails_well_everywhere(cnn);
}

#[test]
fn embeddings_and_layer_norm_with_adamw() {
    fails_well_everywhere(embedded);
}

/// Runs something with each fault at each of its calls: it reports it, and leaves nothing. `prepare` is not disturbed.
fn every_call<B: Backend, T>(
    device: &Device<B>,
    prepare: impl Fn(&Device) -> T,
    run: impl Fn(&Device, &mut T) -> Result<()>,
    check_after: impl Fn(&T),
) {
    let mut n = 0;
    loop {
        n += 1;
        for fault in Fault::ALL {
            let faults = Faults::over(device);
            let mut prepared = prepare(&faults.device());
            let live = faults.live_tensors();
            faults.arm(n, fault);
            let outcome = run(&faults.device(), &mut prepared);
            if faults.struck().is_none() {
                outcome.unwrap();
                assert!(n > 1, "nothing was called");
                return;
            }
            let case = format!("call {n}, {fault:?}");
            check(&outcome.expect_err(&case), &faults, fault, &case);
            assert_eq!(faults.live_tensors(), live, "{case}: leaks");
            faults.disarm();
            check_after(&prepared);
            drop(prepared);
            assert_eq!(faults.live_tensors(), 0, "{case}: leaks");
        }
    }
}

#[test]
fn building_models_and_optimizers() {
    for make in [mlp as Build, cnn, embedded] {
        every_call(
            &Device::<Null>::default(),
            |_| (),
            |device, ()| make(device).map(drop),
            |()| (),
        );
        every_call(
            &Device::<Cpu>::default(),
            |_| (),
            |device, ()| make(device).map(drop),
            |()| (),
        );
    }
}

#[test]
fn checkpointing_and_higher_order_gradients() {
    every_call(
        &Device::<Null>::default(),
        |device| mlp(device).unwrap(),
        |_, training| {
            let layers = [
                training.model.parameters()[0].tensor(),
                training.model.parameters()[2].tensor(),
            ];
            let [first, second] = layers;
            let x = Tensor::var("x", training.input.clone())?;
            let hidden = checkpoint(
                move |x: &[Tensor]| x[0].linear(&first, None)?.tanh()?.dropout(0.5),
                &[&x],
            )?;
            let y = hidden.linear(&second, None)?.square()?.sum_all()?;
            let first_order = y.backward_with(&BackwardOptions::default().create_graph(true))?;
            first_order.require(&x)?.square()?.sum_all()?.backward().map(drop)
        },
        |_| (),
    );
}

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

    // A step after the move is the step that it would have been without, and takes the optimizer's state along.
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
    // In bf16, so that the average is converted on its way into the model.
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
fn metrics_and_synchronize_report_it() {
    let faults = Faults::over(&Device::<Cpu>::default());
    let loss = Tensor::new(1.5f32, &faults.device()).unwrap();
    for fault in Fault::ALL {
        let expect = |run: &dyn Fn() -> Result<()>, op: &str| {
            faults.arm(1, fault);
            let error = run().unwrap_err();
            check(&error, &faults, fault, op);
            assert_eq!(faults.struck(), Some(op));
            faults.disarm();
            run().unwrap();
        };
        expect(&|| loss.item().map(drop), "to_host");
        expect(&|| loss.to_vec::<f32>().map(drop), "to_host");
        expect(&|| faults.device().synchronize(), "synchronize");
    }
    // Printing cannot fail: it says what is wrong in the place of the values.
    faults.arm(1, Fault::DeviceLost);
    let text = loss.to_string();
    assert!(text.contains("device lost") && text.contains("to_host"), "{text}");
}

#[test]
fn a_gradient_whose_norm_is_not_finite_does_not_hide_a_lost_device() {
    let gradients = |device: &Device| {
        let x = Tensor::var("x", Tensor::new([1.0f32, 2.0], device).unwrap()).unwrap();
        (&x * f64::INFINITY).unwrap().sum_all().unwrap().backward().unwrap()
    };
    let clip = |_: &Device, gradients: &mut Gradients| match clip_grad_norm(gradients, 1.0) {
        Err(error) if error.to_string().contains("not finite: x") => Ok(()),
        other => other.map(drop),
    };
    every_call(&Device::<Cpu>::default(), gradients, clip, |_| ());
}

#[test]
fn decomposed_optimizer_steps_change_all_or_nothing() {
    for dtype in [DType::F32, DType::BF16] {
        let tensors = |device: &Device| -> Vec<_> {
            manual_seed(5);
            let random = |_| Tensor::random([4], Distribution::Uniform { low: 0.1, high: 1.0 }, dtype, device).unwrap();
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
