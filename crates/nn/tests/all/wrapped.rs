//! Users' access to the parts of models: layers that are replaced and wrapped, the outputs of all layers, and files
//! with unneeded tensors.

use polygrad_nn::models::*;
use polygrad_nn::optim::{Optimizer, SGD};
use polygrad_nn::*;
use polygrad_tensor::{DType, Device, HostTensor, Result, Tensor, manual_seed, no_grad};
use serde_json::Value;

use crate::common;

fn device() -> Device {
    Device::<polygrad_cpu::Cpu>::default().into_any()
}

/// As a user would write it, without knowledge of the models' internals.
#[derive(Module)]
#[module(forward)]
struct Lora {
    base_layer: Slot<Linear>,
    lora_a: Linear,
    lora_b: Linear,
}

impl Lora {
    fn around(layer: &Slot<Linear>, rank: usize) -> Result<Self> {
        let weight = &layer.own().unwrap().weight;
        let (dims, device) = (weight.shape(), weight.device());
        let linear = |from, to| LinearConfig::new(from, to).bias(false).build(&device);
        Ok(Self {
            base_layer: layer.clone(),
            lora_a: linear(dims[1], rank)?,
            lora_b: linear(rank, dims[0])?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.base_layer
            .forward(x)?
            .add(self.lora_b.forward(&self.lora_a.forward(x)?)?)
    }
}

fn bert() -> (BertConfig, Bert) {
    let config = BertConfig {
        vocab_size: 17,
        hidden_size: 8,
        num_hidden_layers: 2,
        num_attention_heads: 2,
        intermediate_size: 12,
        max_position_embeddings: 10,
        initializer_range: 0.5,
        ..BertConfig::default()
    };
    let model = Bert::new(&config, &device()).unwrap();
    model.eval();
    (config, model)
}

fn llama_config() -> LlamaConfig {
    LlamaConfig {
        vocab_size: 17,
        hidden_size: 8,
        intermediate_size: 12,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        num_key_value_heads: Some(2),
        max_position_embeddings: 10,
        initializer_range: 0.5,
        ..LlamaConfig::default()
    }
}

fn ids() -> Tensor {
    Tensor::new([[3i64, 1, 4, 1, 5], [9, 2, 6, 5, 3]], &device()).unwrap()
}

fn values(x: &Tensor) -> Vec<f32> {
    x.to_vec().unwrap()
}

/// The mean of the fourth powers: that of squares is constant after a layer norm.
fn fourth(x: &Tensor) -> Result<Tensor> {
    x.square()?.square()?.mean_all()
}

/// Checks that training changes only parameters that are not frozen, and keeps all names.
fn trains_alone(model: &impl Module, before: &StateDict, moved: &str, forward: impl Fn() -> Result<Tensor>) {
    let trained: Vec<Param> = model.parameters().into_iter().filter(Param::is_trainable).collect();
    assert_eq!(trained.len(), 4);
    let first = no_grad(&forward).unwrap();
    let mut optimizer = SGD::new(model.parameters(), 0.05).unwrap();
    for _ in 0..2 {
        optimizer.backward_step(fourth(&forward().unwrap()).unwrap()).unwrap();
    }
    assert_ne!(values(&first), values(&no_grad(&forward).unwrap()));
    let after = model.state_dict().unwrap();
    assert_eq!(after.keys().count(), before.keys().count() + 4);
    let mut wrapped = 0;
    for (name, value) in before.iter() {
        let now = name.replace(&format!("{moved}."), &format!("{moved}.base_layer."));
        wrapped += usize::from(now != name);
        assert_eq!(
            after.get(&now).map(HostTensor::to_f64_vec),
            Some(value.to_f64_vec()),
            "{name}"
        );
    }
    assert!(wrapped > 0);
    // Another model, wrapped in the same way, loads it completely.
    assert!(
        after
            .keys()
            .any(|name| name.ends_with(&format!("{moved}.lora_a.weight")))
    );
}

#[test]
fn a_layer_of_bert_is_wrapped_by_one_that_the_library_does_not_know() {
    manual_seed(1);
    let (_, mut model) = bert();
    let (before, plain) = (
        model.state_dict().unwrap(),
        model.forward(BertInput::new(&ids())).unwrap(),
    );
    model.requires_grad(false);
    for layer in &mut model.encoder.layer {
        let query = &mut layer.attention.heads.query;
        query.set(Lora::around(query, 2).unwrap());
        assert!(query.own().is_none());
    }
    assert_ne!(values(&plain), values(&model.forward(BertInput::new(&ids())).unwrap()));
    trains_alone(&model, &before, "self.query", || model.forward(BertInput::new(&ids())));
    // Hooks see it under its name.
    let (sender, seen) = std::sync::mpsc::channel();
    let hook = move |layer: &watch::Activation| sender.send((layer.path.clone(), layer.layer.clone())).unwrap();
    watch::with_hook(&model, hook, || model.forward(BertInput::new(&ids()))).unwrap();
    let seen: Vec<_> = seen.iter().collect();
    let place = "encoder.layer.1.attention.self.query.base_layer".to_owned();
    assert!(seen.contains(&(place, "Linear".to_owned())), "{seen:?}");
}

#[test]
fn a_layer_of_llama_is_wrapped_with_cache_checkpoints_and_captured_steps() {
    manual_seed(2);
    let mut model = Llama::new(&llama_config(), &device()).unwrap();
    let before = model.state_dict().unwrap();
    model.requires_grad(false);
    for layer in &mut model.model.layers {
        let query = &mut layer.self_attn.q_proj;
        query.set(Lora::around(query, 2).unwrap());
    }
    trains_alone(&model, &before, "q_proj", || model.forward(&ids()));

    let whole = values(&model.forward(&ids()).unwrap());
    let mut cache = model.new_cache();
    let parts: Vec<Tensor> = (0..5)
        .map(|at| {
            model
                .forward_cached(&ids().narrow(1, at, 1).unwrap(), &mut cache)
                .unwrap()
        })
        .collect();
    let cached = values(&Tensor::cat(&parts.iter().collect::<Vec<_>>(), 1).unwrap());
    assert!(
        whole
            .iter()
            .zip(&cached)
            .all(|(a, b)| (a - b).abs() < 1e-5 * (1.0 + b.abs()))
    );

    let gradients = |model: &Llama| {
        let loss = model.forward(&ids()).unwrap().square().unwrap().mean_all().unwrap();
        let gradients = loss.backward().unwrap();
        let trained = model.parameters().into_iter().filter(Param::is_trainable);
        trained
            .flat_map(|param| values(gradients.get(&param).unwrap()))
            .collect::<Vec<f32>>()
    };
    let kept = gradients(&model);
    model.set_gradient_checkpointing(true);
    assert_eq!(kept, gradients(&model));
    model.set_gradient_checkpointing(false);

    let optimizer = SGD::new(model.parameters(), 0.02).unwrap();
    let step = TrainStep::new(model, optimizer, |model: &Llama, batch: &[Tensor]| {
        model.forward(&batch[0])?.square()?.mean_all()
    });
    let mut step = step.captured();
    let losses: Vec<f64> = (0..4).map(|_| step.step(&[ids()]).unwrap().item().unwrap()).collect();
    assert_eq!(step.refusal(), None);
    assert!(losses.windows(2).all(|pair| pair[1] != pair[0]), "{losses:?}");
}

/// A layer of another type instead of a linear one, and one in a slot followed by the crate's own activation.
#[test]
fn any_layer_takes_a_place() {
    manual_seed(3);
    let device = device();
    let mut gpt = Gpt2::new(
        &Gpt2Config {
            vocab_size: 17,
            n_positions: 10,
            n_embd: 8,
            n_layer: 2,
            n_head: 2,
            ..Gpt2Config::default()
        },
        &device,
    )
    .unwrap();
    gpt.eval();
    let dense = Sequential::new()
        .push(Linear::new(8, 4, &device).unwrap())
        .push(ReLU)
        .push(Linear::new(4, 32, &device).unwrap());
    gpt.transformer.h[1].mlp.c_fc.set(dense);
    gpt.transformer.h[0].ln_1.set(RMSNorm::new([8], &device).unwrap());
    gpt.lm_head.set(Linear::new(8, 5, &device).unwrap());
    assert_eq!(gpt.forward(&ids()).unwrap().dims(), [2, 5, 5]);
    let names: Vec<String> = gpt.named_parameters().into_iter().map(|(name, _)| name).collect();
    for name in [
        "transformer.h.1.mlp.c_fc.2.weight",
        "lm_head.bias",
        "transformer.wte.weight",
    ] {
        assert!(names.iter().any(|known| known == name), "{names:?}");
    }
    assert!(!names.contains(&"transformer.h.0.ln_1.bias".to_owned()));

    // Llama's gate is followed by an activation that its own layer fuses.
    let mut llama = Llama::new(&llama_config(), &device).unwrap();
    let plain = llama.forward(&ids()).unwrap();
    let gate = llama.model.layers[0].mlp.gate_proj.clone();
    llama.model.layers[0].mlp.gate_proj.set(Sequential::new().push(gate));
    let wrapped = llama.forward(&ids()).unwrap();
    assert!(
        values(&plain)
            .iter()
            .zip(values(&wrapped))
            .all(|(a, b)| (a - b).abs() < 1e-5 * (1.0 + b.abs()))
    );
    llama.model.layers.truncate(1);
    assert_ne!(values(&plain), values(&llama.forward(&ids()).unwrap()));
}

fn tensor(all: &StateDict, name: &str) -> Tensor {
    Tensor::from_host(all.get(name).unwrap().clone(), &device()).unwrap()
}

fn close(ours: &[Tensor], all: &StateDict, name: &str, count: &Value) {
    assert_eq!(Some(ours.len() as u64), count.as_u64(), "{name}");
    for (i, ours) in ours.iter().enumerate() {
        let theirs = tensor(all, &format!("{name}/{i}"));
        assert_eq!(ours.dims(), theirs.dims());
        for (a, b) in values(ours).into_iter().zip(values(&theirs)) {
            assert!((a - b).abs() <= 2e-5 * (1.0 + b.abs()), "{name}/{i}: {a} {b}");
        }
    }
}

/// A state dict of transformers, including the buffers that its older versions wrote.
fn weights(all: &StateDict, model: &str, unused: &[&str]) -> StateDict {
    let prefix = format!("{model}/weights/");
    let mut state = StateDict::new();
    for (name, value) in all.iter() {
        if let Some(name) = name.strip_prefix(&prefix) {
            state.insert(name, value.clone());
        }
    }
    for name in unused {
        state.insert(*name, HostTensor::new([1, 10].into(), vec![0i64; 10]).unwrap());
    }
    state
}

fn loads(model: &impl Module, state: &StateDict) {
    model.load_state_dict(state, true).unwrap();
    assert_eq!(model.load_state_dict(state, false).unwrap(), LoadReport::default());
    // Other unknown names are still errors.
    for unknown in [
        "position_ids",
        "layers.0.rotary.inv_freq",
        "h.0.attn.biases",
        "encoder.position_ids",
    ] {
        let mut more = state.clone();
        more.insert(unknown, HostTensor::new([1].into(), vec![0f32]).unwrap());
        let error = model.load_state_dict(&more, true).unwrap_err().to_string();
        assert!(error.contains(unknown), "{error}");
    }
    model.eval();
}

#[test]
fn hidden_states_are_those_of_transformers_and_buffers_that_nobody_needs_do_not_matter() {
    let folder = common::data("hidden");
    let all = StateDict::load(folder.join("states.safetensors")).unwrap();
    let cases = common::json(&folder.join("cases.json"));
    let input = |model: &str, name: &str| {
        let rows = cases[model][name].as_array().unwrap();
        let numbers = rows
            .iter()
            .flat_map(|row| row.as_array().unwrap())
            .map(|x| x.as_i64().unwrap());
        Tensor::from_vec(
            numbers.collect::<Vec<i64>>(),
            [rows.len(), rows[0].as_array().unwrap().len()],
            &device(),
        )
        .unwrap()
    };
    let config = |model: &str| cases[model]["config"].to_string();

    let model = Bert::new(&BertConfig::from_json(&config("bert")).unwrap(), &device()).unwrap();
    loads(
        &model,
        &weights(&all, "bert", &["embeddings.position_ids", "embeddings.token_type_ids"]),
    );
    let (ids, mask) = (input("bert", "input_ids"), input("bert", "attention_mask"));
    let states = model.hidden_states(BertInput::new(&ids).attention_mask(&mask)).unwrap();
    close(&states, &all, "bert/hidden", &cases["bert"]["hidden"]);
    let last = model.forward(BertInput::new(&ids).attention_mask(&mask)).unwrap();
    assert_eq!(values(&last), values(states.last().unwrap()));

    // The names in BERT's first files.
    let old = weights(&all, "bert", &[]);
    let old: StateDict = old
        .iter()
        .map(|(name, value)| {
            let name = name.replace("LayerNorm.weight", "LayerNorm.gamma");
            (name.replace("LayerNorm.bias", "LayerNorm.beta"), value.clone())
        })
        .collect();
    assert!(old.contains("embeddings.LayerNorm.gamma"));
    loads(&model, &old);
    close(
        &model.hidden_states(BertInput::new(&ids).attention_mask(&mask)).unwrap(),
        &all,
        "bert/hidden",
        &3.into(),
    );

    let model = Gpt2Model::new(&Gpt2Config::from_json(&config("gpt2")).unwrap(), &device()).unwrap();
    loads(
        &model,
        &weights(&all, "gpt2", &["h.0.attn.bias", "h.1.attn.masked_bias"]),
    );
    let ids = input("gpt2", "input_ids");
    let states = model.hidden_states(&ids).unwrap();
    close(&states, &all, "gpt2/hidden", &cases["gpt2"]["hidden"]);
    assert_eq!(values(&model.forward(&ids).unwrap()), values(states.last().unwrap()));
    let cached = model.forward_cached(&ids, &mut model.new_cache()).unwrap();
    close(
        &[cached],
        &all_of(&all, "gpt2/hidden/2", "cached/0"),
        "cached",
        &1.into(),
    );

    let model = LlamaModel::new(&LlamaConfig::from_json(&config("llama")).unwrap(), &device()).unwrap();
    let unused = ["rotary_emb.inv_freq", "layers.1.self_attn.rotary_emb.inv_freq"];
    loads(&model, &weights(&all, "llama", &unused));
    let ids = input("llama", "input_ids");
    let states = model.hidden_states(&ids).unwrap();
    close(&states, &all, "llama/hidden", &cases["llama"]["hidden"]);
    assert_eq!(values(&model.forward(&ids).unwrap()), values(states.last().unwrap()));
    let cached = model.forward_cached(&ids, &mut model.new_cache()).unwrap();
    close(
        &[cached],
        &all_of(&all, "llama/hidden/2", "cached/0"),
        "cached",
        &1.into(),
    );

    let model = T5::new(&T5Config::from_json(&config("t5")).unwrap(), &device()).unwrap();
    let unused = ["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"];
    loads(&model, &weights(&all, "t5", &unused));
    let (ids, mask) = (input("t5", "input_ids"), input("t5", "attention_mask"));
    let states = model
        .hidden_states(&ids, Some(&mask), &input("t5", "decoder_input_ids"))
        .unwrap();
    close(&states.encoder, &all, "t5/encoder", &cases["t5"]["encoder"]);
    close(&states.decoder, &all, "t5/decoder", &cases["t5"]["decoder"]);
    let encoded = model.encode(&ids, Some(&mask)).unwrap();
    assert_eq!(values(&encoded), values(states.encoder.last().unwrap()));
}

fn all_of(all: &StateDict, from: &str, to: &str) -> StateDict {
    let mut out = StateDict::new();
    out.insert(to, all.get(from).unwrap().clone());
    out
}

#[test]
fn a_vision_transformer_gives_what_all_layers_give() {
    let config = VitConfig {
        image_size: 8,
        patch_size: 4,
        num_layers: 2,
        num_heads: 2,
        hidden_dim: 8,
        mlp_dim: 12,
        num_classes: 3,
        ..VitConfig::default()
    };
    let mut model = VisionTransformer::new(&config, &device()).unwrap();
    let images = Tensor::randn([2, 3, 8, 8], (&device(), DType::F32)).unwrap();
    let states = model.hidden_states(&images).unwrap();
    assert_eq!(states.len(), 3);
    assert!(states.iter().all(|x| x.dims() == [2, 5, 8]));
    let features = model.features(&images).unwrap();
    assert_eq!(
        values(&model.encoder.ln.forward(&states[2]).unwrap()),
        values(&features)
    );
    model.heads.head.set(Linear::new(8, 2, &device()).unwrap());
    assert_eq!(model.forward(&images).unwrap().dims(), [2, 2]);
}

/// Errors name the module that raised them.
#[test]
fn errors_of_models_name_the_model() {
    let (config, bert) = bert();
    let long = Tensor::full([1, 11], 1i64, (&device(), DType::I64)).unwrap();
    let classifier = BertClassifier::new(&config, &device()).unwrap();
    for error in [
        bert.forward(BertInput::new(&long)).unwrap_err(),
        bert.hidden_states(BertInput::new(&long)).unwrap_err(),
        classifier.forward(BertInput::new(&long)).unwrap_err(),
    ] {
        let text = error.to_string();
        assert!(text.starts_with("Bert: 11 tokens"), "{text}");
    }
    let llama = Llama::new(&llama_config(), &device()).unwrap();
    let gpt = Gpt2Config {
        vocab_size: 17,
        n_positions: 10,
        n_embd: 8,
        n_layer: 1,
        n_head: 2,
        ..Gpt2Config::default()
    };
    let gpt = Gpt2::new(&gpt, &device()).unwrap();
    for (error, name) in [
        (llama.forward(&long).unwrap_err(), "LlamaModel: 11 tokens"),
        (llama.model.forward(&long).unwrap_err(), "LlamaModel: 11 tokens"),
        (gpt.forward(&long).unwrap_err(), "Gpt2Model: 11 tokens"),
        (
            gpt.transformer.hidden_states(&long).unwrap_err(),
            "Gpt2Model: 11 tokens",
        ),
    ] {
        assert!(error.to_string().starts_with(name), "{error}");
    }
}

/// docs/models.md names the counterpart of each model's state dict.
#[test]
fn the_page_of_models_has_them_all() {
    let here = common::crate_folder();
    let page = std::fs::read_to_string(here.join("../../docs/models.md")).unwrap();
    let exported = std::fs::read_to_string(here.join("src/models/mod.rs")).unwrap();
    let mut models = 0;
    let mut folders = vec![here.join("src/models")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let source = std::fs::read_to_string(&path).unwrap();
            let lines: Vec<&str> = source.lines().collect();
            for (i, line) in lines.iter().enumerate() {
                let Some(rest) = line.strip_prefix("pub struct ") else {
                    continue;
                };
                let name = rest.split(|c: char| !c.is_alphanumeric()).next().unwrap();
                let is_module = lines[i.saturating_sub(3)..i]
                    .iter()
                    .any(|line| line.contains("Module)"));
                let words = |text: &str| {
                    text.split(|c: char| !c.is_alphanumeric() && c != '_')
                        .any(|word| word == name)
                };
                let public = exported.lines().any(|line| line.starts_with("pub use") && words(line));
                if is_module && public {
                    models += 1;
                    assert!(page.contains(&format!("`{name}`")), "docs/models.md lacks {name}");
                }
            }
        }
    }
    assert!(models >= 10, "{models}");
}
