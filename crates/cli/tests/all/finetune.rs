//! Language models trained by others learn from prompts and completions.

use std::fs;
use std::time::Duration;

use polygrad::nn::models::{Gpt2, Gpt2Config, Llama, LlamaConfig, ModelConfig};
use polygrad::nn::{Module, StateDict, lora};
use polygrad::text::Tokenizer;
use polygrad::{Device, Tensor, manual_seed};

use crate::common::Scene;

/// The folders `llama` and `gpt2` with small models in the Hub's form, and `lines.jsonl`.
pub(crate) fn scene() -> Scene {
    let scene = Scene::new();
    let device = Device::new("cpu").unwrap();
    manual_seed(7);
    let texts = [
        "red is a colour and two is a number",
        "blue is a colour and three is a number",
    ];
    let tokenizer = Tokenizer::train_bpe(texts, 300, &["<end>"]).unwrap();
    let vocab_size = tokenizer.vocab_size();
    let llama = LlamaConfig {
        vocab_size,
        hidden_size: 32,
        intermediate_size: 48,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        num_key_value_heads: Some(2),
        max_position_embeddings: 64,
        initializer_range: 0.3,
        ..LlamaConfig::default()
    };
    let gpt2 = Gpt2Config {
        vocab_size,
        n_positions: 64,
        n_embd: 32,
        n_layer: 2,
        n_head: 4,
        ..Gpt2Config::default()
    };
    for name in ["llama", "gpt2"] {
        fs::create_dir(scene.path(name)).unwrap();
        scene.write(
            &format!("{name}/tokenizer.json"),
            tokenizer.to_json().unwrap().as_bytes(),
        );
        let (json, weights) = match name {
            "llama" => (
                llama.to_json().unwrap(),
                Llama::new(&llama, &device).unwrap().state_dict().unwrap(),
            ),
            _ => (
                gpt2.to_json().unwrap(),
                Gpt2::new(&gpt2, &device).unwrap().transformer.state_dict().unwrap(),
            ),
        };
        let mut json: serde_json::Value = serde_json::from_str(&json).unwrap();
        json["model_type"] = name.into();
        json["eos_token_id"] = tokenizer.token_to_id("<end>").into();
        scene.write(&format!("{name}/config.json"), json.to_string().as_bytes());
        weights.save(scene.path(name).join("model.safetensors")).unwrap();
    }
    scene.write("lines.jsonl", lines(40).as_bytes());
    scene
}

fn lines(count: usize) -> String {
    let line = |i: usize| {
        let (thing, kind) = [
            ("red", "colour"),
            ("two", "number"),
            ("blue", "colour"),
            ("three", "number"),
        ][i % 4];
        format!("{{\"prompt\": \"{thing} is a\", \"completion\": \" {kind}\"}}\n")
    };
    (0..count).map(line).collect()
}

/// The last validation loss that a run printed.
fn validation_loss(out: &str) -> f64 {
    let (_, rest) = out.rsplit_once("validation loss ").unwrap();
    rest.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn an_adapter_is_trained_and_merged() {
    let scene = scene();
    let held = scene.read("llama/model.safetensors");
    let options = "--data lines.jsonl --lr 0.02 --batch-size 8 --threads 1";
    let line = "finetune llama --lora r=4,alpha=8,targets=q_proj,v_proj,down_proj --epochs 12 --out run";
    let out = scene.ok(&format!("{line} {options}"));
    assert!(out.contains("36 examples to learn from, 4 to judge by"), "{out}");
    assert!(validation_loss(&out) < 0.5, "{out}");
    assert!(scene.read("llama/model.safetensors") == held, "a base is never written");
    // Only the trained parts are saved: A and B, and two moments and a step of each.
    let model = StateDict::load(scene.path("run/model.safetensors")).unwrap();
    assert_eq!(model.len(), 12);
    assert!(model.keys().all(|name| name.contains(".lora_")));
    let checkpoint = polygrad::nn::Checkpoint::load(scene.path("run/checkpoint.safetensors")).unwrap();
    assert_eq!(checkpoint.model.len(), 12);
    assert_eq!(
        checkpoint
            .optimizer
            .keys()
            .filter(|name| name.ends_with(".exp_avg"))
            .count(),
        12
    );

    let judged = scene.ok("eval run");
    assert!(
        judged.contains(&format!("\nloss {} nats a token", validation_loss(&out))),
        "{judged}"
    );
    let written = scene.ok("generate run --temperature 0 --tokens 5 --prompt blue");
    assert!(written.starts_with("blue"), "{written}");
    // The adapter in its files, and merged into the weights.
    scene.ok("merge run --out merged.safetensors");
    let config = LlamaConfig::load(scene.path("llama/config.json")).unwrap();
    let device = Device::new("cpu").unwrap();
    let load = |path: &str| {
        let model = Llama::new(&config, &device).unwrap();
        model.load(scene.path(path)).unwrap();
        model.eval();
        model
    };
    let (base, merged) = (load("llama/model.safetensors"), load("merged.safetensors"));
    let ids = Tensor::new([[3i64, 70, 250, 8]], &device).unwrap();
    let logits = |model: &Llama| model.forward(&ids).unwrap().to_f64_vec().unwrap();
    let own = logits(&base);
    assert_eq!(lora::load(&base, "mine", scene.path("run/adapter")).unwrap().len(), 6);
    let (adapted, merged) = (logits(&base), logits(&merged));
    let far = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(far(&adapted, &merged) < 1e-4 && far(&adapted, &own) > 0.1);
    scene.ok("merge run --out whole");
    assert!(scene.read("whole/model.safetensors") == scene.read("merged.safetensors"));
    assert_eq!(
        scene.ok("generate whole --temperature 0 --tokens 5 --prompt blue"),
        written
    );
    scene.fails(
        "merge run --out run/model.safetensors",
        &["would lie among the files of the run"],
    );
    scene.fails(
        "merge run --out llama/other.safetensors",
        &["would lie among the files of the base"],
    );
    assert!(!scene.path("llama/other.safetensors").exists());
}

#[test]
fn all_weights_of_gpt2_are_trained_and_a_killed_run_ends_in_the_same_bytes() {
    let scene = scene();
    let line = "finetune gpt2 --data lines.jsonl --validation lines.jsonl --lr 0.003 --epochs 8 --threads 1";
    for lora in ["", "--lora r=2,dropout=0.1,dora=true"] {
        let name = if lora.is_empty() { "full" } else { "dora" };
        let out = scene.ok(&format!("{line} {lora} --out {name}"));
        assert!(out.contains("40 examples to learn from, 40 to judge by"), "{out}");
        let mut early = scene.command(&format!("{line} {lora} --out killed")).spawn().unwrap();
        while !scene.path("killed/checkpoint.safetensors").exists() {
            std::thread::sleep(Duration::from_millis(2));
        }
        early.kill().unwrap();
        early.wait().unwrap();
        scene.ok("train --resume killed");
        scene.same("killed", name);
        assert_eq!(scene.path("killed/adapter").exists(), !lora.is_empty());
        fs::remove_dir_all(scene.path("killed")).unwrap();
    }
}

#[test]
fn long_examples_are_cut_and_said() {
    let scene = scene();
    let long = format!(
        "{{\"prompt\": \"red\", \"completion\": \"{}\"}}\n",
        "number ".repeat(90)
    );
    let lost = format!(
        "{{\"prompt\": \"{}\", \"completion\": \"red\"}}\n",
        "number ".repeat(90)
    );
    scene.write(
        "long.jsonl",
        format!("\n{}{long}{lost}{}", lines(3), lines(20)).as_bytes(),
    );
    let out = scene.ok("finetune llama --data long.jsonl --lora --context 16 --epochs 1 --out run --threads 1");
    assert!(
        out.contains("long.jsonl: lines truncated to 16 tokens: 1, the first is line 5"),
        "{out}"
    );
    assert!(
        out.contains(
            "long.jsonl: lines left out, since their prompt alone has 16 tokens or more: 1, the first is line 6"
        ),
        "{out}"
    );
    assert!(out.contains("22 examples to learn from, 2 to judge by"), "{out}");
}

#[test]
fn bad_input_is_named_before_anything_is_written() {
    let scene = scene();
    let good = lines(4);
    for (line, words) in [
        ("{\"prompt\": \"red\"", "EOF while parsing an object at column 16"),
        ("{\"prompt\": \"red\"}", "missing field `completion`"),
        ("{\"prompt\": \"red\", \"completion\": \"\"}", "the completion is empty"),
        ("{\"prompt\": 3, \"completion\": \"red\"}", "invalid type"),
        ("[\"red\", \"blue\"]", "it is a list, not an object"),
    ] {
        scene.write("bad.jsonl", format!("{good}{line}\n").as_bytes());
        let text = scene.fails(
            "finetune llama --data bad.jsonl --lora --out none",
            &["bad.jsonl, line 5: ", words],
        );
        assert!(text.contains("write each line as"), "{text}");
    }
    scene.write("one.jsonl", lines(1).as_bytes());
    scene.fails(
        "finetune llama --data one.jsonl --out none",
        &["one.jsonl has too few examples"],
    );
    for empty in ["", "\n \n"] {
        scene.write("empty.jsonl", empty.as_bytes());
        scene.fails(
            "finetune llama --data empty.jsonl --out none",
            &["empty.jsonl has too few examples"],
        );
    }
    scene.fails("finetune llama --data absent.jsonl --out none", &["absent.jsonl"]);
    scene.fails("finetune llama --lora --out none", &["no examples are named", "--data"]);
    scene.fails("finetune absent --data lines.jsonl --out none", &["absent"]);
    scene.fails(
        "finetune llama --data lines.jsonl --lora targets=query --out none",
        &["query is the name of no layer that can have an adapter"],
    );
    scene.fails(
        "finetune llama --data lines.jsonl --context 65 --out none",
        &["more than the 64 tokens of the model"],
    );
    fs::create_dir(scene.path("bert")).unwrap();
    fs::create_dir(scene.path("latin")).unwrap();
    scene.write("latin/config.json", b"{\"model_type\": \"\xe9\"}");
    scene.fails(
        "finetune latin --data lines.jsonl --out run",
        &["latin/config.json: ", "UTF-8", "get it again"],
    );
    scene.write("bert/config.json", br#"{"model_type": "bert"}"#);
    scene.fails(
        "finetune bert --data lines.jsonl --out none",
        &["config.json: a model of the kind \"bert\""],
    );
    // A tokenizer of another model.
    let config = String::from_utf8(scene.read("llama/config.json")).unwrap();
    fs::create_dir(scene.path("small")).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&config).unwrap();
    config["vocab_size"] = 200.into();
    scene.write("small/config.json", config.to_string().as_bytes());
    scene.write("small/model.safetensors", &scene.read("llama/model.safetensors"));
    scene.write("small/tokenizer.json", &scene.read("llama/tokenizer.json"));
    scene.fails(
        "finetune small --data lines.jsonl --out none",
        &["the tokenizer makes token", "the model has 200 tokens"],
    );
    // Settings that no model can have.
    config["num_attention_heads"] = 5.into();
    scene.write("small/config.json", config.to_string().as_bytes());
    scene.fails(
        "finetune small --data lines.jsonl --lora --out none",
        &[
            "config.json: 5 heads do not divide a width of 32",
            "that the model was published with",
        ],
    );
    assert!(!scene.path("none").exists());
    // A byte order mark before the first line.
    scene.write("marked.jsonl", format!("\u{feff}{good}").as_bytes());
    scene.ok("finetune llama --data marked.jsonl --lora --epochs 1 --out marked --threads 1");
    scene.fails(
        "train --resume marked --patience 2",
        &["--patience is left out there, not 2"],
    );

    // A base or data that have changed, or lie elsewhere.
    scene.ok("finetune llama --data lines.jsonl --lora --epochs 1 --out run --threads 1");
    scene.fails(
        "train --resume run --lora r=3",
        &["--lora is r=8,alpha=8,dropout=0", "not r=3"],
    );
    let weights = scene.read("llama/model.safetensors");
    let mut other = weights.clone();
    *other.last_mut().unwrap() ^= 1;
    scene.write("llama/model.safetensors", &other);
    for line in [
        "train --resume run --epochs 2",
        "merge run --out merged.safetensors",
        "generate run",
    ] {
        scene.fails(line, &["llama is not the model that", "began with"]);
    }
    scene.write("llama/model.safetensors", &weights);
    scene.write("lines.jsonl", lines(41).as_bytes());
    scene.fails(
        "train --resume run --epochs 2",
        &["lines.jsonl are not the examples that run began with"],
    );
    scene.fails("eval run", &["lines.jsonl are not the examples that run began with"]);
    scene.fails("export run --onnx x.onnx", &["is a run of finetune"]);
    #[cfg(feature = "serve")]
    scene.fails(
        "serve llama --max-memory 1B --port 0",
        &["and the limit is 1", "raise the limit with --max-memory SIZE"],
    );
    fs::rename(scene.path("llama"), scene.path("moved")).unwrap();
    scene.fails(
        "generate marked",
        &["llama is gone, which the run began with", "finetune PLACE --resume"],
    );
    scene.ok("finetune moved --resume marked");
    scene.ok("generate marked --tokens 2");
    // Weights that are no numbers.
    let mut state = StateDict::load(scene.path("moved/model.safetensors")).unwrap();
    let device = Device::new("cpu").unwrap();
    let norm = Tensor::full(32, f64::NAN, &device).unwrap();
    state.insert("model.norm.weight", norm.to_host().unwrap());
    state.save(scene.path("moved/model.safetensors")).unwrap();
    scene.fails(
        "finetune moved --data lines.jsonl --lora --out nan --threads 1",
        &["the loss is NaN at step 1", "in what training begins with"],
    );
}

#[test]
fn an_adapter_of_tied_layers_stays_beside_them() {
    let scene = scene();
    let mut config: serde_json::Value = serde_json::from_slice(&scene.read("llama/config.json")).unwrap();
    config["tie_word_embeddings"] = true.into();
    scene.write("llama/config.json", config.to_string().as_bytes());
    let state = StateDict::load(scene.path("llama/model.safetensors")).unwrap();
    let rest = state.iter().filter(|(name, _)| *name != "lm_head.weight");
    let rest: StateDict = rest.map(|(name, value)| (name.to_owned(), value.clone())).collect();
    rest.save(scene.path("llama/model.safetensors")).unwrap();
    let line = "finetune llama --data lines.jsonl --lora r=4,targets=lm_head --lr 0.05 --epochs 12 --threads 1";
    let out = scene.ok(&format!("{line} --out run"));
    assert!(validation_loss(&out) < 1.0, "{out}");
    let written = scene.ok("generate run --temperature 0 --tokens 3 --prompt blue");
    let base = scene.ok("generate llama --temperature 0 --tokens 3 --prompt blue");
    assert!(written != base, "{written}");
    // Each of the two gets a weight of its own.
    scene.ok("merge run --out whole");
    let merged = scene.ok("generate whole --temperature 0 --tokens 3 --prompt blue");
    assert_eq!(merged, written);
    let config: serde_json::Value = serde_json::from_slice(&scene.read("whole/config.json")).unwrap();
    assert_eq!(config["tie_word_embeddings"], false);
    let state = StateDict::load(scene.path("whole/model.safetensors")).unwrap();
    let words = state.get("model.embed_tokens.weight").unwrap();
    let own = StateDict::load(scene.path("llama/model.safetensors")).unwrap();
    assert_eq!(
        words.to_f64_vec(),
        own.get("model.embed_tokens.weight").unwrap().to_f64_vec()
    );
    assert_ne!(words.to_f64_vec(), state.get("lm_head.weight").unwrap().to_f64_vec());
    scene.fails(
        "merge run --out whole.safetensors",
        &["share a weight", "give a folder with --out"],
    );
}

#[test]
fn packed_examples_are_learnt_as_if_each_had_a_row() {
    let scene = scene();
    // Lines of several lengths, for rows of 40 tokens.
    let line = |i: usize| {
        let more = " and two is a number".repeat(i % 3);
        format!("{{\"prompt\": \"red is a\", \"completion\": \" colour{more}\"}}\n")
    };
    scene.write("mixed.jsonl", (0..30).map(line).collect::<String>().as_bytes());
    for model in ["llama", "gpt2"] {
        let line = |lr: &str, pack: &str, out: &str| {
            let options = "--context 40 --epochs 2 --seed 3 --threads 1 --data mixed.jsonl";
            scene.ok(&format!(
                "finetune {model} {options} --lr {lr} --batch-size 4 {pack} --out {out}"
            ))
        };
        // Without learning, the mean over all tokens is the same.
        let (apart, packed) = (line("1e-30", "", "apart"), line("1e-30", "--pack", "packed"));
        assert!(packed.contains("27 examples to learn from, 3 to judge by"), "{packed}");
        assert!(
            packed.contains("rows of up to ") && !apart.contains("rows of up to"),
            "{packed}"
        );
        let figure = |run: &str| -> Vec<f64> {
            let rows = String::from_utf8(scene.read(&format!("{run}/metrics.csv"))).unwrap();
            let head: Vec<&str> = rows.lines().next().unwrap().split(',').collect();
            let column = head.iter().position(|name| *name == "perplexity").unwrap();
            let own = rows.lines().skip(1).map(|row| row.split(',').nth(column).unwrap());
            own.filter(|figure| !figure.is_empty())
                .map(|figure| figure.parse::<f64>().unwrap().ln())
                .collect()
        };
        let (a, b) = (figure("apart"), figure("packed"));
        assert!(!a.is_empty());
        assert!((a[a.len() - 1] - b[b.len() - 1]).abs() < 1e-5, "{a:?} {b:?}");
        // With learning, it decreases.
        let learnt = line("0.01", "--pack", "learnt");
        assert!(validation_loss(&learnt) < b[b.len() - 1] - 0.5, "{learnt}");
        let judged = scene.ok("eval learnt");
        assert!(judged.contains(&format!("loss {} nats", validation_loss(&learnt))) && judged.contains("3 examples"));
        for run in ["apart", "packed", "learnt"] {
            fs::remove_dir_all(scene.path(run)).unwrap();
        }
    }
}
