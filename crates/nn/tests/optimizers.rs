//! Optimizer state that moves on, and schedules against PyTorch's. The optimizers themselves are held to PyTorch's by the conformance suite.

mod common;

use common::{data, json, name, randn};
use polygrad_nn::*;
use polygrad_tensor::{Backend, Device, Gradients, Tensor};
use serde_json::Value;

on_backends!(state_goes_to_another_optimizer);

type Build<B> = fn(Vec<Param<B>>) -> Box<dyn Optimizer<B>>;

/// Optimizers of each kind, with all the state that they can have.
fn optimizers<B: Backend>() -> [Build<B>; 5] {
    [
        |params| Box::new(SGDConfig::new(0.1).momentum(0.9).nesterov(true).build(params).unwrap()),
        |params| Box::new(AdamConfig::new(0.01).weight_decay(0.1).build(params).unwrap()),
        |params| Box::new(AdamConfig::new(0.01).amsgrad(true).build(params).unwrap()),
        |params| Box::new(AdamConfig::adamw(0.01).build(params).unwrap()),
        |params| {
            Box::new(
                RMSpropConfig::new(0.01)
                    .momentum(0.9)
                    .centered(true)
                    .build(params)
                    .unwrap(),
            )
        },
    ]
}

/// Gradients that are these: those of `Σ p · g`.
fn gradients<B: Backend>(params: &[Param<B>], grads: &[Tensor<B>]) -> Gradients<B> {
    let products = params.iter().zip(grads);
    let products = products.map(|(param, grad)| param.tensor().mul(grad).unwrap().sum_all().unwrap());
    let total: Tensor<B> = products.reduce(|a, b| a.add(&b).unwrap()).unwrap();
    total.backward().unwrap()
}

fn fresh<B: Backend>(values: &[Tensor<B>]) -> Vec<Param<B>> {
    values.iter().map(|value| Param::new(value.clone()).unwrap()).collect()
}

/// Each step is taken by a new optimizer on new parameters, which got the state of the one before.
fn state_goes_to_another_optimizer<B: Backend>(device: &Device<B>) {
    let two = || [randn(&[3, 2], device), randn(&[4], device)];
    for build in optimizers::<B>() {
        let start = two();
        let steps: Vec<_> = (0..5).map(|_| two()).collect();
        let whole = fresh(&start);
        let mut one = build(whole.clone());
        let mut values = start.to_vec();
        let mut state = None;
        for grads in &steps {
            one.step(&gradients(&whole, grads)).unwrap();

            let params = fresh(&values);
            let mut other = build(params.clone());
            if let Some(state) = &state {
                other.set_lr(77.0);
                other.load_state_dict(state).unwrap();
            }
            other.step(&gradients(&params, grads)).unwrap();
            state = Some(other.state_dict().unwrap());
            values = params.iter().map(|param| param.tensor().detach()).collect();
        }
        for (whole, value) in whole.iter().zip(&values) {
            assert_eq!(whole.tensor().to_f64_vec().unwrap(), value.to_f64_vec().unwrap());
        }
    }
}

fn schedule(scheduler: &str, init: &Value) -> Box<dyn Schedule> {
    let number = |field: &str, default: f64| init.get(field).map_or(default, |v| v.as_f64().unwrap());
    let count = |field: &str, default: u64| init.get(field).map_or(default, |v| v.as_u64().unwrap());
    match scheduler {
        "ConstantLR" => Box::new(ConstantLR {
            factor: number("factor", 1.0 / 3.0),
            total_iters: count("total_iters", 5),
        }),
        "StepLR" => Box::new(StepLR {
            step_size: count("step_size", 0),
            gamma: number("gamma", 0.1),
        }),
        "CosineAnnealingLR" => Box::new(CosineAnnealingLR {
            t_max: count("T_max", 0),
            eta_min: number("eta_min", 0.0),
        }),
        "LinearLR" => Box::new(LinearLR {
            start_factor: number("start_factor", 1.0 / 3.0),
            end_factor: number("end_factor", 1.0),
            total_iters: count("total_iters", 5),
        }),
        "SequentialLR" => {
            let part = |i: usize| {
                let part = &init["schedulers"][i];
                schedule(part["scheduler"].as_str().unwrap(), &part["init"])
            };
            let milestones = init["milestones"].as_array().unwrap();
            Box::new(
                milestones
                    .iter()
                    .enumerate()
                    .fold(SequentialLR::new(part(0)), |all, (i, milestone)| {
                        all.then(milestone.as_u64().unwrap(), part(i + 1))
                    }),
            )
        }
        _ => panic!("{scheduler}"),
    }
}

#[test]
fn schedules_match_pytorch() {
    let cases = json(&data("schedules.json"));
    for case in cases.as_array().unwrap() {
        let schedule = schedule(case["scheduler"].as_str().unwrap(), &case["init"]);
        let base = case["base_lr"].as_f64().unwrap();
        for (step, expected) in case["lr"].as_array().unwrap().iter().enumerate() {
            let (found, expected) = (schedule.lr(base, step as u64), expected.as_f64().unwrap());
            // PyTorch multiplies the rate up step by step; only its rounding differs.
            assert!(
                (found - expected).abs() <= 1e-15,
                "{}: epoch {step}: {found}, not {expected}",
                name(case)
            );
        }
    }
    assert_eq!(cases.as_array().unwrap().len(), 12);
}
