//! Optimizers and schedules against PyTorch's, in f64.

mod common;

use common::{Vectors, assert_close, data, json, key, name, upload};
use polygrad_nn::*;
use polygrad_tensor::{Backend, Device, Gradients, Tensor};
use serde_json::Value;

on_backends!(optimizers_match_pytorch, state_goes_to_another_optimizer);

fn optimizer<B: Backend>(case: &Value, params: &[Param<B>]) -> Box<dyn Optimizer<B>> {
    let init = &case["init"];
    let params = params.to_vec();
    let lr = init["lr"].as_f64().unwrap();
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{value}"));
    let fields = init.as_object().unwrap().iter().filter(|(field, _)| *field != "lr");
    match case["optimizer"].as_str().unwrap() {
        "SGD" => {
            let config = fields.fold(SGDConfig::new(lr), |config, (field, value)| match field.as_str() {
                "momentum" => config.momentum(number(value)),
                "dampening" => config.dampening(number(value)),
                "weight_decay" => config.weight_decay(number(value)),
                "nesterov" => config.nesterov(value.as_bool().unwrap()),
                _ => panic!("{field}"),
            });
            Box::new(config.build(params).unwrap())
        }
        "RMSprop" => {
            let config = fields.fold(RMSpropConfig::new(lr), |config, (field, value)| match field.as_str() {
                "alpha" => config.alpha(number(value)),
                "eps" => config.eps(number(value)),
                "momentum" => config.momentum(number(value)),
                "weight_decay" => config.weight_decay(number(value)),
                "centered" => config.centered(value.as_bool().unwrap()),
                _ => panic!("{field}"),
            });
            Box::new(config.build(params).unwrap())
        }
        kind => {
            let config = match kind {
                "Adam" => AdamConfig::new(lr),
                "AdamW" => AdamConfig::adamw(lr),
                _ => panic!("{kind}"),
            };
            let config = fields.fold(config, |config, (field, value)| match field.as_str() {
                "betas" => config.betas(number(&value[0]), number(&value[1])),
                "eps" => config.eps(number(value)),
                "weight_decay" => config.weight_decay(number(value)),
                "amsgrad" => config.amsgrad(value.as_bool().unwrap()),
                _ => panic!("{field}"),
            });
            Box::new(config.build(params).unwrap())
        }
    }
}

fn params<B: Backend>(case: &Value, vectors: &Vectors, device: &Device<B>) -> Vec<Param<B>> {
    let params = case["params"].as_array().unwrap();
    params
        .iter()
        .map(|p| Param::new(upload(vectors.tensor(p), device)).unwrap())
        .collect()
}

/// Gradients that are what a step of the case says: those of `Σ p · g`.
fn gradients<B: Backend>(step: &Value, params: &[Param<B>], vectors: &Vectors, device: &Device<B>) -> Gradients<B> {
    let products = params.iter().enumerate().map(|(i, param)| {
        let gradient = upload(vectors.get(key(&step["grads"][i])), device);
        param.tensor().mul(&gradient).unwrap().sum_all().unwrap()
    });
    let total: Tensor<B> = products.reduce(|a, b| a.add(&b).unwrap()).unwrap();
    total.backward().unwrap()
}

fn check_step<B: Backend>(what: &str, step: &Value, params: &[Param<B>], vectors: &Vectors) {
    for (i, param) in params.iter().enumerate() {
        let expected = vectors.get(key(&step["after"][i]));
        assert_close(&format!("{what} parameter {i}"), &param.tensor(), expected, 1e-12);
    }
}

fn optimizers_match_pytorch<B: Backend>(device: &Device<B>) {
    let vectors = Vectors::load("optimizers");
    for case in &vectors.cases {
        let params = params(case, &vectors, device);
        let mut optimizer = optimizer(case, &params);
        for (i, step) in case["steps"].as_array().unwrap().iter().enumerate() {
            optimizer.step(&gradients(step, &params, &vectors, device)).unwrap();
            check_step(&format!("{} step {i}", name(case)), step, &params, &vectors);
        }
    }
    assert_eq!(vectors.cases.len(), 22);
}

/// Each step is taken by a new optimizer on new parameters, which got the state of the one before.
fn state_goes_to_another_optimizer<B: Backend>(device: &Device<B>) {
    let vectors = Vectors::load("optimizers");
    for case in &vectors.cases {
        let mut params = params(case, &vectors, device);
        let mut state = None;
        for (i, step) in case["steps"].as_array().unwrap().iter().enumerate() {
            params = params.iter().map(|p| Param::new(p.tensor()).unwrap()).collect();
            let mut optimizer = optimizer(case, &params);
            if let Some(state) = &state {
                optimizer.set_lr(77.0);
                optimizer.load_state_dict(state).unwrap();
            }
            optimizer.step(&gradients(step, &params, &vectors, device)).unwrap();
            check_step(&format!("{} step {i}, resumed", name(case)), step, &params, &vectors);
            state = Some(optimizer.state_dict().unwrap());
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
    let cases = json(&data("optimizers").join("schedules.json"));
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
