//! Adapters: PEFT's values and gradients on every kind of layer, 50 of its training steps, and what is done with
//! adapters. scripts/make_lora_vectors.py made the values.

use polygrad_nn::lora::{self, LoraConfig};
use polygrad_nn::loss::{cross_entropy, mse_loss};
use polygrad_nn::models::{Llama, LlamaConfig, ModelConfig};
use polygrad_nn::optim::{AdamConfig, AdamW, Optimizer, SGD};
use polygrad_nn::*;
use polygrad_tensor::{Activation, DType, Device, ErrorKind, PadMode, Result, Tensor, manual_seed, no_grad};
use serde_json::Value;

use crate::common::{data, json, name};

on_backends!(
    layers_compute_what_pefts_do,
    training_takes_pefts_steps,
    only_adapters_change,
    adapters_are_switched_without_a_copy,
    a_captured_step_notices_a_switch,
    half_a_base_has_whole_adapters,
);

/// A user's model, which knows nothing of adapters.
#[derive(Module)]
#[module(forward)]
struct Mlp {
    fc1: Linear,
    fc2: Linear,
}

impl Mlp {
    fn new(device: &Device) -> Self {
        manual_seed(3);
        Self {
            fc1: Linear::new(4, 8, device).unwrap(),
            fc2: Linear::new(8, 2, device).unwrap(),
        }
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.fc2.forward(&self.fc1.forward_with(x, Activation::Relu)?)
    }
}

fn cpu() -> Device {
    Device::<polygrad_cpu::Cpu>::default().into_any()
}

fn values(x: &Tensor) -> Vec<f64> {
    x.to_f64_vec().unwrap()
}

fn close(found: &[f64], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (a, b) in found.iter().zip(expected) {
        assert!((a - b).abs() <= tolerance * (1.0 + b.abs()), "{what}: {a} {b}");
    }
}

/// Parameters as bits, by name.
fn bits(model: &impl Module) -> Vec<(String, Vec<u64>)> {
    let params = model.named_parameters().into_iter();
    params
        .map(|(name, param)| (name, values(&param.tensor()).iter().map(|x| x.to_bits()).collect()))
        .collect()
}

/// Gives the adapters of a model random values.
fn shake(model: &impl Module, seed: u64) {
    manual_seed(seed);
    for (name, param) in model
        .named_parameters()
        .iter()
        .filter(|(name, _)| name.contains("lora_"))
    {
        let (low, high) = if name.contains("magnitude") {
            (0.5, 1.5)
        } else {
            (-0.5, 0.5)
        };
        let shape = param.shape();
        let drawn = Init::Uniform { low, high }.tensor(shape.dims(), param.dtype(), &param.device());
        param.set(&drawn.unwrap()).unwrap();
    }
}

fn layer(k: &str, case: &Value, device: &Device) -> Box<dyn Forward> {
    let arguments: Vec<usize> = case["arguments"]
        .as_array()
        .unwrap()
        .iter()
        .map(|x| x.as_u64().unwrap() as usize)
        .collect();
    let [a, b, kernel] = [0, 1, 2].map(|i| arguments.get(i).copied().unwrap_or(0));
    let conv2d = Conv2dConfig::new(a, b, kernel);
    match k.split('_').next().unwrap() {
        "linear" => Box::new(Linear::new(a, b, device).unwrap()),
        "plain" => Box::new(LinearConfig::new(a, b).bias(false).build(device).unwrap()),
        "transposed" => Box::new(models::gpt2::Conv1D::new(a, b, Init::ONES, device).unwrap()),
        "conv1d" => Box::new(
            Conv1dConfig::new(a, b, kernel)
                .stride(2)
                .padding(1)
                .build(device)
                .unwrap(),
        ),
        "conv2d" => Box::new(conv2d.padding_same().build(device).unwrap()),
        "one" => Box::new(conv2d.bias(false).build(device).unwrap()),
        "grouped" => Box::new(conv2d.groups(2).build(device).unwrap()),
        "conv3d" => Box::new(Conv3d::new(a, b, kernel, device).unwrap()),
        "embedding" => Box::new(EmbeddingConfig::new(a, b).padding_idx(2).build(device).unwrap()),
        other => panic!("{other}"),
    }
}

fn layers_compute_what_pefts_do(device: &Device) {
    let folder = data("lora");
    let all = StateDict::load(folder.join("layers.safetensors")).unwrap();
    let cases = json(&folder.join("layers.json"));
    let cases = cases.as_array().unwrap();
    assert_eq!(cases.len(), 34);
    for case in cases {
        let k = name(case);
        let tensor = |key: &str| Tensor::from_host(all.get(&format!("{k}/{key}")).unwrap().clone(), device).unwrap();
        let model = Sequential::new().push(layer(k, case, device));
        model.to_dtype(DType::F64).unwrap();
        let options = &case["options"];
        let config = LoraConfig::new(2)
            .alpha(6.0)
            .dropout(options["lora_dropout"].as_f64().unwrap_or(0.0))
            .rank_stabilized(options["use_rslora"] == true)
            .dora(options["use_dora"] == true)
            .targets(["0"]);
        let own: Vec<String> = model.named_parameters().into_iter().map(|(name, _)| name).collect();
        let state = |names: &[String]| -> StateDict {
            let of = |name: &String| (name.clone(), all.get(&format!("{k}/{}", &name[2..])).unwrap().clone());
            names.iter().map(of).collect()
        };
        model.load_state_dict(&state(&own), true).unwrap();
        let x = tensor("x");
        let before = values(&model.forward(&x).unwrap());
        lora::attach(&model, "default", &config).unwrap();
        close(&values(&model.forward(&x).unwrap()), &before, 1e-12, k);

        let leaves: Vec<&str> = case["leaves"]
            .as_array()
            .unwrap()
            .iter()
            .map(|x| x.as_str().unwrap())
            .collect();
        let names: Vec<String> = leaves
            .iter()
            .filter(|leaf| **leaf != "x")
            .map(|leaf| format!("0.{leaf}"))
            .collect();
        let trainable: Vec<_> = model
            .named_parameters()
            .into_iter()
            .filter(|(_, param)| param.is_trainable())
            .collect();
        assert_eq!(
            trainable.iter().map(|(name, _)| name).collect::<Vec<_>>(),
            names.iter().collect::<Vec<_>>(),
            "{k}"
        );
        model.load_state_dict(&state(&names), false).unwrap();
        let x = if leaves.contains(&"x") {
            x.requires_grad().unwrap()
        } else {
            x
        };
        let y = model.forward(&x).unwrap();
        close(&values(&y), &values(&tensor("y")), 1e-12, k);
        let gradients = y.mul(tensor("ct")).unwrap().sum_all().unwrap().backward().unwrap();
        for (name, param) in &trainable {
            let expected = values(&tensor(&format!("{}/g", &name[2..])));
            close(
                &values(gradients.get(param).unwrap()),
                &expected,
                1e-11,
                &format!("{k} {name}"),
            );
        }
        if leaves.contains(&"x") {
            close(&values(gradients.get(&x).unwrap()), &values(&tensor("x/g")), 1e-11, k);
        }
        assert_eq!(gradients.len(), leaves.len(), "{k}");

        let held = bits(&model);
        if k.starts_with("grouped") {
            let error = lora::merge(&model).unwrap_err().to_string();
            assert!(error.contains("convolution of groups cannot be merged"), "{error}");
            continue;
        }
        lora::merge(&model).unwrap();
        let merged = &model.named_parameters()[0].1;
        close(&values(&merged.tensor()), &values(&tensor("merged")), 1e-12, k);
        close(&values(&model.forward(&x).unwrap()), &values(&tensor("y")), 1e-11, k);
        lora::unmerge(&model).unwrap();
        assert_eq!(bits(&model), held, "{k}");
        lora::merge_and_unload(&model).unwrap();
        assert_eq!(model.named_parameters().len(), own.len());
        close(&values(&model.forward(&x).unwrap()), &values(&tensor("y")), 1e-11, k);
    }
}

fn llama(device: &Device) -> (Llama, Value, StateDict) {
    let folder = data("lora");
    let cases = json(&folder.join("models.json"));
    let config = LlamaConfig::from_json(&cases["llama"]["config"].to_string()).unwrap();
    let model = Llama::new(&config, device).unwrap();
    model.load(folder.join("llama.safetensors")).unwrap();
    (
        model,
        cases,
        StateDict::load(folder.join("layers.safetensors")).unwrap(),
    )
}

fn training_takes_pefts_steps(device: &Device) {
    for captured in [false, true] {
        let (model, cases, all) = llama(device);
        let config = LoraConfig::new(4).alpha(8.0).targets(["q_proj", "v_proj"]);
        assert_eq!(lora::attach(&model, "default", &config).unwrap().len(), 4);
        let start = all.with_prefix("training/");
        let found = model.load_state_dict(&start, false).unwrap();
        assert_eq!(found.unexpected, ["batches"]);
        let frozen = bits(&model);
        let optimizer = AdamConfig::adamw(1e-2)
            .weight_decay(0.1)
            .build(model.parameters())
            .unwrap();
        let step = TrainStep::new(model, optimizer, |model: &Llama, batch: &[Tensor]| {
            let (inputs, targets) = (batch[0].narrow(1, 0, 8)?, batch[0].narrow(1, 1, 8)?);
            cross_entropy(&model.forward(&inputs)?.flatten(0, 1)?, &targets.flatten(0, 1)?)
        });
        let batches = Tensor::from_host(start.get("batches").unwrap().clone(), device).unwrap();
        let batch = |i: usize| [batches.select(0, i as isize % 5).unwrap()];
        let expected: Vec<f64> = cases["training"]["losses"]
            .as_array()
            .unwrap()
            .iter()
            .map(|x| x.as_f64().unwrap())
            .collect();
        let (losses, model): (Vec<f64>, Llama) = match captured {
            true => {
                let mut step = step.captured();
                let losses = (0..50).map(|i| step.step(&batch(i)).unwrap().item().unwrap()).collect();
                assert!(step.is_ready(), "{:?}", step.refusal());
                (losses, step.into_parts().0)
            }
            false => {
                let mut step = step;
                let losses = (0..50).map(|i| step.step(&batch(i)).unwrap().item().unwrap()).collect();
                (losses, step.into_parts().0)
            }
        };
        for (step, (found, expected)) in losses.iter().zip(&expected).enumerate() {
            assert!((found - expected).abs() <= 1e-4, "step {step}: {found} {expected}");
        }
        // Of the same batch.
        assert!(expected[45] < expected[0] - 0.02);
        for ((name, before), (_, after)) in frozen.iter().zip(bits(&model)) {
            assert_eq!(*before != after, name.contains("lora_"), "{name}");
        }
    }
}

fn only_adapters_change(device: &Device) {
    let model = Mlp::new(device);
    let before = bits(&model);
    let config = LoraConfig::new(2).dropout(0.25).targets(["fc*"]);
    assert_eq!(lora::attach(&model, "mine", &config).unwrap(), ["fc1", "fc2"]);
    model.unfreeze(["fc2.bias"]).unwrap();
    let mut optimizer = AdamW::new(model.parameters(), 1e-2).unwrap();
    let (x, y) = (
        Tensor::ones([3, 4], device).unwrap(),
        Tensor::zeros([3, 2], device).unwrap(),
    );
    let mut outputs = Vec::new();
    for _ in 0..3 {
        let output = model.forward(&x).unwrap();
        outputs.push(values(&output));
        let loss = mse_loss(&output, &y).unwrap();
        assert_eq!(loss.backward().unwrap().len(), 5);
        drop(output);
        optimizer.backward_step(loss).unwrap();
    }
    assert_ne!(values(&model.forward(&x).unwrap()), values(&model.forward(&x).unwrap()));
    model.eval();
    assert_eq!(values(&model.forward(&x).unwrap()), values(&model.forward(&x).unwrap()));
    // What is frozen has no moments.
    let state = optimizer.state_dict().unwrap();
    let mut moments: Vec<&str> = state.keys().filter_map(|name| name.strip_suffix(".exp_avg")).collect();
    moments.sort_unstable();
    let trained = [
        "fc1.lora_A.mine.weight",
        "fc1.lora_B.mine.weight",
        "fc2.bias",
        "fc2.lora_A.mine.weight",
        "fc2.lora_B.mine.weight",
    ];
    assert_eq!(moments, trained);
    let after = bits(&model);
    for (name, held) in &before {
        let now = &after.iter().find(|(other, _)| other == name).unwrap().1;
        assert_eq!(now != held, name == "fc2.bias", "{name}");
    }
    // A model in evaluation gets adapters in evaluation.
    let config = LoraConfig::new(2).dropout(0.9).targets(["fc1"]);
    lora::attach(&model, "late", &config).unwrap();
    shake(&model, 1);
    assert_eq!(values(&model.forward(&x).unwrap()), values(&model.forward(&x).unwrap()));
}

fn adapters_are_switched_without_a_copy(device: &Device) {
    let model = Mlp::new(device);
    let x = Tensor::ones([3, 4], device).unwrap();
    let base = values(&model.forward(&x).unwrap());
    lora::attach(&model, "one", &LoraConfig::new(2).targets(["fc1"])).unwrap();
    lora::attach(&model, "two", &LoraConfig::new(3).alpha(1.0)).unwrap();
    shake(&model, 1);
    assert_eq!(lora::names(&model), ["one", "two"]);
    let output = |adapters: &[&str]| {
        lora::activate(&model, adapters).unwrap();
        values(&model.forward(&x).unwrap())
    };
    let (one, two) = (output(&["one"]), output(&["two"]));
    assert!(one != base && two != base && one != two);
    assert_eq!(output(&[]), base);
    assert_eq!(output(&["one"]), one);
    let trainable = || -> Vec<String> {
        let params = model
            .named_parameters()
            .into_iter()
            .filter(|(_, param)| param.is_trainable());
        params.map(|(name, _)| name).collect()
    };
    assert_eq!(trainable(), ["fc1.lora_A.one.weight", "fc1.lora_B.one.weight"]);
    let both = output(&["two", "one"]);
    assert_eq!(trainable().len(), 6);
    lora::merge(&model).unwrap();
    close(&values(&model.forward(&x).unwrap()), &both, 1e-5, "merged");
    for error in [
        lora::merge(&model),
        lora::activate(&model, &["one"]),
        lora::remove(&model, "one"),
        lora::attach(&model, "three", &LoraConfig::new(1)).map(drop),
    ] {
        assert!(
            error
                .unwrap_err()
                .to_string()
                .contains("adapters of the model are merged")
        );
    }
    lora::unmerge(&model).unwrap();
    assert_eq!(output(&["two", "one"]), both);
    lora::remove(&model, "two").unwrap();
    assert_eq!(
        (values(&model.forward(&x).unwrap()), lora::names(&model)),
        (one, vec!["one".to_owned()])
    );
    lora::remove(&model, "one").unwrap();
    assert_eq!(values(&model.forward(&x).unwrap()), base);
    assert_eq!(model.named_parameters().len(), 4);
}

fn a_captured_step_notices_a_switch(device: &Device) {
    let batch = [
        Tensor::ones([3, 4], device).unwrap(),
        Tensor::zeros([3, 2], device).unwrap(),
    ];
    let run = |captured: bool| {
        let model = Mlp::new(device);
        lora::attach(&model, "one", &LoraConfig::new(2).dora(true)).unwrap();
        lora::attach(&model, "two", &LoraConfig::new(2)).unwrap();
        shake(&model, 1);
        let optimizer = SGD::new(model.parameters(), 0.1).unwrap();
        let step = TrainStep::new(model, optimizer, |model: &Mlp, batch: &[Tensor]| {
            mse_loss(&model.forward(&batch[0])?, &batch[1])
        });
        let (mut plain, mut replayed) = match captured {
            true => (None, Some(step.captured())),
            false => (Some(step), None),
        };
        let mut losses = Vec::new();
        for i in 0..16 {
            let active = if i / 4 % 2 == 0 { "one" } else { "two" };
            let model = plain
                .as_ref()
                .map(TrainStep::model)
                .or(replayed.as_ref().map(CapturedStep::model))
                .unwrap();
            lora::activate(model, &[active]).unwrap();
            let loss = match (&mut plain, &mut replayed) {
                (Some(step), _) => step.step(&batch),
                (_, Some(step)) => step.step(&batch),
                _ => unreachable!(),
            };
            losses.push(loss.unwrap().item().unwrap());
        }
        if let Some(step) = replayed {
            assert!(step.is_ready(), "{:?}", step.refusal());
        }
        losses
    };
    close(&run(true), &run(false), 1e-6, "losses");
}

fn half_a_base_has_whole_adapters(device: &Device) {
    for dora in [false, true] {
        let model = Mlp::new(device);
        model.to_dtype(DType::F16).unwrap();
        lora::attach(&model, "one", &LoraConfig::new(2).dora(dora)).unwrap();
        shake(&model, 1);
        let wide = |name: &str| if name.contains("lora_") { DType::F32 } else { DType::F16 };
        for (name, param) in model.named_parameters() {
            assert_eq!(param.dtype(), wide(&name), "{name}");
        }
        let x = Tensor::ones([3, 4], device).unwrap();
        let y = model.forward(&x.to_dtype(DType::F16).unwrap()).unwrap();
        assert_eq!(y.dtype(), DType::F16);
        model.to_dtype(DType::F32).unwrap();
        close(&values(&y), &values(&model.forward(&x).unwrap()), 5e-3, "f16");
    }
}

#[test]
fn a_compiled_model_notices_a_switch() {
    let model = Mlp::new(&cpu());
    let x = Tensor::ones([3, 4], &cpu()).unwrap();
    let base = model.compile(&x).unwrap();
    base.forward(&x).unwrap();
    lora::attach(&model, "one", &LoraConfig::new(2)).unwrap();
    shake(&model, 1);
    let error = base.forward(&x).unwrap_err().to_string();
    assert!(
        error.contains("other adapters are active than when the model was compiled"),
        "{error}"
    );
    let adapted = model.compile(&x).unwrap();
    let expected = values(&no_grad(|| model.forward(&x)).unwrap());
    close(&values(&adapted.forward(&x).unwrap()), &expected, 1e-6, "compiled");
    lora::activate(&model, &[]).unwrap();
    assert!(adapted.forward(&x).is_err());
    base.forward(&x).unwrap();
}

#[test]
fn tied_weights_are_adapted_each_by_itself_and_not_merged() {
    let config = LlamaConfig {
        vocab_size: 11,
        hidden_size: 8,
        intermediate_size: 12,
        num_hidden_layers: 1,
        num_attention_heads: 4,
        tie_word_embeddings: true,
        ..LlamaConfig::default()
    };
    let model = Llama::new(&config, &cpu()).unwrap();
    let paths = lora::attach(&model, "words", &LoraConfig::new(2).targets(["embed_tokens", "q_proj"])).unwrap();
    assert_eq!(paths, ["model.embed_tokens", "model.layers.0.self_attn.q_proj"]);
    shake(&model, 1);
    let before = bits(&model);
    let error = lora::merge(&model).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let error = error.to_string();
    assert!(
        error.contains("model.embed_tokens.weight and lm_head.weight are one weight"),
        "{error}"
    );
    assert_eq!(bits(&model), before);

    // One layer at two places is another thing.
    let shared = std::sync::Arc::new(Linear::new(4, 4, &cpu()).unwrap());
    let model = Sequential::new().push(std::sync::Arc::clone(&shared)).push(shared);
    assert_eq!(lora::attach(&model, "one", &LoraConfig::new(2)).unwrap(), ["0"]);
    shake(&model, 1);
    let x = Tensor::ones([3, 4], &cpu()).unwrap();
    let expected = values(&model.forward(&x).unwrap());
    lora::merge(&model).unwrap();
    close(&values(&model.forward(&x).unwrap()), &expected, 1e-5, "shared");
}

#[test]
fn what_cannot_be_is_said() {
    let attached = |config: LoraConfig, name: &str| {
        let model = Mlp::new(&cpu());
        lora::attach(&model, "default", &LoraConfig::new(1).targets(["fc2"])).unwrap();
        let before = bits(&model);
        let error = lora::attach(&model, name, &config).unwrap_err();
        assert_eq!(bits(&model), before);
        error.to_string()
    };
    for (config, name, expected) in [
        (LoraConfig::new(0), "a", "the rank is at least 1"),
        (LoraConfig::new(1).alpha(f64::NAN), "a", "alpha = NaN"),
        (
            LoraConfig::new(1).dropout(1.0),
            "a",
            "dropout = 1.0 is outside 0.0..1.0",
        ),
        (LoraConfig::new(1), "a.b", "an adapter cannot be called \"a.b\""),
        (
            LoraConfig::new(1),
            "default",
            "the model has an adapter default already",
        ),
        (
            LoraConfig::new(1).targets(["fc3"]),
            "a",
            "fc3 is the name of no layer that can have an adapter",
        ),
        (LoraConfig::new(1).targets(["fc3"]), "a", "perhaps fc"),
        (
            LoraConfig::new(1).exclude(["weight"]),
            "a",
            "weight is the name of no layer",
        ),
        (LoraConfig::new(1).exclude(["fc*"]), "a", "no layer is left"),
    ] {
        let error = attached(config, name);
        assert!(error.contains(expected), "{error}");
    }
    let model = Mlp::new(&cpu());
    let error = lora::activate(&model, &["french"]).unwrap_err().to_string();
    assert!(
        error.contains("the model has no adapter french") && error.contains("it has none"),
        "{error}"
    );
    lora::attach(&model, "one", &LoraConfig::new(1).dora(true)).unwrap();
    lora::attach(&model, "two", &LoraConfig::new(1)).unwrap();
    let error = lora::activate(&model, &["one", "two"]).unwrap_err().to_string();
    assert!(
        error.contains("fc1") && error.contains("beside another one in one layer"),
        "{error}"
    );
    let error = lora::remove(&model, "french").unwrap_err().to_string();
    assert!(error.contains("it has one, two"), "{error}");
    let error = model.freeze(["fc1.wieght"]).unwrap_err().to_string();
    assert!(
        error.contains("fc1.wieght is the name of no parameter") && error.contains("perhaps fc1.weight"),
        "{error}"
    );

    let conv = Conv2dConfig::new(4, 4, 3);
    for (config, lora, expected) in [
        (
            conv.dilation(2),
            LoraConfig::new(2),
            "LoRA on a convolution with dilation",
        ),
        (
            conv.padding(1).padding_mode(PadMode::Reflect),
            LoraConfig::new(2),
            "a padding that is not of zeros",
        ),
        (
            conv.groups(2),
            LoraConfig::new(3),
            "rank 3 is no multiple of the convolution's 2 groups",
        ),
        (
            conv.groups(2),
            LoraConfig::new(2).dora(true),
            "DoRA on a convolution with 2 groups",
        ),
    ] {
        let model = Sequential::new().push(config.build(&cpu()).unwrap());
        let error = lora::attach(&model, "a", &lora.targets(["0"])).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(model.parameters().iter().all(Param::is_trainable));
    }
}
