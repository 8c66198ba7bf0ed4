//! Moving optimizer state, and schedules compared with PyTorch's. The conformance suite compares the optimizers
//! themselves with PyTorch's.

use crate::common::{data, json, name, randn};
use crate::resume::Heavy;
use polygrad_nn::optim::*;
use polygrad_nn::*;
use polygrad_reference::Reference;
use polygrad_tensor::{Backend, DType, Device, Gradients, HostTensor, Shape, Tensor};
use serde_json::Value;

on_backends!(
    state_goes_to_another_optimizer,
    groups_have_rates_of_their_own,
    groups_share_no_parameter,
    a_parameter_that_is_given_twice_counts_once,
    gradients_that_do_not_fit_change_nothing,
    gradients_that_are_not_finite_are_refused_on_request,
    state_of_groups_is_kept,
    four_parts_give_the_step_of_the_whole_batch,
    a_backward_step_is_a_step_that_gives_the_loss,
    a_rule_of_ones_own_is_an_optimizer,
);

type Build<B> = fn(Vec<Param<B>>) -> Box<dyn Optimizer<B>>;

/// Optimizers of each kind, with all possible state.
fn optimizers<B: Backend>() -> [Build<B>; 13] {
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
        |params| Box::new(LionConfig::new(0.01).weight_decay(0.1).build(params).unwrap()),
        |params| Box::new(LAMB::new(params, 0.01).unwrap()),
        |params| Box::new(Muon::new(params, 0.02).unwrap()),
        |params| Box::new(Adagrad::new(params, 0.1).unwrap()),
        |params| Box::new(Adadelta::new(params, 1.0).unwrap()),
        |params| Box::new(Adamax::new(params, 0.01).unwrap()),
        |params| {
            Box::new(
                NAdamConfig::new(0.01)
                    .decoupled_weight_decay(true)
                    .weight_decay(0.1)
                    .build(params)
                    .unwrap(),
            )
        },
        |params| Box::new(RAdam::new(params, 0.01).unwrap()),
    ]
}

/// Gradients with these values: those of `Σ p · g`.
fn gradients<B: Backend>(params: &[Param<B>], grads: &[Tensor<B>]) -> Gradients<B> {
    let products = params.iter().zip(grads);
    let products = products.map(|(param, grad)| param.tensor().mul(grad).unwrap().sum_all().unwrap());
    let total: Tensor<B> = products.reduce(|a, b| a.add(&b).unwrap()).unwrap();
    total.backward().unwrap()
}

fn fresh<B: Backend>(values: &[Tensor<B>]) -> Vec<Param<B>> {
    values.iter().map(|value| Param::new(value.clone()).unwrap()).collect()
}

/// Each step is taken by a new optimizer on new parameters, with the state of the one before.
fn state_goes_to_another_optimizer<B: Backend>(device: &Device<B>) {
    for (i, build) in optimizers::<B>().into_iter().enumerate() {
        // Muon only takes matrices.
        let second: &[usize] = if i == 7 { &[2, 4] } else { &[4] };
        let two = || [randn(&[3, 2], device), randn(second, device)];
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

fn two_params<B: Backend>(device: &Device<B>) -> [Param<B>; 2] {
    let params = [randn(&[3, 2], device), randn(&[4], device)].map(|value| Param::new(value).unwrap());
    for (param, name) in params.iter().zip(["weight", "bias"]) {
        param.set_name(name);
    }
    params
}

fn groups_have_rates_of_their_own<B: Backend>(device: &Device<B>) {
    let [weight, bias] = two_params(device);
    let mut optimizer = SGDConfig::new(0.1).momentum(0.9).build([weight.clone()]).unwrap();
    optimizer.add_group(SGDConfig::new(0.01), [bias.clone()]).unwrap();
    assert_eq!((optimizer.lr(), optimizer.lrs()), (0.1, vec![0.1, 0.01]));
    optimizer.set_lrs(&[0.2, 0.3]).unwrap();
    assert_eq!(optimizer.lrs(), [0.2, 0.3]);
    optimizer.set_lr(0.5);
    assert_eq!(optimizer.lrs(), [0.5, 0.5]);
    assert_eq!(optimizer.base_lrs(), [0.1, 0.01]);
    StepLR::new(2).apply(&mut optimizer, 2).unwrap();
    assert_eq!(optimizer.lrs(), [0.1 * 0.1, 0.01 * 0.1]);
    let boxed: Box<dyn Schedule> = Box::new(ExponentialLR::new(0.5));
    let erased: &mut dyn Optimizer<B> = &mut optimizer;
    boxed.apply(erased, 1).unwrap();
    assert_eq!(erased.lrs(), [0.05, 0.005]);

    let error = optimizer.set_lrs(&[0.1]).unwrap_err().to_string();
    assert!(error.contains("1 learning rates for 2 groups"), "{error}");
    assert_eq!(optimizer.lrs(), [0.05, 0.005]);
    // The second group has no direction to which a momentum could apply.
    let error = optimizer.set_momentum(0.8).unwrap_err().to_string();
    assert!(error.contains("without momentum"), "{error}");
}

fn groups_share_no_parameter<B: Backend>(device: &Device<B>) {
    let [weight, bias] = two_params(device);
    let mut optimizer = Adam::new([weight.clone()], 0.1).unwrap();
    let error = optimizer
        .add_group(AdamConfig::new(0.1), [bias.clone(), weight.clone()])
        .unwrap_err()
        .to_string();
    assert!(error.contains("already in another group: weight"), "{error}");
    let error = optimizer.add_group(AdamConfig::new(-1.0), [bias.clone()]).unwrap_err();
    assert!(error.to_string().contains("lr = -1"), "{error}");
    assert!(optimizer.add_group(AdamConfig::new(0.1), []).is_err());
    assert_eq!(optimizer.lrs(), [0.1]);
    optimizer.add_group(AdamConfig::new(0.1), [bias.clone()]).unwrap();

    let error = Muon::new([weight, bias], 0.1).err().unwrap().to_string();
    assert!(error.contains("bias [4]") && !error.contains("weight"), "{error}");
}

fn a_parameter_that_is_given_twice_counts_once<B: Backend>(device: &Device<B>) {
    let step = |twice: bool| {
        let param = Param::new(Tensor::ones([2], device).unwrap()).unwrap();
        let given = vec![param.clone(); if twice { 2 } else { 1 }];
        let other = Param::new(Tensor::ones([2], device).unwrap()).unwrap();
        let mut optimizer = SGDConfig::new(0.1).momentum(0.9).build([other.clone()]).unwrap();
        optimizer.add_group(SGDConfig::new(0.1).momentum(0.9), given).unwrap();
        for _ in 0..2 {
            let of = [other.clone(), param.clone()];
            let grads = [Tensor::ones([2], device).unwrap(), Tensor::ones([2], device).unwrap()];
            optimizer.step(&gradients(&of, &grads)).unwrap();
        }
        param.tensor().to_vec::<f32>().unwrap()
    };
    assert_eq!(step(true), step(false));
}

fn gradients_that_do_not_fit_change_nothing<B: Backend>(device: &Device<B>) {
    for (i, build) in optimizers::<B>().into_iter().enumerate() {
        let shape: &[usize] = if i == 7 { &[2, 4] } else { &[4] };
        let params = fresh(&[randn(&[3, 2], device), randn(shape, device)]);
        let before: Vec<_> = params.iter().map(|p| p.tensor().to_f64_vec().unwrap()).collect();
        let mut optimizer = build(params.clone());
        // The first fits, the second would have to be broadcast.
        let grads = Gradients::new(params.iter().zip([randn(&[3, 2], device), randn(&[1], device)]));
        let error = optimizer.step(&grads).unwrap_err().to_string();
        assert!(
            error.contains("param1 (a parameter without a name) (gradient [1], parameter"),
            "{error}"
        );
        let after: Vec<_> = params.iter().map(|p| p.tensor().to_f64_vec().unwrap()).collect();
        assert_eq!(before, after);
    }
}

fn gradients_that_are_not_finite_are_refused_on_request<B: Backend>(device: &Device<B>) {
    for (i, build) in optimizers::<B>().into_iter().enumerate() {
        let shape: &[usize] = if i == 7 { &[2, 2] } else { &[4] };
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let params = fresh(&[randn(&[3, 2], device), randn(shape, device)]);
            for (param, name) in params.iter().zip(["weight", "bias"]) {
                param.set_name(name);
            }
            let of = |second: [f64; 4]| {
                let second = Tensor::from_slice(&second, shape, device).unwrap();
                Gradients::new(params.iter().zip([randn(&[3, 2], device), second]))
            };
            let values = || -> Vec<_> { params.iter().map(|p| p.tensor().to_f64_vec().unwrap()).collect() };
            let mut optimizer = build(params.clone());
            optimizer.error_if_nonfinite(true);
            // The square of this number overflows, but the number itself is finite.
            optimizer
                .step(&of([1.0, if i == 0 { -1e200 } else { -1.0 }, 2.0, 0.5]))
                .unwrap();
            let (before, state) = (values(), optimizer.state_dict().unwrap());
            let error = optimizer.step(&of([1.0, bad, 2.0, -3.0])).unwrap_err().to_string();
            assert!(error.contains("this parameter are not finite: bias;"), "{error}");
            assert_eq!(values(), before);
            let same = |name: &str| {
                let bits = |state: &StateDict| -> Vec<u64> {
                    state
                        .get(name)
                        .unwrap()
                        .to_f64_vec()
                        .iter()
                        .map(|x| x.to_bits())
                        .collect()
                };
                bits(&state) == bits(&optimizer.state_dict().unwrap())
            };
            assert!(state.keys().all(same));
            optimizer.error_if_nonfinite(false);
            optimizer.step(&of([1.0, f64::NAN, 2.0, -3.0])).unwrap();
            // Lion only uses the sign, and NaN has none.
            assert!(i == 5 || values()[1].iter().any(|x| x.is_nan()));
        }
    }
}

fn state_of_groups_is_kept<B: Backend>(device: &Device<B>) {
    let [weight, bias] = two_params(device);
    let build = |weight: &Param<B>, bias: &Param<B>, lr: f64| {
        let mut optimizer = AdamConfig::new(lr).amsgrad(true).build([weight.clone()]).unwrap();
        optimizer.add_group(AdamConfig::new(lr / 10.0), [bias.clone()]).unwrap();
        optimizer
    };
    let mut one = build(&weight, &bias, 0.1);
    let grads = [randn(&[3, 2], device), randn(&[4], device)];
    one.set_lrs(&[0.3, 0.4]).unwrap();
    one.step(&gradients(&[weight.clone(), bias.clone()], &grads)).unwrap();
    let state = one.state_dict().unwrap();
    assert!(state.contains("weight.max_exp_avg_sq") && !state.contains("bias.max_exp_avg_sq"));

    let mut other = build(&weight, &bias, 0.7);
    other.load_state_dict(&state).unwrap();
    assert_eq!((other.lrs(), other.base_lrs()), (vec![0.3, 0.4], vec![0.1, 0.1 / 10.0]));

    let mut single = Adam::new([weight.clone(), bias.clone()], 0.1).unwrap();
    let error = single.load_state_dict(&state).unwrap_err().to_string();
    assert!(
        error.contains("lr (groups of the optimizer: 1, of the state: 2)"),
        "{error}"
    );
    // Files from before groups existed have a single rate of rank 0, and no base rate.
    let mut old: StateDict = [("lr".to_owned(), HostTensor::scalar(0.25))].into_iter().collect();
    single.load_state_dict(&old).unwrap();
    assert_eq!((single.lrs(), single.base_lrs()), (vec![0.25], vec![0.1]));
    old.insert("lr", HostTensor::new(Shape::from([2]), vec![0.1, 0.2]).unwrap());
    assert!(single.load_state_dict(&old).is_err());
}

/// Accumulates the mean loss of each part, divided by the number of parts.
fn four_parts_give_the_step_of_the_whole_batch<B: Backend>(device: &Device<B>) {
    let model = Linear::new(3, 2, device).unwrap();
    model.to_dtype(DType::F64).unwrap();
    let (x, y) = (randn(&[12, 3], device), randn(&[12, 2], device));
    let loss = |x: &Tensor<B>, y: &Tensor<B>| loss::mse_loss(&model.forward(x).unwrap(), y).unwrap();
    let whole = loss(&x, &y).backward().unwrap();
    let mut sum: Option<Gradients<B>> = None;
    for (x, y) in x.chunk(4, 0).unwrap().iter().zip(&y.chunk(4, 0).unwrap()) {
        let part = (loss(x, y) / 4.0).unwrap().backward().unwrap();
        match &mut sum {
            Some(sum) => sum.accumulate(part).unwrap(),
            None => sum = Some(part),
        }
    }
    let start = model.state_dict().unwrap();
    let mut after = Vec::new();
    for gradients in [whole, sum.unwrap()] {
        model.load_state_dict(&start, true).unwrap();
        SGD::new(model.parameters(), 0.1).unwrap().step(&gradients).unwrap();
        after.push(model.weight.tensor().to_f64_vec().unwrap());
    }
    let before = start.get("weight").unwrap().to_f64_vec();
    for ((whole, parts), before) in after[0].iter().zip(&after[1]).zip(before) {
        assert!((whole - parts).abs() < 1e-15, "{whole} {parts}");
        assert!((whole - before).abs() > 1e-6, "the step changed nothing");
    }
}

fn part(part: &Value) -> Box<dyn Schedule> {
    schedule(part["scheduler"].as_str().unwrap(), &part["init"])
}

fn one_cycle(init: &Value) -> OneCycleLR {
    let default = OneCycleLR::new(init["total_steps"].as_u64().unwrap());
    let number = |field: &str, default: f64| init.get(field).map_or(default, |v| v.as_f64().unwrap());
    OneCycleLR {
        pct_start: number("pct_start", default.pct_start),
        anneal_strategy: match init.get("anneal_strategy").and_then(Value::as_str) {
            Some("linear") => AnnealStrategy::Linear,
            _ => AnnealStrategy::Cos,
        },
        three_phase: init["three_phase"].as_bool().unwrap_or(false),
        div_factor: number("div_factor", default.div_factor),
        final_div_factor: number("final_div_factor", default.final_div_factor),
        base_momentum: number("base_momentum", default.base_momentum),
        max_momentum: number("max_momentum", default.max_momentum),
        ..default
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
        "CosineAnnealingWarmRestarts" => Box::new(CosineAnnealingWarmRestarts {
            t_0: count("T_0", 0),
            t_mult: count("T_mult", 1),
            eta_min: number("eta_min", 0.0),
        }),
        "CyclicLR" => Box::new(CyclicLR {
            max_lr: number("max_lr", f64::NAN),
            step_size_up: count("step_size_up", 2000),
            step_size_down: count("step_size_down", count("step_size_up", 2000)),
            mode: match init.get("mode").and_then(Value::as_str) {
                Some("triangular2") => CyclicMode::Triangular2,
                Some("exp_range") => CyclicMode::ExpRange(number("gamma", 1.0)),
                _ => CyclicMode::Triangular,
            },
        }),
        "LinearLR" => Box::new(LinearLR {
            start_factor: number("start_factor", 1.0 / 3.0),
            end_factor: number("end_factor", 1.0),
            total_iters: count("total_iters", 5),
        }),
        "ExponentialLR" => Box::new(ExponentialLR::new(number("gamma", 0.0))),
        "MultiStepLR" => {
            let milestones = init["milestones"].as_array().unwrap();
            let milestones: Vec<u64> = milestones.iter().map(|m| m.as_u64().unwrap()).collect();
            Box::new(MultiStepLR {
                gamma: number("gamma", 0.1),
                ..MultiStepLR::new(milestones)
            })
        }
        "PolynomialLR" => Box::new(PolynomialLR {
            total_iters: count("total_iters", 5),
            power: number("power", 1.0),
        }),
        "OneCycleLR" => Box::new(one_cycle(init)),
        "ChainedScheduler" => {
            let mut rest = init["schedulers"].as_array().unwrap().iter().map(part);
            let first = ChainedScheduler::new(rest.next().unwrap());
            Box::new(rest.fold(first, ChainedScheduler::and))
        }
        "SequentialLR" => {
            let part = |i: usize| part(&init["schedulers"][i]);
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

/// The rate of each epoch for the recorded metrics. In the middle a new schedule takes over.
fn plateau_rates(init: &Value, metrics: &[Value]) -> Vec<f64> {
    let number = |field: &str, default: f64| init.get(field).map_or(default, |v| v.as_f64().unwrap());
    let count = |field: &str, default: u64| init.get(field).map_or(default, |v| v.as_u64().unwrap());
    let mode = match init.get("mode").and_then(Value::as_str) {
        Some("max") => PlateauMode::Max,
        _ => PlateauMode::Min,
    };
    let threshold_mode = match init.get("threshold_mode").and_then(Value::as_str) {
        Some("abs") => ThresholdMode::Abs,
        _ => ThresholdMode::Rel,
    };
    let config = ReduceLROnPlateauConfig::new(mode)
        .factor(number("factor", 0.1))
        .patience(count("patience", 10))
        .threshold(number("threshold", 1e-4))
        .threshold_mode(threshold_mode)
        .cooldown(count("cooldown", 0))
        .min_lr(number("min_lr", 0.0))
        .eps(number("eps", 1e-8));
    let param = Param::new(randn(&[1], &Device::<Reference>::default())).unwrap();
    let mut optimizer = SGD::new([param], 0.1).unwrap();
    let mut plateau = config.build().unwrap();
    let mut rates = Vec::new();
    for (i, metric) in metrics.iter().enumerate() {
        if i == 11 {
            let state = plateau.state_dict();
            plateau = config.build().unwrap();
            plateau.load_state_dict(&state).unwrap();
        }
        rates.push(optimizer.lr());
        let lowered = plateau.step(metric.as_f64().unwrap(), &mut optimizer).unwrap();
        assert!(lowered || optimizer.lr() == rates[i]);
    }
    rates
}

#[test]
fn a_plateau_takes_no_other_state() {
    let mut plateau = ReduceLROnPlateauConfig::new(PlateauMode::Max).build().unwrap();
    let error = plateau.load_state_dict(&StateDict::new()).unwrap_err().to_string();
    assert!(error.contains("missing: best"), "{error}");
    let mut state = plateau.state_dict();
    state.insert("cooldown_counter", HostTensor::scalar(-1i64));
    let error = plateau.load_state_dict(&state).unwrap_err().to_string();
    assert!(error.contains("cooldown_counter = -1"), "{error}");
    assert!(
        ReduceLROnPlateauConfig::new(PlateauMode::Min)
            .factor(1.0)
            .build()
            .is_err()
    );
}

#[test]
fn schedules_match_pytorch() {
    let cases = json(&data("schedules.json"));
    for case in cases.as_array().unwrap() {
        let (scheduler, init) = (case["scheduler"].as_str().unwrap(), &case["init"]);
        let base = case["base_lr"].as_f64().unwrap();
        let expected: Vec<f64> = numbers(&case["lr"]);
        let found: Vec<f64> = match case["metrics"].as_array() {
            Some(metrics) => plateau_rates(init, metrics),
            None => {
                let schedule = schedule(scheduler, init);
                (0..).zip(&expected).map(|(step, _)| schedule.lr(base, step)).collect()
            }
        };
        // PyTorch multiplies the rate step by step; only the rounding differs.
        agree(&found, &expected, name(case));
        if !case["momentum"].is_null() {
            let cycle = one_cycle(init);
            let expected = numbers(&case["momentum"]);
            let found: Vec<f64> = (0..).zip(&expected).map(|(step, _)| cycle.momentum(step)).collect();
            agree(&found, &expected, name(case));
        }
    }
    assert_eq!(cases.as_array().unwrap().len(), 33);
}

fn numbers(list: &Value) -> Vec<f64> {
    list.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect()
}

fn agree(found: &[f64], expected: &[f64], case: &str) {
    assert_eq!(found.len(), expected.len(), "{case}");
    for (epoch, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!(
            (found - expected).abs() <= 1e-15,
            "{case}: epoch {epoch}: {found}, not {expected}"
        );
    }
}

fn a_backward_step_is_a_step_that_gives_the_loss<B: Backend>(device: &Device<B>) {
    let (x, y) = (randn(&[4, 3], device), randn(&[4, 2], device));
    let model = Linear::new(3, 2, device).unwrap();
    model.to_dtype(DType::F64).unwrap();
    let start = model.state_dict().unwrap();
    let loss = || loss::mse_loss(&model.forward(&x).unwrap(), &y).unwrap();
    let mut optimizer = SGD::new(model.parameters(), 0.1).unwrap();
    let expected = loss().item().unwrap();
    optimizer.step(&loss().backward().unwrap()).unwrap();
    let weights = || model.weight.tensor().to_f64_vec().unwrap();
    let stepped = weights();
    model.load_state_dict(&start, true).unwrap();
    let value = optimizer.backward_step(loss()).unwrap();
    assert_eq!(value, expected);
    assert_eq!(weights(), stepped);
    // A loss without a graph is an error, and changes nothing.
    let error = optimizer.backward_step(x.mean_all().unwrap()).unwrap_err();
    assert_eq!(error.kind(), polygrad_tensor::ErrorKind::NoGradient, "{error}");
    assert_eq!(weights(), stepped);
}

fn a_rule_of_ones_own_is_an_optimizer<B: Backend>(device: &Device<B>) {
    let random = |shape: &[usize]| Tensor::randn(shape, device).unwrap();
    let (values, grads) = ([random(&[3, 2]), random(&[2])], [random(&[3, 2]), random(&[2])]);
    let after = |steps: usize, make: &dyn Fn(Vec<Param<B>>) -> Box<dyn Optimizer<B>>| {
        let params = fresh(&values);
        let mut optimizer = make(params.clone());
        for _ in 0..steps {
            optimizer.step(&gradients(&params, &grads)).unwrap();
        }
        let values: Vec<_> = params.iter().map(|p| p.tensor().to_vec::<f32>().unwrap()).collect();
        (values, optimizer.state_dict().unwrap())
    };
    let (own, state) = after(3, &|params| {
        Box::new(CustomOptimizer::new(Heavy { lr: 0.1, fails: false }, params).unwrap())
    });
    let (sgd, sgd_state) = after(3, &|params| {
        Box::new(SGDConfig::new(0.1).momentum(0.9).build(params).unwrap())
    });
    for (own, sgd) in own.concat().iter().zip(sgd.concat()) {
        assert!((own - sgd).abs() < 1e-5, "{own} {sgd}");
    }
    assert!(state.keys().eq(sgd_state.keys()));

    // A rule that changes a shape is rejected, and nothing changes.
    let params = fresh(&values);
    let mut optimizer = CustomOptimizer::new(Heavy { lr: 0.1, fails: true }, params.clone()).unwrap();
    let error = optimizer.step(&gradients(&params, &grads)).unwrap_err().to_string();
    assert!(error.contains("momentum_buffer") && error.contains("[3, 2]"), "{error}");
    assert_eq!(
        params[0].tensor().to_vec::<f32>().unwrap(),
        values[0].to_vec::<f32>().unwrap()
    );
    let groups = optimizer.add_group(Heavy { lr: 0.1, fails: false }, params);
    assert!(groups.unwrap_err().to_string().contains("already in another group"));
    assert!(CustomOptimizer::new(Heavy { lr: -1.0, fails: false }, fresh(&values)).is_err());
}
