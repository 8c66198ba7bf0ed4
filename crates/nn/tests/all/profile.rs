//! Profiles count all calls, and attribute them to modules.

use polygrad_nn::optim::{Optimizer, SGD};
use polygrad_nn::profile::{Pass, Profile, Profiler, Sample};
use polygrad_nn::{Linear, Module, ReLU, Sequential, TrainStep, loss::mse_loss, profile};
use polygrad_tensor::{Device, Result, Tensor};

fn device() -> Device {
    Device::<polygrad_cpu::Cpu>::default().into_any()
}

fn model() -> Sequential {
    Sequential::new()
        .push(Linear::new(3, 4, &device()).unwrap())
        .push(ReLU)
        .push(Linear::new(4, 2, &device()).unwrap())
}

fn of(profile: &Profile, pass: Pass, module: &str) -> Vec<(&'static str, u64)> {
    let here = |sample: &&Sample| sample.pass() == pass && sample.module.as_deref() == Some(module);
    let samples = profile.samples.iter().filter(here);
    samples.map(|sample| (sample.op, sample.flops)).collect()
}

#[test]
fn gradients_belong_to_the_layer_that_computed() {
    let model = model();
    let x = Tensor::ones([5, 3], &device()).unwrap();
    let mut profiler = Profiler::new().model(&model);
    profiler.step(|| model.forward(&x)?.sum_all()?.backward()).unwrap();
    let profile = profiler.finish();
    assert_eq!(of(&profile, Pass::Forward, "0"), [("linear", 2 * 5 * 3 * 4)]);
    assert_eq!(of(&profile, Pass::Forward, "1"), [("relu", 0)]);
    assert_eq!(of(&profile, Pass::Backward, "1"), [("activation_backward", 0)]);
    let flops = |pass, module| of(&profile, pass, module).iter().map(|(_, flops)| flops).sum::<u64>();
    assert_eq!(flops(Pass::Backward, "0"), 2 * 5 * 3 * 4);
    assert_eq!(flops(Pass::Backward, "2"), 2 * flops(Pass::Forward, "2"));
    assert!(of(&profile, Pass::Optimizer, "0").is_empty());
    assert_eq!(profile.copies(), None);
    assert_eq!((profile.steps.len(), profile.layers.len()), (1, 4));
    // Input, weight and bias, and the result, in f32.
    let linear = profile.samples.iter().find(|sample| sample.op == "linear").unwrap();
    assert_eq!(linear.bytes, 4 * (15 + 12 + 4 + 20));
    let within = |sample: &Sample| sample.span.begin <= sample.span.end && sample.span.end <= profile.steps[0].end;
    assert!(profile.samples.iter().all(within));
}

#[test]
fn a_closure_is_profiled_without_a_model() {
    let model = model();
    let mut sgd = SGD::new(model.parameters(), 0.1).unwrap();
    let x = Tensor::ones([5, 3], &device()).unwrap();
    let (loss, seen) = profile(|| sgd.backward_step(model.forward(&x)?.square()?.mean_all()?));
    loss.unwrap();
    // Layers are named by their parameters; those without parameters by their type.
    assert_eq!(of(&seen, Pass::Forward, "2").len(), 1);
    assert_eq!(of(&seen, Pass::Forward, "(ReLU)"), [("relu", 0)]);
    assert_eq!(seen.samples.iter().filter(|s| s.pass() == Pass::Optimizer).count(), 4);
    let text = seen.to_string();
    for words in ["GFLOP/s", "[5, 3] [4, 3] [4]", "2 (Linear)", "sgd_step", "between ops"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let ((), nothing) = profile(|| ());
    assert!(nothing.to_string().contains("no calls of a device were seen"));
    // Later calls are not recorded.
    let (_, other) = profile(|| model.forward(&x));
    assert_eq!(other.samples.len(), 3);
}

#[test]
fn captured_steps_are_profiled_op_by_op() -> Result<()> {
    let model = model();
    let sgd = SGD::new(model.parameters(), 0.1)?;
    let loss = |model: &Sequential, batch: &[Tensor]| mse_loss(&model.forward(&batch[0])?, &batch[1]);
    let mut step = TrainStep::new(model, sgd, loss).captured();
    let batch = [Tensor::ones([5, 3], &device())?, Tensor::ones([5, 2], &device())?];
    let mut profiler = Profiler::new().model(step.model());
    for _ in 0..3 {
        profiler.step(|| step.step(&batch))?;
    }
    assert!(step.is_ready());
    let profile = profiler.finish();
    assert_eq!(profile.steps.len(), 3);
    let replayed = |sample: &&Sample| sample.pass() == Pass::Replay;
    let ops: Vec<_> = profile
        .samples
        .iter()
        .filter(replayed)
        .map(|sample| sample.op)
        .collect();
    assert!(
        ops.contains(&"linear") && ops.contains(&"linear_weight_grad"),
        "{ops:?}"
    );
    assert!(profile.to_string().contains("replay"));
    // The first two were not replayed.
    assert_eq!(of(&profile, Pass::Forward, "0").len(), 2);
    Ok(())
}

#[test]
fn parameters_that_somebody_holds_are_told_of() {
    let model = Linear::new(250, 500, &device()).unwrap();
    let mut sgd = SGD::new(model.parameters(), 0.1).unwrap();
    // The gradient of x keeps the weight.
    let x = Tensor::var("x", Tensor::ones([5, 250], &device()).unwrap()).unwrap();
    let loss = || model.forward(&x)?.sum_all();
    let (stepped, plain) = profile(|| sgd.backward_step(loss()?));
    stepped.unwrap();
    assert_eq!(plain.copies(), None);
    let (held, copied) = profile(|| {
        let loss = loss()?;
        sgd.backward_step(loss.clone()).map(|_| loss)
    });
    held.unwrap();
    let warning = copied.copies().unwrap();
    assert!(warning.contains("copies 0.500 MB of parameters a step"), "{warning}");
}
