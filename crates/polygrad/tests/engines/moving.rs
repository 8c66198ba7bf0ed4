//! A model and its optimizer's state move from backend to backend in the middle of training.

use polygrad::nn::loss::mse_loss;
use polygrad::nn::{BatchNorm1d, Linear, Sequential, Tanh};
use polygrad::optim::{AdamW, Optimizer};
use polygrad::prelude::*;

use crate::devices;

fn model(device: &Device) -> Result<Sequential> {
    polygrad::manual_seed(1);
    Ok(Sequential::new()
        .push(BatchNorm1d::new(6, device)?)
        .push(Linear::new(6, 16, device)?)
        .push(Tanh)
        .push(Linear::new(16, 2, device)?))
}

/// One step on the model's current device; the same numbers for the same `i` everywhere.
fn step(model: &Sequential, optimizer: &mut dyn Optimizer, i: u64, device: &Device) -> Result<f64> {
    polygrad::manual_seed(100 + i);
    let (x, y) = (Tensor::randn([8, 6], device)?, Tensor::randn([8, 2], device)?);
    optimizer.backward_step(mse_loss(&model.forward(&x)?, &y)?)
}

#[test]
fn a_run_over_all_backends_is_the_run_on_one() {
    let devices = devices().unwrap();
    let home = &devices[0].1;
    let run = |path: &[&Device]| -> Result<Vec<f64>> {
        let model = model(home)?;
        let mut optimizer = AdamW::new(model.parameters(), 0.01)?;
        let mut losses = Vec::new();
        for (i, device) in path.iter().enumerate() {
            model.to_device(device)?;
            assert!(model.parameters().iter().all(|param| param.device() == **device));
            for k in 0..3 {
                losses.push(step(&model, &mut optimizer, 3 * i as u64 + k, device)?);
            }
        }
        Ok(losses)
    };
    let around: Vec<&Device> = devices.iter().map(|(_, device)| device).chain([home]).collect();
    let moved = run(&around).unwrap();
    let stayed = run(&vec![home; around.len()]).unwrap();
    for (i, (a, b)) in moved.iter().zip(&stayed).enumerate() {
        assert!((a - b).abs() <= 1e-5 * b.abs(), "step {i}: {a} and {b}");
    }
}

#[test]
fn state_dicts_carry_a_run_over_too() {
    for (name, device) in devices().unwrap() {
        let home = Device::new("cpu").unwrap();
        let (here, there) = (model(&home).unwrap(), model(&device).unwrap());
        let mut mine = AdamW::new(here.parameters(), 0.01).unwrap();
        let mut theirs = AdamW::new(there.parameters(), 0.01).unwrap();
        step(&here, &mut mine, 0, &home).unwrap();
        there.load_state_dict(&here.state_dict().unwrap(), true).unwrap();
        theirs.load_state_dict(&mine.state_dict().unwrap()).unwrap();
        let (a, b) = (
            step(&here, &mut mine, 1, &home).unwrap(),
            step(&there, &mut theirs, 1, &device).unwrap(),
        );
        assert!((a - b).abs() <= 1e-5 * a.abs(), "{name}: {a} and {b}");
        let (a, b) = (here.state_dict().unwrap(), there.state_dict().unwrap());
        for (key, value) in a.iter() {
            let other = b.get(key).unwrap().to_f64_vec();
            let close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-5 * a.abs().max(1e-3);
            assert!(value.to_f64_vec().iter().zip(&other).all(close), "{name}: {key}");
        }
    }
}

#[test]
fn a_moved_model_needs_its_inputs_moved_and_says_so() {
    let devices = devices().unwrap();
    let model = model(&devices[0].1).unwrap();
    for (_, device) in &devices[2..] {
        let x = Tensor::ones([8, 6], device).unwrap();
        let error = model.forward(&x).unwrap_err().to_string();
        assert!(
            error.contains(&device.to_string()) && error.contains("to_device"),
            "{error}"
        );
    }
}
