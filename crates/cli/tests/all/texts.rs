//! A BERT trained by others learns to classify texts, and to compute vectors of them.

use std::fs;
use std::time::Duration;

use polygrad::nn::models::{Bert, BertClassifier, BertConfig, BertInput, ModelConfig};
use polygrad::nn::{Module, StateDict, lora};
use polygrad::text::{Pooling, TextInput, Tokenizer};
use polygrad::{Device, Tensor, no_grad};
use serde_json::{Value, json};

use crate::common::Scene;

/// The folders `classifier` and `sentences` with small models in the form of the Hub and of sentence-transformers, and
/// their examples. `cases.json` has PyTorch's results, by scripts/make_finetune_cases.py.
pub(crate) fn scene() -> Scene {
    let scene = Scene::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        let from = format!("{}/tests/data/finetune{folder}", env!("CARGO_MANIFEST_DIR"));
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{folder}/{}", entry.file_name().to_str().unwrap());
            if entry.path().is_dir() {
                fs::create_dir(scene.path(&name[1..])).unwrap();
                folders.push(name);
            } else {
                fs::copy(entry.path(), scene.path(&name[1..])).unwrap();
            }
        }
    }
    scene
}

pub(crate) fn json_of(scene: &Scene, name: &str) -> Value {
    serde_json::from_slice(&scene.read(name)).unwrap()
}

fn rows(scene: &Scene, name: &str) -> Vec<Value> {
    let text = String::from_utf8(scene.read(name)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub(crate) fn numbers(value: &Value) -> Vec<f64> {
    match value.as_array() {
        Some(values) => values.iter().flat_map(numbers).collect(),
        None => vec![value.as_f64().unwrap()],
    }
}

pub(crate) fn must_be_close(found: &[f64], wanted: &[f64], most: f64, what: &str) {
    assert_eq!(found.len(), wanted.len(), "{what}");
    for (a, b) in found.iter().zip(wanted) {
        assert!((a - b).abs() <= most * b.abs().max(1.0), "{what}: {a} {b}");
    }
}

/// The logits of a folder's classifier for the validation examples.
pub(crate) fn logits(scene: &Scene, folder: &str) -> Vec<f64> {
    let device = Device::new("cpu").unwrap();
    let path = scene.path(folder);
    let model = BertClassifier::new(&BertConfig::load(path.join("config.json")).unwrap(), &device).unwrap();
    model.load(path.join("model.safetensors")).unwrap();
    model.eval();
    let tokenizer = Tokenizer::from_file(path.join("tokenizer.json")).unwrap();
    let rows = rows(scene, "labels-judged.jsonl");
    let texts = rows.iter().map(|row| match row["text_pair"].as_str() {
        Some(second) => TextInput::Pair(row["text"].as_str().unwrap(), second),
        None => TextInput::Single(row["text"].as_str().unwrap()),
    });
    let batch = tokenizer.batch(texts, &tokenizer.batch_config(), &device).unwrap();
    let input = BertInput::new(&batch.ids).attention_mask(&batch.attention_mask);
    no_grad(|| model.forward(input.token_type_ids(&batch.token_type_ids)))
        .unwrap()
        .to_f64_vec()
        .unwrap()
}

/// The vectors of a folder's model for the validation anchors.
fn vectors(scene: &Scene, folder: &str, examples: &str) -> Vec<f64> {
    let device = Device::new("cpu").unwrap();
    let path = scene.path(folder);
    let model = Bert::new(&BertConfig::load(path.join("config.json")).unwrap(), &device).unwrap();
    model.load(path.join("model.safetensors")).unwrap();
    model.eval();
    let pooling = Pooling::from_folder(&path).unwrap().unwrap();
    assert_eq!(pooling.max_length(), Some(20));
    let tokenizer = Tokenizer::from_file(path.join("tokenizer.json")).unwrap();
    let rows = rows(scene, examples);
    let texts = rows.iter().map(|row| row["anchor"].as_str().unwrap());
    let batch = tokenizer.batch(texts, &tokenizer.batch_config(), &device).unwrap();
    let pooled = no_grad(|| -> polygrad::Result<Tensor> {
        let input = BertInput::new(&batch.ids).attention_mask(&batch.attention_mask);
        pooling.pool(&model.forward(input)?, &batch.attention_mask)
    });
    pooled.unwrap().to_f64_vec().unwrap()
}

/// Fails unless the losses and metrics of all epochs equal the recorded ones.
pub(crate) fn must_have_rows(scene: &Scene, run: &str, case: &Value) {
    let metrics = scene.metrics(run);
    let wanted = case["rows"].as_array().unwrap();
    assert_eq!(metrics.len(), 1 + 2 * wanted.len());
    for (at, wanted) in wanted.iter().enumerate() {
        let figure =
            |line: usize, column: usize| -> f64 { metrics[line].split(',').nth(column).unwrap().parse().unwrap() };
        let (train, judged) = (2 * at + 1, 2 * at + 2);
        let found = [figure(train, 3), figure(judged, 3), figure(judged, 4)];
        must_be_close(&found, &numbers(wanted), 1e-4, &format!("{run}, epoch {}", at + 1));
    }
}

#[test]
fn runs_are_those_of_transformers_peft_and_sentence_transformers() {
    let scene = scene();
    let cases = json_of(&scene, "cases.json");
    let options = format!(
        "--batch-size 64 --lr {} --epochs {} --threads 1",
        cases["lr"], cases["epochs"]
    );
    let lora = "--lora r=4,alpha=8,targets=query,value";
    let labels = "finetune classifier --task classify --data labels.jsonl --validation labels-judged.jsonl";
    for (kind, adapter) in [("full", ""), ("lora", lora)] {
        let out = scene.ok(&format!("{labels} {options} {adapter} --out {kind}"));
        assert!(
            out.contains("the head of the base for 3 classes: number, colour, animal"),
            "{out}"
        );
        let case = &cases["classify"][kind];
        must_have_rows(&scene, kind, case);
        scene.ok(&format!("merge {kind} --out merged-{kind}"));
        let found = logits(&scene, &format!("merged-{kind}"));
        must_be_close(&found, &numbers(&case["logits"]), 1e-3, kind);
        let said = out
            .split("validation accuracy ")
            .nth(1)
            .unwrap()
            .split(" %")
            .next()
            .unwrap();
        let judged = scene.ok(&format!("eval {kind}"));
        assert!(judged.contains(&format!("accuracy {said} %")), "{judged}");
    }
    for (data, kind, adapter) in [("pairs", "full", ""), ("triplets", "full", ""), ("pairs", "lora", lora)] {
        let (name, judged) = (format!("{data}_{kind}"), format!("{data}-judged.jsonl"));
        let line = format!("finetune sentences --task embed --data {data}.jsonl --validation {judged}");
        let out = scene.ok(&format!("{line} {options} {adapter} --out {name}"));
        let case = &cases["embed"][&name];
        must_have_rows(&scene, &name, case);
        scene.ok(&format!("merge {name} --out merged-{name}"));
        let found = vectors(&scene, &format!("merged-{name}"), &judged);
        must_be_close(&found, &numbers(&case["vectors"]), 1e-3, &name);
        let (_, said) = out.rsplit_once("validation recall@1 ").unwrap();
        let judged = scene.ok(&format!("eval {name}"));
        assert!(
            judged.contains(&format!("recall@1 {}", said.split(" after").next().unwrap())),
            "{judged}"
        );
    }
}

#[test]
fn losses_in_parts_train_a_llama_as_transformers_and_peft_do() {
    let scene = scene();
    let cases = &json_of(&scene, "cases.json")["write"];
    let line = "finetune writer --data completions.jsonl --validation completions-judged.jsonl --batch-size 64";
    let options = "--lr 0.01 --epochs 12 --threads 1";
    let adapter = "--lora r=4,alpha=8,targets=q_proj,v_proj";
    let file = ["model.safetensors", "adapter/adapter_model.safetensors"];
    for (kind, run, more, file) in [
        ("full", "full", "", file[0]),
        ("lora", "lora", adapter, file[1]),
        // Examples packed in rows give the same losses.
        ("full", "full-packed", "--pack", file[0]),
        ("lora", "lora-packed", &format!("--pack {adapter}"), file[1]),
    ] {
        scene.ok(&format!("{line} {options} {more} --out {run}"));
        must_have_rows(&scene, run, &cases[kind]);
        let tensors = StateDict::load(scene.path(run).join(file)).unwrap();
        let norms = cases[kind]["norms"].as_object().unwrap();
        // The head is tied to the embedding's weight.
        assert!(
            tensors
                .keys()
                .all(|name| name == "lm_head.weight" || norms.contains_key(name)),
            "{run}"
        );
        for (name, wanted) in norms {
            let values = tensors.get(name).unwrap_or_else(|| panic!("no {name}"));
            let squares: f64 = values.to_f64_vec().iter().map(|x| x * x).sum();
            must_be_close(&[squares.sqrt()], &numbers(wanted), 1e-4, name);
        }
    }
    // A merged model has each weight once, under the base's name, and is a base again.
    let base = StateDict::load(scene.path("writer/model.safetensors")).unwrap();
    for run in ["full", "lora"] {
        scene.ok(&format!("merge {run} --out {run}-merged"));
        let merged = StateDict::load(scene.path(&format!("{run}-merged/model.safetensors"))).unwrap();
        assert!(
            merged.len() == base.len() && base.keys().all(|name| merged.contains(name)),
            "{run}"
        );
        scene.ok(&format!(
            "finetune {run}-merged --data completions.jsonl --epochs 1 --out {run}-again"
        ));
    }
}

#[test]
fn a_new_head_is_trained_beside_an_adapter_and_leaves_with_its_labels() {
    let scene = scene();
    let held = scene.read("sentences/model.safetensors");
    // A BERT without a head.
    let line = "finetune sentences --task classify --data labels.jsonl --lora r=2 --lr 0.02 --epochs 40 --threads 1";
    let out = scene.ok(&format!("{line} --validation labels.jsonl --batch-size 4 --out run"));
    assert!(
        out.contains("a new head for 3 classes: animal, colour, number"),
        "{out}"
    );
    assert!(out.contains("12 examples to learn from, 12 to judge by"), "{out}");
    let accuracy = out.rsplit_once("validation accuracy ").unwrap().1;
    assert!(accuracy.starts_with("100.00 %"), "{out}");
    assert!(
        scene.read("sentences/model.safetensors") == held,
        "a base is never written"
    );
    let model = StateDict::load(scene.path("run/model.safetensors")).unwrap();
    assert!(
        model
            .keys()
            .all(|name| name.contains(".lora_") || name.starts_with("classifier."))
    );
    assert_eq!(model.len(), 8 + 2);
    assert_eq!(
        json_of(&scene, "run/config.json")["goal"]["classify"],
        json!(["animal", "colour", "number"])
    );
    let adapter = json_of(&scene, "run/adapter/adapter_config.json");
    assert_eq!(adapter["modules_to_save"], json!(["classifier"]));

    scene.ok("merge run --out whole");
    let config = json_of(&scene, "whole/config.json");
    assert_eq!(config["id2label"], json!({"0": "animal", "1": "colour", "2": "number"}));
    assert_eq!(config["label2id"]["number"], 2);
    assert_eq!(config["architectures"], json!(["BertForSequenceClassification"]));
    assert!(scene.path("whole/tokenizer.json").exists());
    // The adapter's folder gives the same model.
    let device = Device::new("cpu").unwrap();
    let load = |path: &str| {
        let model = BertClassifier::new(&BertConfig::load(scene.path("whole/config.json")).unwrap(), &device).unwrap();
        let state = StateDict::load(scene.path(path)).unwrap();
        let named = |(name, value): (&str, &polygrad::backend::HostTensor)| match path.starts_with("whole") {
            true => (name.to_owned(), value.clone()),
            false => (format!("bert.{name}"), value.clone()),
        };
        model
            .load_state_dict(&state.iter().map(named).collect(), false)
            .unwrap();
        model.eval();
        model
    };
    let (whole, base) = (load("whole/model.safetensors"), load("sentences/model.safetensors"));
    lora::load(&base, "mine", scene.path("run/adapter")).unwrap();
    let ids = Tensor::new([[2i64, 10, 20, 11, 3]], &device).unwrap();
    let logits = |model: &BertClassifier| model.forward(BertInput::new(&ids)).unwrap().to_f64_vec().unwrap();
    must_be_close(&logits(&base), &logits(&whole), 1e-4, "the adapter");

    // The next training starts from the whole trained model.
    let again =
        scene.ok("finetune whole --task classify --data labels.jsonl --lr 1e-9 --epochs 1 --out again --threads 1");
    assert!(
        again.contains("the head of the base for 3 classes: animal, colour, number"),
        "{again}"
    );
    scene.fails("merge run --out whole", &["whole is there already"]);
    scene.fails(
        "merge run --out run.safetensors",
        &["does not have the classes of the run"],
    );
    for command in ["generate run", "generate whole"] {
        scene.fails(command, &["--task"]);
    }
    scene.write(
        "strange.jsonl",
        b"{\"text\": \"a cat\", \"label\": \"animal\"}\n{\"text\": \"a car\", \"label\": \"thing\"}\n",
    );
    scene.fails(
        "eval run --data strange.jsonl",
        &["strange.jsonl, line 2: the label \"thing\" is none that is learnt, which are animal, colour, number"],
    );
    scene.write("cats.jsonl", b"{\"text\": \"the cat is it\", \"label\": \"animal\"}\n");
    let judged = scene.ok("eval run --data cats.jsonl");
    assert!(
        judged.contains("1 examples of ") && judged.contains("accuracy 100.00 %"),
        "{judged}"
    );
}

#[test]
fn a_run_that_gets_no_better_ends_with_its_best_model() {
    let scene = scene();
    let cases = json_of(&scene, "cases.json");
    let losses: Vec<f64> = (cases["classify"]["full"]["rows"].as_array().unwrap().iter())
        .map(|row| row[1].as_f64().unwrap())
        .collect();
    let best = losses.iter().take(5).copied().fold(f64::INFINITY, f64::min);
    assert!(losses[2] == best && losses[1] > best);
    let line = "finetune classifier --task classify --data labels.jsonl --validation labels-judged.jsonl";
    let line = format!("{line} --batch-size 64 --lr 0.01 --epochs 12 --threads 1 --patience 2 --out run");
    let out = scene.ok(&line);
    assert!(out.contains(&format!("the best validation loss, {best:.4}")), "{out}");
    assert_eq!(scene.metrics("run").len(), 1 + 2 * 5);
    let judged = scene.ok("eval run");
    assert!(judged.contains(&format!("loss {best:.4}  accuracy")), "{judged}");
    scene.fails("train --resume run --patience 3", &["--patience is 2 there, not 3"]);
}

#[test]
fn killed_runs_end_in_the_same_bytes() {
    let scene = scene();
    // With dropout, so that every random number matters.
    for folder in ["classifier", "sentences"] {
        let mut config = json_of(&scene, &format!("{folder}/config.json"));
        config["hidden_dropout_prob"] = json!(0.1);
        config["attention_probs_dropout_prob"] = json!(0.1);
        scene.write(&format!("{folder}/config.json"), config.to_string().as_bytes());
    }
    for (name, line) in [
        (
            "head",
            "finetune sentences --task classify --data labels.jsonl --lora r=2,dropout=0.1",
        ),
        ("vectors", "finetune sentences --task embed --data triplets.jsonl"),
    ] {
        let line = format!("{line} --validation {}", line.split(' ').nth(5).unwrap());
        let line = format!("{line} --batch-size 4 --lr 0.003 --epochs 12 --threads 1");
        scene.ok(&format!("{line} --out {name}"));
        let mut early = scene.command(&format!("{line} --out killed")).spawn().unwrap();
        while !scene.path("killed/checkpoint.safetensors").exists() {
            std::thread::sleep(Duration::from_millis(2));
        }
        early.kill().unwrap();
        early.wait().unwrap();
        scene.ok("train --resume killed");
        scene.same("killed", name);
        fs::remove_dir_all(scene.path("killed")).unwrap();
    }
    scene.fails(
        "train --resume head --task embed",
        &["--task is classify there, not embed"],
    );
}

#[cfg(feature = "serve")]
#[test]
fn runs_are_served_as_the_folders_that_are_merged_from_them() {
    use crate::serve::Served;
    let scene = scene();
    for (base, task, data, run) in [
        ("classifier", "classify", "labels.jsonl", "labels"),
        ("sentences", "embed", "pairs.jsonl", "vectors"),
        ("sentences", "embed", "pairs.jsonl", "whole"),
    ] {
        let lora = if run == "whole" { "" } else { "--lora r=4" };
        let options =
            format!("--task {task} --data {data} --validation {data} {lora} --lr 0.02 --epochs 2 --threads 1");
        scene.ok(&format!("finetune {base} {options} --out {run}"));
        scene.ok(&format!("merge {run} --out {run}-merged"));
    }
    let served = Served::new(
        &scene,
        "labels labels-merged vectors vectors-merged whole whole-merged base=sentences",
    );
    let numbers = |value: &Value| -> Vec<f64> {
        let numbers = value.as_array().unwrap().iter();
        numbers.map(|number| number.as_f64().unwrap()).collect()
    };
    let near = |a: &[f64], b: &[f64]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5);
    let logits = |model: &str| {
        let text = json!({"name": "text", "shape": [2], "datatype": "BYTES", "data": ["a cat", "a red car"]});
        let asked = json!({"inputs": [text]}).to_string();
        let (status, answer) = served.ask("POST", &format!("/v2/models/{model}/infer"), &asked);
        assert_eq!(
            (status, &answer["outputs"][0]["name"]),
            (200, &json!("logits")),
            "{answer}"
        );
        numbers(&answer["outputs"][0]["data"])
    };
    assert!(near(&logits("labels"), &logits("labels-merged")));
    let vectors = |model: &str| {
        let asked = json!({"model": model, "input": ["a cat"]}).to_string();
        let (status, answer) = served.ask("POST", "/v1/embeddings", &asked);
        assert_eq!(status, 200, "{answer}");
        numbers(&answer["data"][0]["embedding"])
    };
    for run in ["vectors", "whole"] {
        assert!(near(&vectors(run), &vectors(&format!("{run}-merged"))), "{run}");
        assert!(!near(&vectors(run), &vectors("base")), "{run}");
    }
    let asked = json!({"model": "labels", "input": "a cat"}).to_string();
    let (status, answer) = served.ask("POST", "/v1/embeddings", &asked);
    assert!(
        (400..500).contains(&status) && answer["error"]["message"].is_string(),
        "{answer}"
    );
    let asked = json!({"model": "vectors", "prompt": "a cat"}).to_string();
    let (status, answer) = served.ask("POST", "/v1/completions", &asked);
    assert!(
        (400..500).contains(&status) && answer["error"]["message"].is_string(),
        "{answer}"
    );
    assert_eq!(served.end(), Some(0));
    // A base that has become another.
    let mut weights = scene.read("sentences/model.safetensors");
    *weights.last_mut().unwrap() ^= 1;
    scene.write("sentences/model.safetensors", &weights);
    scene.fails("serve vectors --port 0", &["sentences is not the model that"]);
}

#[test]
fn bad_input_is_named_before_anything_is_written() {
    let scene = scene();
    let good = String::from_utf8(scene.read("labels.jsonl")).unwrap();
    for (line, words) in [
        (r#"{"text": "a cat"}"#, "missing field `label`"),
        (r#"{"label": "animal"}"#, "missing field `text`"),
        (
            r#"{"text": "a cat", "label": 1}"#,
            "invalid type: integer `1`, expected a string",
        ),
        (r#"{"text": " ", "label": "animal"}"#, "the text is empty"),
        (r#"{"text": "a cat", "label": ""}"#, "the label is empty"),
    ] {
        scene.write("bad.jsonl", format!("{good}{line}\n").as_bytes());
        let text = scene.fails(
            "finetune classifier --task classify --data bad.jsonl --out none",
            &["bad.jsonl, line 13: ", words],
        );
        assert!(
            text.contains(r#"write each line as {"text": "…", "label": "…"}"#),
            "{text}"
        );
    }
    let pairs = String::from_utf8(scene.read("pairs.jsonl")).unwrap();
    for (line, words) in [
        (r#"{"anchor": "a cat"}"#, "missing field `positive`"),
        (r#"{"anchor": "", "positive": "a cat"}"#, "the anchor is empty"),
        (
            r#"{"anchor": "a", "positive": "b", "negative": "c"}"#,
            "it has a negative, and line 1 of ",
        ),
    ] {
        scene.write("bad.jsonl", format!("{pairs}{line}\n").as_bytes());
        scene.fails(
            "finetune sentences --task embed --data bad.jsonl --out none",
            &["bad.jsonl, line 13: ", words],
        );
    }
    scene.fails(
        "finetune classifier --task classify --data labels.jsonl --pack --out none",
        &["pack: texts to classify have a row each"],
    );
    scene.write("strange.jsonl", b"{\"text\": \"a car\", \"label\": \"thing\"}\n");
    scene.fails(
        "finetune classifier --task classify --data labels.jsonl --validation strange.jsonl --out none",
        &["strange.jsonl, line 1: the label \"thing\" is none that is learnt"],
    );
    let one = "{\"text\": \"a cat\", \"label\": \"animal\"}\n";
    scene.write("one.jsonl", one.repeat(4).as_bytes());
    scene.fails(
        "finetune classifier --task classify --data one.jsonl --out none",
        &[
            "one.jsonl that are learnt from have the label \"animal\"",
            "at least two classes",
        ],
    );
    scene.write("single.jsonl", one.as_bytes());
    scene.fails(
        "finetune classifier --task classify --data single.jsonl --out none",
        &["single.jsonl has too few examples"],
    );
    let few: Vec<&str> = pairs.lines().take(4).collect();
    scene.write("three.jsonl", few[..3].join("\n").as_bytes());
    scene.fails(
        "finetune sentences --task embed --data three.jsonl --out none",
        &["three.jsonl has too few examples", "at least four lines"],
    );
    scene.fails(
        "finetune sentences --task embed --data pairs.jsonl --validation pairs.jsonl --batch-size 1 --out none",
        &["batch_size: an anchor is told from the others of its batch"],
    );
    scene.fails(
        "finetune sentences --task embed --data pairs.jsonl --context 21 --out none",
        &["--context 21 is more than the 20 tokens of the model"],
    );
    scene.fails(
        "finetune classifier --task embed --data pairs.jsonl --out none",
        &["classifier has no modules.json", "sentence-transformers"],
    );
    scene.fails(
        "finetune classifier --data labels.jsonl --out none",
        &["config.json: a model of the kind \"bert\" is not for --task text"],
    );
    scene.fails(
        "finetune classifier --task classify --data labels.jsonl --lora targets=classifier --out none",
        &["classifier is trained as a whole"],
    );
    scene.write("four.jsonl", few.join("\n").as_bytes());
    let four = scene.ok("finetune sentences --task embed --data four.jsonl --epochs 1 --threads 1 --out four");
    assert!(four.contains("2 examples to learn from, 2 to judge by"), "{four}");
    fs::create_dir(scene.path("llama")).unwrap();
    scene.write("llama/config.json", br#"{"model_type": "llama"}"#);
    scene.fails(
        "finetune llama --task classify --data labels.jsonl --out none",
        &[
            "config.json: a model of the kind \"llama\" is not for --task classify",
            "the folder of a BERT",
        ],
    );
    // Weights of another model.
    let state = StateDict::load(scene.path("sentences/model.safetensors")).unwrap();
    let rest = state
        .iter()
        .filter(|(name, _)| *name != "encoder.layer.1.output.dense.bias");
    let rest: StateDict = rest.map(|(name, value)| (name.to_owned(), value.clone())).collect();
    rest.save(scene.path("sentences/model.safetensors")).unwrap();
    scene.fails(
        "finetune sentences --task classify --data labels.jsonl --out broken",
        &["does not fit", "it has no bert.encoder.layer.1.output.dense.bias"],
    );
    assert!(!scene.path("none").exists());
}
