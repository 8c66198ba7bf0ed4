//! Training an MLP and a CNN on Fashion-MNIST follows PyTorch's losses step by step. scripts/make_trajectories.py made
//! the numbers and explains their limits: rounding occasionally flips a ReLU, so that PyTorch's own f32 runs diverge
//! from its f64 runs after `steady` steps, while in f64 the whole run can be compared.

use std::io::Read;

use crate::common::{crate_folder, data, json};
use flate2::read::GzDecoder;
use polygrad_nn::optim::*;
use polygrad_nn::*;
use polygrad_tensor::{Backend, DType, Device, Result, Tensor};
use serde_json::Value;

on_cpu!(
    mlp_follows_pytorch_in_f64,
    cnn_follows_pytorch_in_f64,
    mlp_follows_pytorch_in_f32,
    cnn_follows_pytorch_in_f32
);

const STEPS: usize = 100;

struct Images {
    pixels: Vec<u8>,
    labels: Vec<u8>,
}

impl Images {
    fn load() -> Self {
        let folder = crate_folder().join("../../data/fashion-mnist");
        let read = |name: &str, header: usize| {
            let mut bytes = Vec::new();
            let file = std::fs::File::open(folder.join(name)).unwrap();
            GzDecoder::new(file).read_to_end(&mut bytes).unwrap();
            bytes.split_off(header)
        };
        Self {
            pixels: read("train-images-idx3-ubyte.gz", 16),
            labels: read("train-labels-idx1-ubyte.gz", 8),
        }
    }

    /// Batch `i` as the script builds it: pixels are divided in f32 in every run.
    fn batch<B: Backend>(
        &self,
        i: usize,
        flat: bool,
        dtype: DType,
        device: &Device<B>,
    ) -> Result<(Tensor<B>, Tensor<B>)> {
        let rows: Vec<usize> = (32 * i..32 * (i + 1)).map(|k| k * 7919 % 20_000).collect();
        let pixel = |row: &usize| {
            self.pixels[row * 784..(row + 1) * 784]
                .iter()
                .map(|&p| f32::from(p) / 255.0)
        };
        let pixels: Vec<f32> = rows.iter().flat_map(pixel).collect();
        let labels: Vec<i64> = rows.iter().map(|&row| i64::from(self.labels[row])).collect();
        let shape: &[usize] = if flat { &[32, 784] } else { &[32, 1, 28, 28] };
        let x = Tensor::from_vec(pixels, shape, device)?.to_dtype(dtype)?;
        Ok((x, Tensor::from_vec(labels, [32], device)?))
    }
}

fn model<B: Backend>(name: &str, device: &Device<B>) -> Result<Sequential<B>> {
    Ok(match name {
        "mlp" => Sequential::new()
            .push(Linear::new(784, 128, device)?)
            .push(ReLU)
            .push(Linear::new(128, 10, device)?),
        "cnn" => Sequential::new()
            .push(Conv2dConfig::new(1, 8, 3).padding(1).build(device)?)
            .push(ReLU)
            .push(MaxPool2d::new(2))
            .push(Conv2dConfig::new(8, 16, 3).padding(1).build(device)?)
            .push(ReLU)
            .push(MaxPool2d::new(2))
            .push(Flatten::new())
            .push(Linear::new(784, 64, device)?)
            .push(ReLU)
            .push(Linear::new(64, 10, device)?),
        _ => panic!("{name}"),
    })
}

fn optimizer<B: Backend>(run: &Value, params: Vec<Param<B>>) -> Result<Box<dyn Optimizer<B>>> {
    let number = |field: &str, default: f64| run["init"].get(field).map_or(default, |v| v.as_f64().unwrap());
    let lr = number("lr", f64::NAN);
    Ok(match run["optimizer"].as_str().unwrap() {
        "SGD" => Box::new(
            SGDConfig::new(lr)
                .momentum(number("momentum", 0.0))
                .weight_decay(number("weight_decay", 0.0))
                .nesterov(run["init"].get("nesterov").is_some())
                .build(params)?,
        ),
        "Adam" => Box::new(Adam::new(params, lr)?),
        "AdamW" => Box::new(
            AdamConfig::adamw(lr)
                .weight_decay(number("weight_decay", 0.01))
                .build(params)?,
        ),
        "RMSprop" => Box::new(RMSprop::new(params, lr)?),
        other => panic!("{other}"),
    })
}

/// The losses of the first `steps` steps, and the model after them.
fn train<B: Backend>(
    run: &Value,
    steps: usize,
    images: &Images,
    dtype: DType,
    device: &Device<B>,
) -> Result<(Vec<f64>, Sequential<B>)> {
    let name = run["model"].as_str().unwrap();
    let model = model(name, device)?;
    model.load(data("trajectories").join(format!("{name}.safetensors")))?;
    model.to_dtype(dtype)?;
    let mut optimizer = optimizer(run, model.parameters())?;
    let mut losses = Vec::new();
    for i in 0..steps {
        let (x, y) = images.batch(i, name == "mlp", dtype, device)?;
        let loss = loss::cross_entropy(&model.forward(&x)?, &y)?;
        losses.push(loss.item()?);
        optimizer.step(&loss.backward()?)?;
    }
    Ok((losses, model))
}

fn runs(model: &str) -> Vec<Value> {
    let all = json(&data("trajectories").join("losses.json"));
    assert_eq!((&all["batch"], &all["steps"]), (&Value::from(32), &Value::from(STEPS)));
    let runs: Vec<Value> = all["runs"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|run| run["model"] == model)
        .cloned()
        .collect();
    assert_eq!(runs.len(), 7);
    runs
}

fn check_losses(run: &Value, field: &str, found: &[f64], tolerance: f64) {
    for (i, (found, expected)) in found.iter().zip(run[field].as_array().unwrap()).enumerate() {
        let expected = expected.as_f64().unwrap();
        let off = (found - expected).abs() / expected.abs();
        assert!(
            off <= tolerance,
            "{} {}: step {i}: loss {found}, not {expected}: {off:.1e} off",
            run["model"],
            run["name"]
        );
    }
}

fn in_f64<B: Backend>(name: &str, device: &Device<B>) {
    let images = Images::load();
    for run in runs(name) {
        let (losses, model) = train(&run, STEPS, &images, DType::F64, device).unwrap();
        assert_eq!(losses.len(), STEPS);
        check_losses(&run, "losses_f64", &losses, 1e-9);
        for (name, param) in model.named_parameters() {
            let values = param.tensor().to_f64_vec().unwrap();
            let expected = &run["final_f64"][&name];
            let sumsq: f64 = values.iter().map(|v| v * v).sum();
            let expected_sumsq = expected["sumsq"].as_f64().unwrap();
            assert!(
                (sumsq - expected_sumsq).abs() <= 1e-9 * expected_sumsq,
                "{name}: {sumsq}, not {expected_sumsq}"
            );
            // The terms cancel, so the sum is compared relative to their magnitude.
            let (sum, scale) = (values.iter().sum::<f64>(), values.iter().map(|v| v.abs()).sum::<f64>());
            assert!(
                (sum - expected["sum"].as_f64().unwrap()).abs() <= 1e-9 * scale,
                "{name}: {sum}"
            );
        }
    }
}

fn in_f32<B: Backend>(name: &str, device: &Device<B>) {
    let images = Images::load();
    for run in runs(name) {
        let steady = run["steady"].as_u64().unwrap() as usize;
        assert!(steady >= 1, "{} {}", run["model"], run["name"]);
        let (losses, _) = train(&run, steady, &images, DType::F32, device).unwrap();
        assert_eq!(losses.len(), steady);
        check_losses(&run, "losses_f64", &losses, 1e-4);
        check_losses(&run, "losses", &losses, 1e-4);
    }
}

fn mlp_follows_pytorch_in_f64<B: Backend>(device: &Device<B>) {
    in_f64("mlp", device);
}

fn cnn_follows_pytorch_in_f64<B: Backend>(device: &Device<B>) {
    in_f64("cnn", device);
}

fn mlp_follows_pytorch_in_f32<B: Backend>(device: &Device<B>) {
    in_f32("mlp", device);
}

fn cnn_follows_pytorch_in_f32<B: Backend>(device: &Device<B>) {
    in_f32("cnn", device);
}
