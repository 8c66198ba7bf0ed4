//! The moving average of a model compared with PyTorch's, and models that get their own values back.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::common::{data, json};
use polygrad_nn::optim::*;
use polygrad_nn::*;
use polygrad_tensor::{Backend, DType, Device, HostTensor, Shape, Tensor};
use serde_json::Value;

on_backends!(
    averages_are_those_of_pytorch,
    the_model_gets_its_values_back,
    a_state_that_does_not_fit_is_told,
    narrow_dtypes_are_averaged_in_f32,
    shared_parameters_are_averaged_once,
);

fn model<B: Backend>(device: &Device<B>) -> Sequential<B> {
    let model = Sequential::new()
        .push(Linear::new(2, 3, device).unwrap())
        .push(BatchNorm1d::new(3, device).unwrap());
    model.to_dtype(DType::F64).unwrap();
    model
}

/// A recorded state dict in the shapes of another.
fn state(recorded: &Value, like: &StateDict) -> StateDict {
    let entry = |(name, like): (&str, &HostTensor)| {
        let values = recorded[name].as_array().unwrap();
        let values: Vec<f64> = values.iter().map(|v| v.as_f64().unwrap()).collect();
        let value = HostTensor::new(*like.shape(), values).unwrap().cast(like.dtype());
        (name.to_owned(), value)
    };
    assert_eq!(recorded.as_object().unwrap().len(), like.len());
    like.iter().map(entry).collect()
}

/// Compares all averages; PyTorch also averages the number of batches, and rounds it down.
fn agree(found: &StateDict, expected: &StateDict) {
    assert!(found.keys().eq(expected.keys()));
    for (name, value) in found.iter().filter(|(name, _)| !name.ends_with("num_batches_tracked")) {
        let expected = expected.get(name).unwrap().to_f64_vec();
        for (found, expected) in value.to_f64_vec().iter().zip(expected) {
            assert!((found - expected).abs() < 1e-15, "{name}: {found}, not {expected}");
        }
    }
}

fn averages_are_those_of_pytorch<B: Backend>(device: &Device<B>) {
    let cases = json(&data("ema.json"));
    assert_eq!(cases.as_array().unwrap().len(), 2);
    for case in cases.as_array().unwrap() {
        let model = model(device);
        let config = EmaConfig::new(case["decay"].as_f64().unwrap());
        let config = config.use_buffers(case["use_buffers"].as_bool().unwrap());
        let mut ema = config.build(&model).unwrap();
        let (models, averages) = (case["models"].as_array().unwrap(), case["averages"].as_array().unwrap());
        for (i, (values, average)) in models.iter().zip(averages).enumerate() {
            let values = state(values, &model.state_dict().unwrap());
            model.load_state_dict(&values, true).unwrap();
            if i == 2 {
                // A new one continues.
                let state = ema.state_dict().unwrap();
                ema = config.build(&model).unwrap();
                ema.load_state_dict(&state).unwrap();
            }
            ema.update().unwrap();
            let found = ema.state_dict().unwrap();
            let expected = state(average, &found);
            agree(&found, &expected);
            let inside = ema.with_averaged(|| model.state_dict().unwrap()).unwrap();
            agree(&inside, &expected.with_prefix("module."));
            agree(&model.state_dict().unwrap(), &values);
        }
        assert_eq!(ema.n_averaged(), 4);
    }
}

fn the_model_gets_its_values_back<B: Backend>(device: &Device<B>) {
    let model = Linear::new(2, 2, device).unwrap();
    let ema = Ema::new(&model, 0.5).unwrap();
    let average = model.weight.tensor().to_f64_vec().unwrap();
    model.weight.set(&Tensor::zeros([2, 2], device).unwrap()).unwrap();
    let weight = || model.weight.tensor().to_f64_vec().unwrap();
    assert_eq!(ema.with_averaged(weight).unwrap(), average);
    assert_eq!(weight(), [0.0; 4]);
    let panicked = catch_unwind(AssertUnwindSafe(|| ema.with_averaged(|| panic!("inside")).unwrap()));
    assert!(panicked.is_err());
    assert_eq!(weight(), [0.0; 4]);
    // The average takes the model's current dtype.
    model.to_dtype(DType::F64).unwrap();
    assert_eq!(ema.with_averaged(weight).unwrap(), average);
    assert_eq!((weight(), model.weight.dtype()), (vec![0.0; 4], DType::F64));
}

fn a_state_that_does_not_fit_is_told<B: Backend>(device: &Device<B>) {
    let model = Linear::new(2, 2, device).unwrap();
    let mut ema = Ema::new(&model, 0.5).unwrap();
    let error = ema
        .load_state_dict(&model.state_dict().unwrap())
        .unwrap_err()
        .to_string();
    assert!(error.contains("n_averaged is missing"), "{error}");
    let mut state = StateDict::new();
    state.insert("n_averaged", HostTensor::scalar(3i64));
    state.insert("module.wieght", HostTensor::scalar(1.0));
    state.insert("module.bias", HostTensor::new(Shape::from([3]), vec![0.0; 3]).unwrap());
    let error = ema.load_state_dict(&state).unwrap_err().to_string();
    for part in [
        "missing: module.weight",
        "unexpected: module.wieght",
        "mismatched: module.bias",
    ] {
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(ema.n_averaged(), 0);
    assert!(Ema::new(&model, 1.1).is_err());
}

fn narrow_dtypes_are_averaged_in_f32<B: Backend>(device: &Device<B>) {
    let model = Linear::new(1, 1, device).unwrap();
    model.to_dtype(DType::BF16).unwrap();
    let value = |x: f64| Tensor::full([1, 1], x, (device, DType::BF16)).unwrap();
    let mut ema = Ema::new(&model, 0.999).unwrap();
    model.weight.set(&value(1.0)).unwrap();
    ema.update().unwrap();
    model.weight.set(&value(2.0)).unwrap();
    for _ in 0..100 {
        ema.update().unwrap();
    }
    let found = ema.with_averaged(|| model.weight.tensor()).unwrap();
    let expected = 2.0 - 0.999f64.powf(100.0);
    assert_eq!(found.dtype(), DType::BF16);
    assert!((found.item().unwrap() - expected).abs() < 4e-3, "{found:?}");
}

fn shared_parameters_are_averaged_once<B: Backend>(device: &Device<B>) {
    let one = Linear::new(2, 2, device).unwrap();
    let two = Linear::of(one.weight.clone(), None);
    let model = Sequential::new().push(one).push(two);
    let mut ema = Ema::new(&model, 0.5).unwrap();
    let weight = &model.parameters()[0];
    for value in [1.0, 2.0] {
        weight
            .set(&Tensor::full([2, 2], value, (device, DType::F32)).unwrap())
            .unwrap();
        ema.update().unwrap();
    }
    let state = ema.state_dict().unwrap();
    for name in ["module.0.weight", "module.1.weight"] {
        assert_eq!(state.get(name).unwrap().to_f64_vec(), [1.5; 4]);
    }
}
