//! Every parameter of every layer gets a gradient, and a correct one.

use crate::common::randn;
use polygrad_nn::*;
use polygrad_tensor::{Backend, DType, Device, Result, Tensor};

on_backends!(every_parameter_of_every_layer_gets_its_gradient);

type Case<B> = (&'static str, Box<dyn Forward<B>>, Tensor<B>);

/// Every layer with parameters, in every form with different parameters.
fn layers<B: Backend>(device: &Device<B>) -> Result<Vec<Case<B>>> {
    let indices = Tensor::from_vec(vec![2i64, 0, 3, 3], [2, 2], device)?;
    let mut cases: Vec<Case<B>> = Vec::new();
    let mut add = |name, layer: Box<dyn Forward<B>>, x| cases.push((name, layer, x));
    for bias in [true, false] {
        add(
            "Linear",
            Box::new(LinearConfig::new(3, 2).bias(bias).build(device)?),
            randn(&[4, 3], device),
        );
        let conv1 = Conv1dConfig::new(2, 4, 3).stride(2).padding(1).groups(2).bias(bias);
        add("Conv1d", Box::new(conv1.build(device)?), randn(&[2, 2, 5], device));
        let conv2 = Conv2dConfig::new(2, 3, 2).dilation([1, 2]).padding_same().bias(bias);
        add("Conv2d", Box::new(conv2.build(device)?), randn(&[2, 2, 3, 4], device));
        let up1 = ConvTranspose1dConfig::new(4, 2, 3)
            .stride(2)
            .output_padding(1)
            .groups(2)
            .bias(bias);
        add(
            "ConvTranspose1d",
            Box::new(up1.build(device)?),
            randn(&[1, 4, 3], device),
        );
        let up2 = ConvTranspose2dConfig::new(2, 3, 2)
            .padding(1)
            .dilation([1, 2])
            .bias(bias);
        add(
            "ConvTranspose2d",
            Box::new(up2.build(device)?),
            randn(&[1, 2, 3, 3], device),
        );
        add(
            "LayerNorm",
            Box::new(LayerNormConfig::new([3, 2]).bias(bias).build(device)?),
            randn(&[2, 3, 2], device),
        );
    }
    add(
        "RMSNorm",
        Box::new(RMSNorm::new([3, 2], device)?),
        randn(&[2, 3, 2], device),
    );
    add(
        "GroupNorm",
        Box::new(GroupNorm::new(2, 4, device)?),
        randn(&[2, 4, 3], device),
    );
    for training in [true, false] {
        let norm1 = BatchNorm1d::new(3, device)?;
        let norm2 = BatchNorm2d::new(3, device)?;
        if !training {
            norm1.eval();
            norm2.eval();
        }
        let instance = InstanceNorm1dConfig::new(3).affine(true).track_running_stats(true);
        let instance = instance.build(device)?;
        if !training {
            instance.eval();
        }
        add("InstanceNorm1d", Box::new(instance), randn(&[2, 3, 4], device));
        add("BatchNorm1d", Box::new(norm1), randn(&[4, 3], device));
        add("BatchNorm2d", Box::new(norm2), randn(&[2, 3, 2, 2], device));
    }
    add("Embedding", Box::new(Embedding::new(5, 3, device)?), indices.clone());
    add(
        "Embedding with padding",
        Box::new(EmbeddingConfig::new(5, 3).padding_idx(3).build(device)?),
        indices,
    );
    let inner = Sequential::new()
        .push(Linear::new(3, 4, device)?)
        .push(Tanh)
        .push(Linear::new(4, 2, device)?);
    add("Sequential", Box::new(inner), randn(&[2, 3], device));
    Ok(cases)
}

fn every_parameter_of_every_layer_gets_its_gradient<B: Backend>(device: &Device<B>) {
    let mut seen = 0;
    for (name, layer, x) in layers(device).unwrap() {
        layer.to_dtype(DType::F64).unwrap();
        let weights = randn(layer.forward(&x).unwrap().shape().dims(), device);
        let loss = || layer.forward(&x)?.mul(&weights)?.square()?.sum_all();
        let params = layer.named_parameters();
        assert!(!params.is_empty(), "{name}");
        let gradients = loss().unwrap().backward().unwrap();
        for (param_name, param) in params {
            let found = gradients.require(&param).unwrap_or_else(|e| panic!("{name}: {e}"));
            let by_name = gradients
                .by_name(&param_name)
                .unwrap_or_else(|| panic!("{name}: {param_name}"));
            assert_eq!(found.to_f64_vec().unwrap(), by_name.to_f64_vec().unwrap());
            let padding = if name == "Embedding with padding" { 9..12 } else { 0..0 };
            check_numerically(&format!("{name} {param_name}"), &param, found, padding, loss);
            seen += 1;
        }
    }
    assert_eq!(seen, 39);
}

/// Moves each element of the parameter slightly in both directions.
fn check_numerically<B: Backend>(
    what: &str,
    param: &Param<B>,
    gradient: &Tensor<B>,
    padding: std::ops::Range<usize>,
    loss: impl Fn() -> Result<Tensor<B>>,
) {
    let start = param.tensor().detach();
    let values = start.to_f64_vec().unwrap();
    let at = |values: Vec<f64>| {
        param
            .set(&Tensor::from_vec(values, start.shape(), &start.device()).unwrap())
            .unwrap();
        loss().unwrap().item().unwrap()
    };
    let step = 1e-5;
    for (i, found) in gradient.to_f64_vec().unwrap().into_iter().enumerate() {
        let moved = |by: f64| {
            let mut moved = values.clone();
            moved[i] += by;
            at(moved)
        };
        let expected = (moved(step) - moved(-step)) / (2.0 * step);
        // The row padding_idx affects the result but intentionally gets no gradient.
        let expected = if padding.contains(&i) { 0.0 } else { expected };
        assert!(
            (found - expected).abs() <= 1e-6 * expected.abs().max(1.0),
            "{what}[{i}]: {found}, not {expected}"
        );
    }
    param.set(&start).unwrap();
}
