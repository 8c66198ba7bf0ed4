//! Adapters as PEFT's files, on models of transformers. scripts/make_lora_vectors.py made files and logits.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use polygrad_nn::lora::{self, LoraConfig};
use polygrad_nn::models::{BertClassifier, BertConfig, BertInput, Gpt2, Gpt2Config, Llama, LlamaConfig, ModelConfig};
use polygrad_nn::*;
use polygrad_tensor::{Device, Tensor, no_grad};
use serde_json::Value;

use crate::common::{data, json};

on_cpu!(
    pefts_adapters_give_its_logits_and_are_written_as_it_does,
    own_adapters_come_back_bit_for_bit,
    what_does_not_fit_is_refused_with_its_names,
);

enum Model {
    Llama(Llama),
    Bert(BertClassifier),
    Gpt2(Gpt2),
}

impl Model {
    fn new(name: &str, case: &Value, device: &Device) -> Self {
        let config = case["config"].to_string();
        let path = data("lora").join(format!("{name}.safetensors"));
        let model = match name {
            "llama" => Self::Llama(Llama::new(&LlamaConfig::from_json(&config).unwrap(), device).unwrap()),
            "bert" => {
                let mut config = BertConfig::from_json(&config).unwrap();
                config.num_labels = Some(3);
                Self::Bert(BertClassifier::new(&config, device).unwrap())
            }
            _ => Self::Gpt2(Gpt2::new(&Gpt2Config::from_json(&config).unwrap(), device).unwrap()),
        };
        model
            .module()
            .load_state_dict(&StateDict::load(path).unwrap(), true)
            .unwrap();
        model.module().eval();
        model
    }

    fn module(&self) -> &dyn Module {
        match self {
            Self::Llama(model) => model,
            Self::Bert(model) => model,
            Self::Gpt2(model) => model,
        }
    }

    fn logits(&self, ids: &Tensor) -> Vec<f64> {
        let logits = no_grad(|| match self {
            Self::Llama(model) => model.forward(ids),
            Self::Bert(model) => model.forward(BertInput::new(ids)),
            Self::Gpt2(model) => model.forward(ids),
        });
        logits.unwrap().to_f64_vec().unwrap()
    }
}

fn flat(value: &Value) -> Vec<f64> {
    match value.as_array() {
        Some(values) => values.iter().flat_map(flat).collect(),
        None => vec![value.as_f64().unwrap()],
    }
}

fn ids(case: &Value, device: &Device) -> Tensor {
    let ids: Vec<i64> = flat(&case["ids"]).iter().map(|x| *x as i64).collect();
    Tensor::from_vec(ids, [2, 6], device).unwrap()
}

fn close(found: &[f64], expected: &[f64], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (a, b) in found.iter().zip(expected) {
        assert!((a - b).abs() <= 1e-5 * (1.0 + b.abs()), "{what}: {a} {b}");
    }
}

/// The tensors of an adapter's file, but for PEFT's copies of weights of the base.
fn tensors(folder: &Path) -> Vec<(String, Vec<u64>)> {
    let (state, metadata) = StateDict::load_with_metadata(folder.join("adapter_model.safetensors")).unwrap();
    assert_eq!(metadata["format"], "pt");
    let own = state.iter().filter(|(name, _)| !name.contains("base_layer"));
    let bits = own.map(|(name, value)| {
        (
            name.to_owned(),
            value.to_f64_vec().iter().map(|x| x.to_bits()).collect(),
        )
    });
    let mut bits: Vec<_> = bits.collect();
    bits.sort();
    bits
}

fn names(value: &Value) -> BTreeSet<String> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap().to_owned())
        .collect()
}

fn pefts_adapters_give_its_logits_and_are_written_as_it_does(device: &Device) {
    let cases = json(&data("lora").join("models.json"));
    let mut count = 0;
    for name in ["llama", "bert", "gpt2"] {
        let case = &cases[name];
        for (adapter, logits) in case["adapters"].as_object().unwrap() {
            let what = format!("{name}_{adapter}");
            let model = Model::new(name, case, device);
            let folder = data("lora").join(&what);
            let ids = ids(case, device);
            let base = model.logits(&ids);
            let paths = lora::load(model.module(), "mine", &folder).unwrap();
            let adapted = model.logits(&ids);
            close(&adapted, &flat(logits), &what);
            lora::activate(model.module(), &[]).unwrap();
            if adapter != "head" {
                assert_eq!(model.logits(&ids), base, "{what}");
            }
            lora::activate(model.module(), &["mine"]).unwrap();

            let out = tempfile::tempdir().unwrap();
            lora::save(model.module(), "mine", out.path()).unwrap();
            assert_eq!(tensors(out.path()), tensors(&folder), "{what}");
            let [ours, theirs] = [out.path(), &folder].map(|folder| json(&folder.join("adapter_config.json")));
            for key in [
                "r",
                "lora_alpha",
                "lora_dropout",
                "use_dora",
                "use_rslora",
                "bias",
                "peft_type",
            ] {
                assert_eq!(ours[key], theirs[key], "{what} {key}");
            }
            for key in ["fan_in_fan_out", "inference_mode", "init_lora_weights"] {
                assert_eq!(ours[key], theirs[key], "{what} {key}");
            }
            assert_eq!(
                names(&ours["target_modules"]),
                names(&theirs["target_modules"]),
                "{what}"
            );
            if adapter == "head" {
                assert_eq!(
                    names(&ours["modules_to_save"]),
                    BTreeSet::from(["classifier".to_owned()])
                );
            }
            // Ranks and alphas of single layers are written by their paths.
            for key in ["rank_pattern", "alpha_pattern"] {
                assert_eq!(
                    ours[key].as_object().unwrap().is_empty(),
                    theirs[key].as_object().unwrap().is_empty()
                );
            }
            let again = Model::new(name, case, device);
            assert_eq!(lora::load(again.module(), "again", out.path()).unwrap(), paths);
            assert_eq!(again.logits(&ids), adapted, "{what}");
            lora::merge(again.module()).unwrap();
            close(&again.logits(&ids), &adapted, &what);
            count += 1;
        }
    }
    assert_eq!(count, 8);
}

fn own_adapters_come_back_bit_for_bit(device: &Device) {
    let cases = json(&data("lora").join("models.json"));
    let case = &cases["bert"];
    let model = Model::new("bert", case, device);
    let config = LoraConfig::new(2)
        .alpha(3.5)
        .dropout(0.1)
        .targets(["layer.*.query", "dense"])
        .exclude(["pooler.dense"]);
    let paths = lora::attach(model.module(), "mine", &config).unwrap();
    assert_eq!(paths.len(), 8);
    let Model::Bert(bert) = &model else { unreachable!() };
    bert.unfreeze(["classifier"]).unwrap();
    for (_, param) in model
        .module()
        .named_parameters()
        .iter()
        .filter(|(_, param)| param.is_trainable())
    {
        let drawn = Init::Uniform { low: -1.0, high: 1.0 }.tensor(param.shape().dims(), param.dtype(), device);
        param.set(&drawn.unwrap()).unwrap();
    }
    let out = tempfile::tempdir().unwrap();
    let folder = out.path().join("a/b");
    lora::save(model.module(), "mine", &folder).unwrap();
    let config = json(&folder.join("adapter_config.json"));
    assert_eq!(
        (&config["lora_alpha"], &config["lora_dropout"]),
        (&3.5.into(), &0.1.into())
    );
    assert_eq!(names(&config["target_modules"]), paths.iter().cloned().collect());
    let again = Model::new("bert", case, device);
    assert_eq!(lora::load(again.module(), "mine", &folder).unwrap().len(), 8);
    let ids = ids(case, device);
    assert_eq!(again.logits(&ids), model.logits(&ids));
    let trainable = |model: &dyn Module| -> Vec<String> {
        let params = model
            .named_parameters()
            .into_iter()
            .filter(|(_, param)| param.is_trainable());
        params.map(|(name, _)| name).collect()
    };
    assert_eq!(trainable(again.module()), trainable(model.module()));

    // What the format has no place for.
    bert.unfreeze(["query.bias"]).unwrap();
    let error = lora::save(model.module(), "mine", &folder).unwrap_err().to_string();
    assert!(
        error.contains("attention.self.query is trainable and has an adapter"),
        "{error}"
    );
    let error = lora::save(model.module(), "yours", &folder).unwrap_err().to_string();
    assert!(error.contains("no adapter yours"), "{error}");
}

fn what_does_not_fit_is_refused_with_its_names(device: &Device) {
    let cases = json(&data("lora").join("models.json"));
    let out = tempfile::tempdir().unwrap();
    let source = data("lora").join("llama_lora");
    let config = json(&source.join("adapter_config.json"));
    let refused = |change: &dyn Fn(&mut Value), state: Option<&StateDict>| {
        let mut changed = config.clone();
        change(&mut changed);
        fs::write(out.path().join("adapter_config.json"), changed.to_string()).unwrap();
        match state {
            Some(state) => state.save(out.path().join("adapter_model.safetensors")).unwrap(),
            None => {
                fs::copy(
                    source.join("adapter_model.safetensors"),
                    out.path().join("adapter_model.safetensors"),
                )
                .unwrap();
            }
        }
        let model = Model::new("llama", &cases["llama"], device);
        let before = model.module().named_parameters().len();
        let error = lora::load(model.module(), "mine", out.path()).unwrap_err().to_string();
        assert_eq!(model.module().named_parameters().len(), before);
        assert!(model.module().parameters().iter().all(Param::is_trainable));
        error
    };
    let set = |key: &'static str, value: Value| move |config: &mut Value| config[key] = value.clone();
    for (change, expected) in [
        (set("peft_type", "IA3".into()), "has peft_type IA3, which is not there"),
        (set("bias", "all".into()), "bias all"),
        (
            set("init_lora_weights", "pissa".into()),
            "init_lora_weights \"pissa\", by which PEFT changes the base",
        ),
        (set("lora_bias", true.into()), "lora_bias"),
        (
            set("trainable_token_indices", vec![1].into()),
            "trainable_token_indices",
        ),
        (
            set("r", 3.into()),
            "self_attn.q_proj: A is f32[2, 8], and with rank 3 it is [3, 8] here",
        ),
        (set("r", "two".into()), "adapter_config.json: invalid type"),
        (set("lora_dropout", 2.into()), "dropout = 2.0 is outside"),
        (set("use_dora", true.into()), "the magnitude is missing"),
        (
            set("alpha_pattern", serde_json::json!({"q_.*": 2})),
            "a regular expression, q_.*",
        ),
    ] {
        let error = refused(&change, None);
        assert!(error.contains(expected), "{error}");
    }

    let state = StateDict::load(source.join("adapter_model.safetensors")).unwrap();
    let renamed = |from: &str, to: &str| -> StateDict {
        state
            .iter()
            .map(|(name, value)| (name.replace(from, to), value.clone()))
            .collect()
    };
    let mut more = state.clone();
    more.insert("base_model.model.score.weight", state.iter().next().unwrap().1.clone());
    for (state, expected) in [
        (
            renamed("layers.1", "layers.2"),
            "no layer model.layers.2.self_attn.q_proj (perhaps model.layers.",
        ),
        (
            renamed("base_model.model.", ""),
            "does not begin with base_model.model.",
        ),
        (renamed("lora_A", "other"), "A is missing"),
        (more, "no parameter score.weight"),
        (StateDict::new(), "it holds no adapter"),
    ] {
        let error = refused(&|_| {}, Some(&state));
        assert!(
            error.contains(expected) && error.contains("adapter_model.safetensors"),
            "{error}"
        );
    }

    // That of another kind of model, and of other weights.
    let model = Model::new("llama", &cases["llama"], device);
    let error = lora::load(model.module(), "mine", data("lora").join("bert_lora"))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("the adapter is of another base: no layer bert.encoder.layer.0.attention.self.query"),
        "{error}"
    );
    let first = &model.module().parameters()[0];
    first
        .set(&Tensor::zeros(first.shape().dims(), device).unwrap())
        .unwrap();
    let error = lora::load(model.module(), "mine", data("lora").join("llama_words"))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("model.embed_tokens: its own weight, which is in the file too, has other values"),
        "{error}"
    );
    let error = lora::load(model.module(), "mine", out.path().join("absent"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("adapter_config.json"), "{error}");
    fs::write(out.path().join("adapter_config.json"), "{").unwrap();
    let error = lora::load(model.module(), "mine", out.path()).unwrap_err().to_string();
    assert!(error.contains("adapter_config.json: EOF"), "{error}");

    // Whole modules are the model's, so that they would change its other adapters.
    let model = Model::new("bert", &cases["bert"], device);
    lora::load(model.module(), "one", data("lora").join("bert_lora")).unwrap();
    let error = lora::load(model.module(), "two", data("lora").join("bert_head"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("would change the model's other adapters"), "{error}");
}
