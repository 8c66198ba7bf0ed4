//! Rounding for 8 bits: PyTorch's values and gradients, learning, and operations on quantized layers.
//! scripts/make_fake_quantize_vectors.py made the values.

use polygrad_nn::lora::{self, LoraConfig};
use polygrad_nn::loss::mse_loss;
use polygrad_nn::optim::{AdamW, Optimizer, SGD};
use polygrad_nn::qat::{self, QatConfig};
use polygrad_nn::*;
use polygrad_tensor::{DType, Device, Error, Result, Tensor, manual_seed, no_grad};
use serde_json::Value;

use crate::common::{data, json};

on_backends!(
    numbers_and_gradients_are_pytorchs,
    halves_fall_as_in_onnx,
    ranges_come_from_data,
    ranges_have_the_gradient_of_lsq,
    training_brings_the_rounded_model_nearer,
    a_state_comes_back,
    what_does_not_fit_is_refused,
    a_captured_step_is_the_same,
    ranges_follow_for_a_while,
);

/// A user's model without any support for quantization.
#[derive(Module)]
#[module(forward)]
struct Net {
    conv: Conv2d,
    norm: BatchNorm2d,
    fc: Linear,
}

impl Net {
    fn new(device: &Device) -> Self {
        manual_seed(3);
        Self {
            conv: Conv2dConfig::new(2, 4, 3).padding(1).build(device).unwrap(),
            norm: BatchNorm2d::new(4, device).unwrap(),
            fc: Linear::new(4 * 16, 3, device).unwrap(),
        }
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.norm.forward(&self.conv.forward(x)?)?.relu()?;
        self.fc.forward(&y.flatten(1, -1)?)
    }
}

fn input(device: &Device) -> Tensor {
    manual_seed(5);
    Tensor::randn([8, 2, 4, 4], device).unwrap()
}

/// A quantized model with known ranges.
fn rounded(device: &Device) -> Net {
    let model = Net::new(device);
    qat::attach(&model, &QatConfig::new()).unwrap();
    qat::calibrate(&model, || model.forward(&input(device))).unwrap();
    model
}

fn floats(value: &Value) -> Vec<f64> {
    let list = value.as_array().unwrap();
    list.iter().map(|x| x.as_f64().unwrap()).collect()
}

fn close(found: &Tensor, expected: &[f64], what: &str) {
    let found = found.to_f64_vec().unwrap();
    assert_eq!(found.len(), expected.len(), "{what}");
    for (a, b) in found.iter().zip(expected) {
        assert!((a - b).abs() <= 2e-6 * (1.0 + b.abs()), "{what}: {a} {b}");
    }
}

fn numbers_and_gradients_are_pytorchs(device: &Device) {
    for case in json(&data("fake_quantize.json")).as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let shape: Vec<usize> = floats(&case["shape"]).iter().map(|x| *x as usize).collect();
        let tensor = |key: &str, shape: &[usize]| {
            let values: Vec<f32> = floats(&case[key]).iter().map(|x| *x as f32).collect();
            Tensor::from_vec(values, shape, device).unwrap()
        };
        let leaf = |key: &str, shape: &[usize]| tensor(key, shape).requires_grad().unwrap();
        let count = case["scale"].as_array().unwrap().len();
        let leaves = [leaf("x", &shape), leaf("scale", &[count]), leaf("zero", &[count])];
        let bounds = floats(&case["bounds"]);
        let bounds = [bounds[0] as i32, bounds[1] as i32];
        let axis = case["axis"].as_i64().map(|axis| axis as isize);
        let [x, scale, zero] = &leaves;
        let y = x.fake_quantize(scale, zero, bounds, axis).unwrap();
        close(&y, &floats(&case["y"]), name);
        let loss = y.mul(tensor("cotangent", &shape)).unwrap().sum_all().unwrap();
        let gradients = loss.backward().unwrap();
        let factor = case["factor"].as_f64();
        for (i, expected) in case["gradients"].as_array().unwrap().iter().enumerate() {
            let mut gradient = gradients.require(&leaves[i]).unwrap().clone();
            if let Some(factor) = factor.filter(|_| i > 0) {
                gradient = (gradient * factor).unwrap();
            }
            close(&gradient, &floats(expected), &format!("{name}, gradient {i}"));
        }
    }
}

/// Numbers halfway between two integers are divided by the scale, as in QuantizeLinear; PyTorch multiplies by its
/// reciprocal, which rounds some of them the other way.
fn halves_fall_as_in_onnx(device: &Device) {
    let scale = 0.3f32;
    let x: Vec<f32> = (0..200).map(|i| scale * (i as f32 + 0.5)).collect();
    let by =
        |steps: &dyn Fn(f32) -> f32| -> Vec<f32> { x.iter().map(|x| steps(*x).round_ties_even() * scale).collect() };
    let (divided, multiplied) = (by(&|x| x / scale), by(&|x| x * (1.0 / scale)));
    assert!(divided != multiplied);
    let one = |value: f32| Tensor::new([value], device).unwrap();
    let y = Tensor::from_vec(x.clone(), [200], device).unwrap();
    let y = y.fake_quantize(&one(scale), &one(0.0), [0, 255], None).unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), divided);
}

fn ranges_come_from_data(device: &Device) {
    let model = Net::new(device);
    let before = model.forward(&input(device)).unwrap();
    assert_eq!(qat::attach(&model, &QatConfig::new()).unwrap(), ["conv", "fc"]);
    // Until ranges are known, the output is NaN, so that it cannot be mistaken for a result.
    let answer = model.forward(&input(device)).unwrap().to_f64_vec().unwrap();
    assert!(answer.iter().all(|x| x.is_nan()));
    let during = qat::calibrate(&model, || no_grad(|| model.forward(&input(device)))).unwrap();
    model.eval();
    let x = input(device).to_f64_vec().unwrap();
    let (low, high) = x
        .iter()
        .fold((0f64, 0f64), |(low, high), x| (low.min(*x), high.max(*x)));
    let state = model.state_dict().unwrap();
    let of = |name: &str| state.get(name).unwrap().to_f64_vec();
    let scale = of("conv.input_quantizer.scale")[0];
    assert!((scale - (high - low) / 255.0).abs() < 1e-6 * scale);
    assert_eq!(of("conv.input_quantizer.zero_point"), [(-low / scale).round()]);
    assert_eq!(of("conv.weight_quantizer.log_range"), [0.0; 4]);
    let weight = of("conv.weight");
    for (scale, weight) in of("conv.weight_quantizer.scale").iter().zip(weight.chunks(18)) {
        let largest = weight.iter().fold(0f64, |m, x| m.max(x.abs()));
        assert!((scale - largest / 127.0).abs() < 1e-6 * scale);
    }
    // It computes with unrounded numbers during calibration, and with nearly the same ones afterwards.
    assert_eq!(before.to_f64_vec().unwrap(), during.to_f64_vec().unwrap());
    model.train();
    let after = model.forward(&input(device)).unwrap();
    let error = after
        .sub(&before)
        .unwrap()
        .abs()
        .unwrap()
        .amax(())
        .unwrap()
        .item()
        .unwrap();
    assert!(error > 0.0 && error < 0.05, "{error}");
    qat::remove(&model);
    assert_eq!(
        model.forward(&input(device)).unwrap().to_f64_vec().unwrap(),
        before.to_f64_vec().unwrap()
    );
    assert!(qat::rounded_layers(&model).is_empty() && model.named_parameters().len() == 6);
}

/// The gradient of a scale's logarithm is the scale times LSQ's factor times PyTorch's gradient of the scale.
fn ranges_have_the_gradient_of_lsq(device: &Device) {
    manual_seed(1);
    let layer = Linear::new(6, 3, device).unwrap();
    qat::attach(&layer, &QatConfig::new()).unwrap();
    let x = Tensor::randn([5, 6], device).unwrap();
    // Calibrated on smaller values, so that some numbers are cut off.
    qat::calibrate(&layer, || layer.forward(&(&x * 0.5)?)).unwrap();
    let state = layer.state_dict().unwrap();
    let of = |name: &str| {
        let host = state.get(name).unwrap().clone();
        Tensor::from_host(host, device).unwrap()
    };
    let (scale, zero) = (of("input_quantizer.scale"), of("input_quantizer.zero_point"));
    let leaf = scale.clone().requires_grad().unwrap();
    let weight = layer.weight.tensor().detach();
    let (steps, none) = (of("weight_quantizer.scale"), Tensor::zeros([1], device).unwrap());
    let w = weight.fake_quantize(&steps, &none, [-127, 127], Some(0)).unwrap();
    let bias = layer.bias.as_ref().unwrap().tensor().detach();
    let y = x
        .fake_quantize(&leaf, &zero, [0, 255], None)
        .unwrap()
        .linear(&w, Some(&bias))
        .unwrap();
    let gradients = y.square().unwrap().sum_all().unwrap().backward().unwrap();
    let slope = gradients.require(&leaf).unwrap().item().unwrap();
    assert!(slope.abs() > 1e-3);
    let rate = 1e-3;
    let mut optimizer = SGD::new(layer.parameters(), rate).unwrap();
    optimizer
        .backward_step(layer.forward(&x).unwrap().square().unwrap().sum_all().unwrap())
        .unwrap();
    let state = layer.state_dict().unwrap();
    let moved = state.get("input_quantizer.log_range").unwrap().to_f64_vec()[0];
    let expected = -rate * slope * scale.item().unwrap() / (6.0f64 * 255.0).sqrt();
    assert!((moved - expected).abs() < 1e-4 * expected.abs(), "{moved} {expected}");
}

fn training_brings_the_rounded_model_nearer(device: &Device) {
    let model = rounded(device);
    let (x, y) = (input(device), Tensor::ones([8, 3], device).unwrap());
    let mut optimizer = AdamW::new(model.parameters(), 3e-3).unwrap();
    let loss = || mse_loss(&model.forward(&x)?, &y);
    let before = loss().unwrap().item().unwrap();
    for _ in 0..60 {
        optimizer.backward_step(loss().unwrap()).unwrap();
    }
    let after = loss().unwrap().item().unwrap();
    assert!(after < 0.02 * before, "{before} {after}");
    let state = model.state_dict().unwrap();
    for name in [
        "conv.input_quantizer",
        "conv.weight_quantizer",
        "fc.input_quantizer",
        "fc.weight_quantizer",
    ] {
        let ranges = state.get(&format!("{name}.log_range")).unwrap().to_f64_vec();
        assert!(
            ranges.iter().all(|x| *x != 0.0 && x.is_finite() && x.abs() < 1.0),
            "{name} {ranges:?}"
        );
    }
}

fn a_state_comes_back(device: &Device) {
    let model = rounded(device);
    model.eval();
    let other = Net::new(device);
    qat::attach(&other, &QatConfig::new()).unwrap();
    other.load_state_dict(&model.state_dict().unwrap(), true).unwrap();
    other.eval();
    let [a, b] = [&model, &other].map(|net| net.forward(&input(device)).unwrap().to_f64_vec().unwrap());
    assert_eq!(a, b);
    // The same in another dtype.
    other.to_dtype(DType::F64).unwrap();
    let wide = other
        .forward(&input(device).to_dtype(DType::F64).unwrap())
        .unwrap()
        .to_f64_vec()
        .unwrap();
    assert!(a.iter().zip(&wide).all(|(a, b)| (a - b).abs() < 0.05), "{a:?} {wide:?}");
}

fn what_does_not_fit_is_refused(device: &Device) {
    let refused = |result: Result<Vec<String>>, words: &[&str]| {
        let error: Error = result.unwrap_err();
        for word in words {
            assert!(error.to_string().contains(word), "{error}\nshould contain {word}");
        }
        assert!(error.hint().is_some(), "{error}");
    };
    let model = Net::new(device);
    let config = QatConfig::new;
    refused(
        qat::attach(&model, &config().targets(["conf"])),
        &["conf", "no layer that can be rounded"],
    );
    refused(
        qat::attach(&model, &config().exclude(["conv", "fc"])),
        &["no layer is left"],
    );
    let embedding = Embedding::new(4, 3, device).unwrap();
    refused(qat::attach(&embedding, &config()), &["no layer is left"]);
    refused(
        qat::calibrate(&model, || Ok(Vec::new())),
        &["no layer of the model is rounded"],
    );
    qat::attach(&model, &config().targets(["fc"])).unwrap();
    refused(qat::attach(&model, &config()), &["fc", "rounded already"]);
    assert_eq!(qat::rounded_layers(&model), ["fc"]);
    refused(qat::calibrate(&model, || Ok(Vec::new())), &["fc", "saw no input"]);
    let nan = Tensor::full([8, 2, 4, 4], f64::NAN, device).unwrap();
    refused(
        qat::calibrate(&model, || model.forward(&nan).map(|_| Vec::new())),
        &["fc", "not finite"],
    );
    refused(
        lora::attach(&model, "default", &LoraConfig::new(2)),
        &["fc", "rounded for 8 bits"],
    );
    let adapted = Net::new(device);
    lora::attach(&adapted, "default", &LoraConfig::new(2)).unwrap();
    refused(qat::attach(&adapted, &config()), &["fc", "has adapters"]);
    let x = Tensor::ones([2, 3], device).unwrap();
    let one = |value: f64| Tensor::full([1], value, device).unwrap();
    let fake = |scale: &Tensor, bounds, axis| x.fake_quantize(scale, &one(0.0), bounds, axis).map(|_| Vec::new());
    refused(
        fake(&one(1.0).to_dtype(DType::I32).unwrap(), [0, 255], None),
        &["i32 is no float"],
    );
    for (result, words) in [
        (fake(&one(1.0), [5, 5], None), ["fake_quantize", "[5, 5]"]),
        (fake(&one(1.0), [0, 255], Some(2)), ["no axis 2", "[2, 3]"]),
        (
            fake(&Tensor::ones([2], device).unwrap(), [0, 255], Some(1)),
            ["2 scales", "1 or 3"],
        ),
        (
            fake(&Tensor::ones([3], device).unwrap(), [0, 255], None),
            ["3 scales", "1 are needed"],
        ),
    ] {
        let error = result.unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }
}

/// Recorded steps give the same as uncaptured ones.
fn a_captured_step_is_the_same(device: &Device) {
    let losses = |captured: bool| -> Vec<f64> {
        let model = rounded(device);
        // Ranges stop following the numbers within these steps.
        qat::follow(&model, 2).unwrap();
        let optimizer = AdamW::new(model.parameters(), 1e-3).unwrap();
        let mut step = TrainStep::new(model, optimizer, |model: &Net, batch: &[Tensor]| {
            mse_loss(&model.forward(&batch[0])?, &batch[1])
        });
        let batch = [input(device), Tensor::ones([8, 3], device).unwrap()];
        if !captured {
            return (0..5).map(|_| step.step(&batch).unwrap().item().unwrap()).collect();
        }
        let mut step = step.captured();
        let losses = (0..5).map(|_| step.step(&batch).unwrap().item().unwrap()).collect();
        assert_eq!(step.refusal(), None);
        losses
    };
    let (eager, captured) = (losses(false), losses(true));
    assert!(
        eager.iter().zip(&captured).all(|(a, b)| (a - b).abs() < 1e-5),
        "{eager:?} {captured:?}"
    );
}

/// While ranges follow, they are those of the numbers, and nothing is learned; then they stay, and are learned.
fn ranges_follow_for_a_while(device: &Device) {
    let model = rounded(device);
    qat::follow(&model, 3).unwrap();
    let mut optimizer = AdamW::new(model.parameters(), 1e-2).unwrap();
    let of = |name: &str| model.state_dict().unwrap().get(name).unwrap().to_f64_vec();
    let y = Tensor::ones([8, 3], device).unwrap();
    let mut scales = Vec::new();
    for step in 0..6 {
        let x = (input(device) * (1.0 + f64::from(step))).unwrap();
        optimizer
            .backward_step(mse_loss(&model.forward(&x).unwrap(), &y).unwrap())
            .unwrap();
        let learned = of("conv.input_quantizer.log_range")[0] != 0.0;
        assert_eq!(learned, step >= 3, "step {step}");
        assert_eq!(of("conv.quantizer_steps"), [f64::from(2 - step).max(0.0)]);
        scales.push(of("conv.input_quantizer.scale")[0]);
    }
    for (step, scale) in scales.iter().enumerate() {
        let factor = 1.0 + step.min(2) as f64;
        assert!((scale / scales[0] - factor).abs() < 1e-5, "{scales:?}");
    }
    // Ranges do not follow in evaluation.
    qat::follow(&model, 3).unwrap();
    model.eval();
    model.forward(&(input(device) * 9.0).unwrap()).unwrap();
    assert_eq!(of("conv.quantizer_steps"), [3.0]);
    assert_eq!(of("conv.input_quantizer.scale")[0], scales[5]);
}
