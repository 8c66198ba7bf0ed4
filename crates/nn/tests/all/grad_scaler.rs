//! Loss scaling compared with PyTorch's: scripts/make_autocast_table.py recorded scales and skipped steps.

use polygrad_core::HostTensor;
use polygrad_nn::loss::mse_loss;
use polygrad_nn::optim::{GradScaler, GradScalerConfig, SGD, clip_grad_norm};
use polygrad_nn::{Linear, Module, Param, StateDict};
use polygrad_tensor::{Backend, DType, Device, Error, ErrorKind, Gradients, Tensor, autocast};
use serde_json::Value;

use crate::common::{data, json};

on_backends!(
    scales_and_skipped_steps_are_pytorchs,
    a_state_continues_where_it_was,
    small_gradients_of_f16_survive,
    a_loss_of_f16_is_scaled_in_f32,
    two_optimizers_share_a_scale,
    what_is_wrong_is_said,
);

fn config(options: &Value) -> GradScalerConfig {
    let mut config = GradScalerConfig::new();
    for (name, value) in options.as_object().unwrap() {
        config = match name.as_str() {
            "growth_interval" => config.growth_interval(value.as_u64().unwrap()),
            "init_scale" => config.init_scale(value.as_f64().unwrap()),
            "growth_factor" => config.growth_factor(value.as_f64().unwrap()),
            "backoff_factor" => config.backoff_factor(value.as_f64().unwrap()),
            "enabled" => config.enabled(value.as_bool().unwrap()),
            _ => panic!("{name}"),
        };
    }
    config
}

fn param<B: Backend>(name: &str, value: f32, device: &Device<B>) -> Param<B> {
    let param = Param::new(Tensor::new([value], device).unwrap()).unwrap();
    param.set_name(name);
    param
}

fn gradients<B: Backend>(scaler: &GradScaler, param: &Param<B>, injected: f64) -> Gradients<B> {
    let loss = (param.tensor() * 0.75).unwrap().sum_all().unwrap();
    let mut gradients = scaler.scale(loss).unwrap().backward().unwrap();
    for gradient in gradients.iter_mut() {
        *gradient = (&*gradient + injected).unwrap();
    }
    gradients
}

fn scales_and_skipped_steps_are_pytorchs<B: Backend>(device: &Device<B>) {
    let recorded = json(&data("autocast").join("scaler.json"));
    let mut skipped = 0;
    for run in recorded.as_array().unwrap() {
        let mut scaler = config(&run["options"]).build().unwrap();
        let param = param("p", 1.0, device);
        let mut optimizer = SGD::new([param.clone()], 0.125).unwrap();
        for (i, step) in run["steps"].as_array().unwrap().iter().enumerate() {
            let injected: f64 = step["injected"].as_str().unwrap().parse().unwrap();
            let mut gradients = gradients(&scaler, &param, injected);
            if run["clip"].as_bool().unwrap() && scaler.unscale(&mut gradients).unwrap() {
                clip_grad_norm(&mut gradients, 0.5).unwrap();
            }
            let stepped = scaler.step(&mut optimizer, gradients).unwrap();
            scaler.update().unwrap();
            let place = format!("{}, step {i}", run["options"]);
            assert_eq!(stepped, step["stepped"].as_bool().unwrap(), "{place}");
            assert_eq!(scaler.get_scale(), step["scale"].as_f64().unwrap(), "{place}");
            let (found, expected) = (param.tensor().item().unwrap(), step["param"].as_f64().unwrap());
            assert!((found - expected).abs() <= 2e-7, "{place}: {found}, not {expected}");
            let tracker = scaler
                .state_dict()
                .get("_growth_tracker")
                .map_or(0.0, |x| x.to_f64_vec()[0]);
            assert_eq!(tracker, step["tracker"].as_f64().unwrap(), "{place}");
            skipped += usize::from(!stepped);
        }
    }
    assert_eq!(skipped, 16);
}

fn a_state_continues_where_it_was<B: Backend>(device: &Device<B>) {
    let param = param("p", 1.0, device);
    let mut optimizer = SGD::new([param.clone()], 0.125).unwrap();
    let mut scaler = GradScalerConfig::new()
        .growth_interval(3)
        .init_scale(8.0)
        .build()
        .unwrap();
    for injected in [0.0, f64::NAN, 0.0, 0.0] {
        let gradients = gradients(&scaler, &param, injected);
        scaler.step(&mut optimizer, gradients).unwrap();
        scaler.update().unwrap();
    }
    let state = scaler.state_dict();
    let mut names: Vec<_> = state.keys().collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "_growth_tracker",
            "backoff_factor",
            "growth_factor",
            "growth_interval",
            "scale"
        ]
    );
    let mut again = GradScaler::new();
    again.load_state_dict(&state).unwrap();
    let values = |state: &StateDict| -> Vec<_> {
        state
            .iter()
            .map(|(name, x)| (name.to_owned(), x.to_f64_vec()))
            .collect()
    };
    assert_eq!(values(&again.state_dict()), values(&state));
    for scaler in [&mut scaler, &mut again] {
        let gradients = gradients(scaler, &param, 0.0);
        scaler.step(&mut optimizer, gradients).unwrap();
        scaler.update().unwrap();
        assert_eq!(scaler.get_scale(), 8.0);
    }
    let mut off = GradScalerConfig::new().enabled(false).build().unwrap();
    assert!(off.state_dict().is_empty() && !off.is_enabled());
    off.load_state_dict(&state).unwrap();
    assert_eq!(off.get_scale(), 1.0);
}

/// Without a scale the whole gradient would underflow in f16.
fn small_gradients_of_f16_survive<B: Backend>(device: &Device<B>) {
    let model = Linear::new(4, 3, device).unwrap();
    let x = Tensor::full([2, 4], 1e-4, device).unwrap();
    let y = Tensor::zeros([2, 3], device).unwrap();
    model.parameters()[1]
        .set(&Tensor::full([3], 1e-4, device).unwrap())
        .unwrap();
    let run = |scaler: &mut GradScaler| {
        let loss = autocast(DType::F16, || mse_loss(&model.forward(&x)?, &y)).unwrap();
        let loss = (loss * 1e-4).unwrap();
        let mut gradients = scaler.scale(loss).unwrap().backward().unwrap();
        assert!(scaler.unscale(&mut gradients).unwrap());
        gradients.by_name("weight").unwrap().to_f64_vec().unwrap()
    };
    let scaled = run(&mut GradScaler::new());
    let plain = run(&mut GradScalerConfig::new().enabled(false).build().unwrap());
    assert!(plain.iter().all(|g| *g == 0.0), "{plain:?}");
    assert!(scaled.iter().any(|g| *g != 0.0), "{scaled:?}");
}

fn a_loss_of_f16_is_scaled_in_f32<B: Backend>(device: &Device<B>) {
    for shape in [vec![], vec![2]] {
        let loss = Tensor::full(&shape[..], 3.0, (device, DType::F16)).unwrap();
        let scaled = GradScaler::new().scale(loss.clone()).unwrap();
        assert_eq!(scaled.dtype(), DType::F32);
        assert!(scaled.to_f64_vec().unwrap().iter().all(|x| *x == 196_608.0));
    }
}

fn two_optimizers_share_a_scale<B: Backend>(device: &Device<B>) {
    let params = [param("a", 1.0, device), param("b", 1.0, device)];
    let mut optimizers = params.clone().map(|param| SGD::new([param], 0.125).unwrap());
    let mut scaler = GradScaler::new();
    let mut stepped = Vec::new();
    for ((param, optimizer), injected) in params.iter().zip(&mut optimizers).zip([f64::INFINITY, 0.0]) {
        let gradients = gradients(&scaler, param, injected);
        stepped.push(scaler.step(optimizer, gradients).unwrap());
    }
    scaler.update().unwrap();
    assert_eq!((stepped, scaler.get_scale()), (vec![false, true], 32768.0));
}

#[track_caller]
fn says(result: Result<impl Sized, Error>, kind: ErrorKind, parts: &[&str]) {
    let error = result.err().expect("an error");
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{text}");
    assert!(parts.iter().all(|part| text.contains(part)), "{text}");
}

fn what_is_wrong_is_said<B: Backend>(device: &Device<B>) {
    let new = GradScalerConfig::new;
    let invalid = ErrorKind::InvalidArgument;
    says(new().init_scale(0.0).build(), invalid, &["GradScaler", "scale 0"]);
    says(new().init_scale(1e300).build(), invalid, &["scale"]);
    says(new().init_scale(f64::NAN).build(), invalid, &["scale NaN"]);
    says(new().growth_factor(1.0).build(), invalid, &["growth_factor = 1"]);
    says(new().growth_factor(f64::NAN).build(), invalid, &["growth_factor = NaN"]);
    says(new().backoff_factor(1.0).build(), invalid, &["backoff_factor = 1"]);
    says(new().backoff_factor(0.0).build(), invalid, &["backoff_factor = 0"]);
    says(new().growth_interval(0).build(), invalid, &["growth_interval = 0"]);

    let param = param("p", 1.0, device);
    let mut scaler = GradScaler::new();
    says(scaler.update(), invalid, &["update", "no gradients", "step"]);
    let mut twice = gradients(&scaler, &param, 0.0);
    assert!(scaler.unscale(&mut twice).unwrap());
    says(scaler.unscale(&mut twice), invalid, &["unscale", "already"]);

    let narrow = Tensor::ones([2], (device, DType::F16))
        .unwrap()
        .requires_grad()
        .unwrap();
    let mut gradients = narrow.sum_all().unwrap().backward().unwrap();
    says(
        GradScaler::new().unscale(&mut gradients),
        ErrorKind::DType,
        &["f16", "autocast"],
    );

    let state = scaler.state_dict();
    let mut other = GradScaler::new();
    says(
        other.load_state_dict(&StateDict::new()),
        ErrorKind::StateDict,
        &["missing: scale"],
    );
    for (name, value, part) in [
        ("scale", -1.0, "the scale -1"),
        ("growth_factor", 0.5, "growth_factor = 0.5"),
        ("_growth_tracker", 0.5, "_growth_tracker = 0.5"),
    ] {
        let mut wrong = state.clone();
        wrong.insert(name, HostTensor::scalar(value));
        says(other.load_state_dict(&wrong), ErrorKind::StateDict, &[part]);
    }
    assert_eq!(other.get_scale(), 65536.0);
}
