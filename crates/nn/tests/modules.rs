//! Layers and losses against PyTorch's answers and gradients, in f64.

mod common;

use std::collections::HashSet;

use common::{Vectors, assert_close, key, name, upload};
use polygrad_nn::loss::*;
use polygrad_nn::*;
use polygrad_tensor::{Backend, BackwardOptions, DType, Device, GradId, Result, Tensor};
use serde_json::Value;

on_backends!(layers_match_pytorch, losses_match_pytorch);

const TOLERANCE: f64 = 1e-10;

/// A JSON number or list as sizes.
fn sizes<const D: usize>(value: &Value) -> [usize; D] {
    match value.as_array() {
        Some(list) => std::array::from_fn(|i| list[i].as_u64().unwrap() as usize),
        None => [value.as_u64().unwrap() as usize; D],
    }
}

fn size(init: &Value, field: &str) -> usize {
    init[field].as_u64().unwrap_or_else(|| panic!("{field} of {init}")) as usize
}

/// The fields of `init`, each of which must be handled.
fn fields(init: &Value) -> impl Iterator<Item = (&str, &Value)> {
    init.as_object()
        .unwrap()
        .iter()
        .map(|(field, value)| (field.as_str(), value))
}

fn conv<const D: usize, B: Backend>(init: &Value, device: &Device<B>) -> Result<Box<dyn Forward<B>>> {
    let kernel: [usize; D] = sizes(&init["kernel_size"]);
    let mut config = ConvConfig::<D>::new(size(init, "in_channels"), size(init, "out_channels"), kernel);
    for (field, value) in fields(init) {
        config = match (field, value.as_str()) {
            ("in_channels" | "out_channels" | "kernel_size", _) => config,
            ("stride", _) => config.stride(sizes(value)),
            ("padding", Some("same")) => config.padding_same(),
            ("padding", Some("valid")) => config.padding(0),
            ("padding", _) => config.padding(sizes(value)),
            ("dilation", _) => config.dilation(sizes(value)),
            ("groups", _) => config.groups(size(init, "groups")),
            ("bias", _) => config.bias(value.as_bool().unwrap()),
            _ => panic!("{field}"),
        };
    }
    Ok(Box::new(config.build(device)?))
}

fn max_pool<const D: usize, B: Backend>(init: &Value) -> Box<dyn Forward<B>> {
    let mut pool = MaxPool::<D>::new(sizes(&init["kernel_size"]));
    for (field, value) in fields(init) {
        pool = match field {
            "kernel_size" => pool,
            "stride" => pool.stride(sizes(value)),
            "padding" => pool.padding(sizes(value)),
            "dilation" => pool.dilation(sizes(value)),
            "ceil_mode" => pool.ceil_mode(value.as_bool().unwrap()),
            _ => panic!("{field}"),
        };
    }
    Box::new(pool)
}

fn avg_pool<const D: usize, B: Backend>(init: &Value) -> Box<dyn Forward<B>> {
    let mut pool = AvgPool::<D>::new(sizes(&init["kernel_size"]));
    for (field, value) in fields(init) {
        pool = match field {
            "kernel_size" => pool,
            "stride" => pool.stride(sizes(value)),
            "padding" => pool.padding(sizes(value)),
            "ceil_mode" => pool.ceil_mode(value.as_bool().unwrap()),
            "count_include_pad" => pool.count_include_pad(value.as_bool().unwrap()),
            _ => panic!("{field}"),
        };
    }
    Box::new(pool)
}

fn batch_norm<const D: usize, B: Backend>(init: &Value, device: &Device<B>) -> Result<Box<dyn Forward<B>>> {
    let mut config = BatchNormConfig::<D>::new(size(init, "num_features"));
    for (field, value) in fields(init) {
        config = match field {
            "num_features" => config,
            "momentum" => config.momentum(value.as_f64()),
            "eps" => config.eps(value.as_f64().unwrap()),
            "affine" => config.affine(value.as_bool().unwrap()),
            "track_running_stats" => config.track_running_stats(value.as_bool().unwrap()),
            _ => panic!("{field}"),
        };
    }
    Ok(Box::new(config.build(device)?))
}

fn group_norm<B: Backend>(init: &Value, device: &Device<B>) -> Result<Box<dyn Forward<B>>> {
    let config = GroupNormConfig::new(size(init, "num_groups"), size(init, "num_channels"))
        .eps(init["eps"].as_f64().unwrap_or(1e-5))
        .affine(init["affine"].as_bool().unwrap_or(true));
    Ok(Box::new(config.build(device)?))
}

fn instance_norm<const D: usize, B: Backend>(init: &Value, device: &Device<B>) -> Result<Box<dyn Forward<B>>> {
    let mut config = InstanceNormConfig::<D>::new(size(init, "num_features"));
    for (field, value) in fields(init) {
        config = match field {
            "num_features" => config,
            "momentum" => config.momentum(value.as_f64().unwrap()),
            "eps" => config.eps(value.as_f64().unwrap()),
            "affine" => config.affine(value.as_bool().unwrap()),
            "track_running_stats" => config.track_running_stats(value.as_bool().unwrap()),
            _ => panic!("{field}"),
        };
    }
    Ok(Box::new(config.build(device)?))
}

fn linear<B: Backend>(init: &Value, device: &Device<B>) -> Result<Box<dyn Forward<B>>> {
    let config = LinearConfig::new(size(init, "in_features"), size(init, "out_features"));
    Ok(Box::new(
        config.bias(init["bias"].as_bool().unwrap_or(true)).build(device)?,
    ))
}

fn layer_norm<B: Backend>(init: &Value, device: &Device<B>) -> Result<Box<dyn Forward<B>>> {
    let shape = &init["normalized_shape"];
    let shape: Vec<usize> = match shape.as_array() {
        Some(list) => list.iter().map(|d| d.as_u64().unwrap() as usize).collect(),
        None => sizes::<1>(shape).to_vec(),
    };
    let config = LayerNormConfig::new(shape)
        .eps(init["eps"].as_f64().unwrap_or(1e-5))
        .elementwise_affine(init["elementwise_affine"].as_bool().unwrap_or(true))
        .bias(init["bias"].as_bool().unwrap_or(true));
    Ok(Box::new(config.build(device)?))
}

fn embedding<B: Backend>(init: &Value, device: &Device<B>) -> Result<Box<dyn Forward<B>>> {
    let mut config = EmbeddingConfig::new(size(init, "num_embeddings"), size(init, "embedding_dim"));
    if let Some(index) = init["padding_idx"].as_i64() {
        config = config.padding_idx(index as isize);
    }
    Ok(Box::new(config.build(device)?))
}

fn adaptive<B: Backend>(init: &Value) -> Box<dyn Forward<B>> {
    let output = &init["output_size"];
    Box::new(match output.as_array() {
        Some(list) => AdaptiveAvgPool2d::with_kept(std::array::from_fn(|i| list[i].as_u64().map(|size| size as usize))),
        None => AdaptiveAvgPool2d::new(size(init, "output_size")),
    })
}

fn layer<B: Backend>(module: &str, init: &Value, device: &Device<B>) -> Option<Result<Box<dyn Forward<B>>>> {
    let number = |field: &str, default: f64| init[field].as_f64().unwrap_or(default);
    let axis = || init["dim"].as_i64().unwrap() as isize;
    let module: Box<dyn Forward<B>> = match module {
        "Linear" => return Some(linear(init, device)),
        "Conv1d" => return Some(conv::<1, B>(init, device)),
        "Conv2d" => return Some(conv::<2, B>(init, device)),
        "BatchNorm1d" => return Some(batch_norm::<1, B>(init, device)),
        "BatchNorm2d" => return Some(batch_norm::<2, B>(init, device)),
        "LayerNorm" => return Some(layer_norm(init, device)),
        "GroupNorm" => return Some(group_norm(init, device)),
        "InstanceNorm1d" => return Some(instance_norm::<1, B>(init, device)),
        "InstanceNorm2d" => return Some(instance_norm::<2, B>(init, device)),
        "Embedding" => return Some(embedding(init, device)),
        "MaxPool1d" => max_pool::<1, B>(init),
        "MaxPool2d" => max_pool::<2, B>(init),
        "AvgPool1d" => avg_pool::<1, B>(init),
        "AvgPool2d" => avg_pool::<2, B>(init),
        "AdaptiveAvgPool2d" => adaptive(init),
        "Flatten" => {
            let dim = |field: &str, default| init[field].as_i64().unwrap_or(default) as isize;
            Box::new(Flatten::dims(dim("start_dim", 1), dim("end_dim", -1)))
        }
        "Dropout" => Box::new(Dropout::new(number("p", 0.5)).unwrap()),
        "ReLU" => Box::new(ReLU),
        "SiLU" => Box::new(SiLU),
        "Sigmoid" => Box::new(Sigmoid),
        "Tanh" => Box::new(Tanh),
        "GELU" if init["approximate"] == "tanh" => Box::new(GELU::Tanh),
        "GELU" => Box::new(GELU::Exact),
        "ELU" => Box::new(ELU(number("alpha", 1.0))),
        "LeakyReLU" => Box::new(LeakyReLU(number("negative_slope", 0.01))),
        "Softplus" => Box::new(Softplus {
            beta: number("beta", 1.0),
            threshold: number("threshold", 20.0),
        }),
        "Softmax" => Box::new(Softmax(axis())),
        "LogSoftmax" => Box::new(LogSoftmax(axis())),
        _ => return None,
    };
    Some(Ok(module))
}

fn layers_match_pytorch<B: Backend>(device: &Device<B>) {
    let vectors = Vectors::load("modules");
    let mut done = HashSet::new();
    for case in &vectors.cases {
        let module_name = case["module"].as_str().unwrap();
        let Some(module) = layer(module_name, &case["init"], device) else {
            assert!(module_name.ends_with("Loss"), "{module_name} is not tested");
            continue;
        };
        check_layer(case, &vectors, &*module.unwrap(), device);
        done.insert(module_name.to_owned());
    }
    assert_eq!(done.len(), 27);
}

fn check_layer<B: Backend>(case: &Value, vectors: &Vectors, module: &dyn Forward<B>, device: &Device<B>) {
    let k = name(case);
    module.to_dtype(DType::F64).unwrap();
    let state: StateDict = case["state"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, value)| (name.clone(), vectors.tensor(value).clone()))
        .collect();
    module
        .load_state_dict(&state, true)
        .unwrap_or_else(|e| panic!("{k}: {e}"));
    if case["train"].as_bool().unwrap() {
        module.train()
    } else {
        module.eval()
    }

    let mut x = upload(vectors.tensor(&case["a"][0]), device);
    if x.dtype().is_float() {
        x = x.requires_grad().unwrap();
    }
    let y = module.forward(&x).unwrap_or_else(|e| panic!("{k}: {e}"));
    assert_close(&format!("{k} output"), &y, vectors.get(&format!("{k}/o.0")), TOLERANCE);
    for (name, buffer) in module.named_buffers() {
        let expected = vectors.get(&format!("{k}/after/{name}"));
        assert_close(&format!("{k} {name}"), &buffer.tensor(), expected, TOLERANCE);
    }

    let ct = upload(vectors.get(&format!("{k}/ct.0")), device);
    let gradients = y.backward_with(&BackwardOptions::default().gradient(&ct)).unwrap();
    check_gradient(&gradients, &x, key(&case["a"][0]), vectors);
    for (name, param) in module.named_parameters() {
        let at = key(&case["state"][&name]);
        assert!(
            vectors.tensors.contains(&format!("{at}/g")),
            "{at} has no gradient in the vectors"
        );
        check_gradient(&gradients, &param, at, vectors);
    }
}

fn check_gradient<B: Backend>(
    gradients: &polygrad_tensor::Gradients<B>,
    of: &impl GradId,
    key: &str,
    vectors: &Vectors,
) {
    let name = format!("{key}/g");
    if let Some(expected) = vectors.tensors.get(&name) {
        let found = gradients.require(of).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_close(&name, found, expected, TOLERANCE);
    }
}

fn reduction(init: &Value) -> Reduction {
    match init["reduction"].as_str() {
        // The latter is the KLDivLoss's alone.
        None | Some("mean" | "batchmean") => Reduction::Mean,
        Some("sum") => Reduction::Sum,
        Some("none") => Reduction::None,
        Some(other) => panic!("{other}"),
    }
}

fn loss<B: Backend>(case: &Value, vectors: &Vectors, x: &Tensor<B>, y: &Tensor<B>) -> Option<Result<Tensor<B>>> {
    let init = &case["init"];
    let how = reduction(init);
    let given = |field: &str| init.get(field).map(|value| upload(vectors.tensor(value), &x.device()));
    Some(match case["module"].as_str().unwrap() {
        "MSELoss" => mse_loss(x, y, how),
        "L1Loss" => l1_loss(x, y, how),
        "SmoothL1Loss" => smooth_l1_loss(x, y, init["beta"].as_f64().unwrap_or(1.0), how),
        "BCELoss" => {
            let mut loss = BCELoss::new().reduction(how);
            if let Some(weight) = given("weight") {
                loss = loss.weight(weight);
            }
            loss.forward(x, y)
        }
        "KLDivLoss" => {
            let loss = KLDivLoss::new().log_target(init["log_target"].as_bool().unwrap_or(false));
            match init["reduction"].as_str() {
                Some("batchmean") => loss.batch_mean(),
                _ => loss.reduction(how),
            }
            .forward(x, y)
        }
        "HuberLoss" => huber_loss(x, y, init["delta"].as_f64().unwrap_or(1.0), how),
        "BCEWithLogitsLoss" => {
            let mut loss = BCEWithLogitsLoss::new().reduction(how);
            if let Some(weight) = given("weight") {
                loss = loss.weight(weight);
            }
            if let Some(weight) = given("pos_weight") {
                loss = loss.pos_weight(weight);
            }
            loss.forward(x, y)
        }
        "CrossEntropyLoss" => {
            let mut loss = CrossEntropyLoss::new()
                .reduction(how)
                .label_smoothing(init["label_smoothing"].as_f64().unwrap_or(0.0))
                .ignore_index(init["ignore_index"].as_i64().unwrap_or(-100));
            if let Some(weight) = given("weight") {
                loss = loss.weight(weight);
            }
            loss.forward(x, y)
        }
        "NLLLoss" => {
            let mut loss = NLLLoss::new()
                .reduction(how)
                .ignore_index(init["ignore_index"].as_i64().unwrap_or(-100));
            if let Some(weight) = given("weight") {
                loss = loss.weight(weight);
            }
            loss.forward(x, y)
        }
        _ => return None,
    })
}

fn losses_match_pytorch<B: Backend>(device: &Device<B>) {
    let vectors = Vectors::load("modules");
    let mut count = 0;
    for case in &vectors.cases {
        let k = name(case);
        let inputs: Vec<Tensor<B>> = case["a"]
            .as_array()
            .unwrap()
            .iter()
            .map(|argument| {
                let x = upload(vectors.tensor(argument), device);
                if x.dtype().is_float() {
                    x.requires_grad().unwrap()
                } else {
                    x
                }
            })
            .collect();
        let [x, target] = inputs.as_slice() else {
            continue;
        };
        let y = loss(case, &vectors, x, target).unwrap_or_else(|| panic!("{k} is not tested"));
        let y = y.unwrap_or_else(|e| panic!("{k}: {e}"));
        assert_close(&format!("{k} output"), &y, vectors.get(&format!("{k}/o.0")), TOLERANCE);
        let ct = upload(vectors.get(&format!("{k}/ct.0")), device);
        let gradients = y.backward_with(&BackwardOptions::default().gradient(&ct)).unwrap();
        for (input, argument) in inputs.iter().zip(case["a"].as_array().unwrap()) {
            check_gradient(&gradients, input, key(argument), &vectors);
        }
        count += 1;
    }
    assert_eq!(count, 66);
}
