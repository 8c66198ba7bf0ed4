//! ONNX files of encoders learn like the models that they were exported from.

use std::fs;
use std::path::Path;

use polygrad::nn::models::{Bert, BertClassifier, BertConfig, BertInput, ModelConfig};
use polygrad::nn::{Module, StateDict, lora};
use polygrad::onnx::graph::{Dim, ElementType, Graph, SaveOptions, ValueType};
use polygrad::onnx::{Export, ExportOnnx, Input, OnnxModel, Options};
use polygrad::text::Tokenizer;
use polygrad::{DType, Device, Tensor};
use serde_json::json;

use crate::common::Scene;
use crate::texts::{json_of, logits, must_be_close, must_have_rows, numbers, scene};

fn inputs() -> Vec<Input> {
    let named = |name: &str| Input::new(name, DType::I64, ("batch", "sequence"));
    ["input_ids", "attention_mask", "token_type_ids"].map(named).to_vec()
}

fn given(x: &[Tensor]) -> BertInput<'_> {
    BertInput::new(&x[0]).attention_mask(&x[1]).token_type_ids(&x[2])
}

/// Writes `onnx/model.onnx` into the folder, where the Hub has it.
fn export(scene: &Scene, folder: &str) {
    let device = Device::new("cpu").unwrap();
    let path = scene.path(folder);
    let config = BertConfig::load(path.join("config.json")).unwrap();
    let graph = if folder == "classifier" {
        let model = BertClassifier::new(&config, &device).unwrap();
        model.load(path.join("model.safetensors")).unwrap();
        model.eval();
        let export = Export::new(inputs()).bound("sequence", 1..=24).outputs(["logits"]);
        model.record_onnx(&export, |x| model.forward(given(x))).unwrap()
    } else {
        let model = Bert::new(&config, &device).unwrap();
        model.load(path.join("model.safetensors")).unwrap();
        model.eval();
        let export = Export::new(inputs())
            .bound("sequence", 1..=24)
            .outputs(["last_hidden_state", "pooler_output"]);
        let both = |x: &[Tensor]| -> polygrad::Result<[Tensor; 2]> {
            let hidden = model.forward(given(x))?;
            let pooled = model.pool(&hidden)?;
            Ok([hidden, pooled])
        };
        model.record_onnx(&export, both).unwrap()
    };
    fs::create_dir(path.join("onnx")).unwrap();
    graph.save(path.join("onnx/model.onnx")).unwrap();
}

#[test]
fn runs_of_files_are_those_of_their_models() {
    let scene = scene();
    let cases = json_of(&scene, "cases.json");
    let options = format!(
        "--batch-size 64 --lr {} --epochs {} --threads 1",
        cases["lr"], cases["epochs"]
    );
    let lora = "--lora r=4,alpha=8,targets=query,value";
    export(&scene, "classifier");
    export(&scene, "sentences");
    let held = scene.read("classifier/onnx/model.onnx");
    let labels =
        "finetune classifier/onnx/model.onnx --task classify --data labels.jsonl --validation labels-judged.jsonl";
    for (kind, adapter) in [("full", ""), ("lora", lora)] {
        let out = scene.ok(&format!("{labels} {options} {adapter} --out {kind}"));
        assert!(
            out.contains("the head of the base for 3 classes: number, colour, animal"),
            "{out}"
        );
        must_have_rows(&scene, kind, &cases["classify"][kind]);
        // A checkpoint has what is trained alone: beside an adapter the head.
        let state = StateDict::load(scene.path(kind).join("model.safetensors")).unwrap();
        let is_small = state
            .keys()
            .all(|name| name.contains(".lora_") || name.starts_with("classifier."));
        assert_eq!(is_small, kind == "lora");
        let judged = scene.ok(&format!("eval {kind}"));
        let (_, said) = out.rsplit_once("validation accuracy ").unwrap();
        assert!(
            judged.contains(&format!("accuracy {}", said.split(',').next().unwrap())),
            "{judged}"
        );
    }
    assert!(
        scene.read("classifier/onnx/model.onnx") == held,
        "a base is never written"
    );
    for (data, kind, adapter) in [("pairs", "full", ""), ("triplets", "full", ""), ("pairs", "lora", lora)] {
        let (name, judged) = (format!("{data}_{kind}"), format!("{data}-judged.jsonl"));
        let line = format!("finetune sentences/onnx/model.onnx --task embed --data {data}.jsonl --validation {judged}");
        scene.ok(&format!("{line} {options} {adapter} --out {name}"));
        must_have_rows(&scene, &name, &cases["embed"][&name]);
        scene.ok(&format!("eval {name}"));
    }

    // The merged file, and the adapter in PEFT's files, in the model that the file was exported from.
    scene.ok("merge lora --out merged.onnx");
    let wanted = numbers(&cases["classify"]["lora"]["logits"]);
    must_be_close(&file_logits(&scene, "merged.onnx"), &wanted, 1e-3, "merged");
    let device = Device::new("cpu").unwrap();
    let model = BertClassifier::new(
        &BertConfig::load(scene.path("classifier/config.json")).unwrap(),
        &device,
    )
    .unwrap();
    model.load(scene.path("classifier/model.safetensors")).unwrap();
    lora::load(&model, "mine", scene.path("lora/adapter")).unwrap();
    lora::merge_and_unload(&model).unwrap();
    model
        .state_dict()
        .unwrap()
        .save(scene.path("classifier/model.safetensors"))
        .unwrap();
    must_be_close(&logits(&scene, "classifier"), &wanted, 1e-3, "in the model");
    let config = json_of(&scene, "lora/adapter/adapter_config.json");
    assert_eq!((&config["r"], &config["lora_alpha"]), (&json!(4), &json!(8)));
    // And in another export, as one graph of both.
    let mut graph = Graph::load(scene.path("classifier/onnx/model.onnx")).unwrap();
    polygrad::onnx::lora::load(&mut graph, "again", scene.path("lora/adapter")).unwrap();
    graph.save(scene.path("adapted.onnx")).unwrap();
    must_be_close(&file_logits(&scene, "adapted.onnx"), &wanted, 1e-3, "in the graph");
    #[cfg(feature = "serve")]
    {
        // The run is served as the model with its adapter.
        let served = crate::serve::Served::new(&scene, "run=lora model=classifier");
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
        must_be_close(&logits("run"), &logits("model"), 1e-4, "served");
        assert_eq!(served.end(), Some(0));
        scene.fails(
            "serve pairs_full --port 0",
            &["vectors of tokens", "polygrad merge RUN --out FILE.onnx"],
        );
    }
    // A merged folder is a base again.
    scene.ok("merge full --out whole");
    let again = "finetune whole/model.onnx --task classify --data labels.jsonl --epochs 1 --threads 1 --out again";
    let out = scene.ok(again);
    assert!(
        out.contains("the head of the base for 3 classes: number, colour, animal"),
        "{out}"
    );
}

/// The logits of a file for the validation examples.
fn file_logits(scene: &Scene, file: &str) -> Vec<f64> {
    let device = Device::new("cpu").unwrap();
    let graph = Graph::load(scene.path(file)).unwrap();
    let model = OnnxModel::from_graph(&graph, &device, Options::default()).unwrap();
    let tokenizer = Tokenizer::from_file(scene.path("classifier/tokenizer.json")).unwrap();
    let text = String::from_utf8(scene.read("labels-judged.jsonl")).unwrap();
    let rows: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let texts = rows.iter().map(|row| match row["text_pair"].as_str() {
        Some(second) => polygrad::text::TextInput::Pair(row["text"].as_str().unwrap(), second),
        None => polygrad::text::TextInput::Single(row["text"].as_str().unwrap()),
    });
    let batch = tokenizer.batch(texts, &tokenizer.batch_config(), &device).unwrap();
    let inputs = [batch.ids, batch.attention_mask, batch.token_type_ids];
    let outputs = model.forward(&inputs).unwrap();
    outputs.tensor(0).unwrap().to_f64_vec().unwrap()
}

#[test]
fn a_file_without_a_head_gets_one() {
    let scene = scene();
    export(&scene, "sentences");
    let line = "finetune sentences/onnx/model.onnx --task classify --data labels.jsonl --lora r=2 --lr 0.02";
    let line = format!("{line} --epochs 40 --threads 1 --validation labels.jsonl --batch-size 4");
    let out = scene.ok(&format!("{line} --out run"));
    assert!(
        out.contains("a new head for 3 classes: animal, colour, number"),
        "{out}"
    );
    let accuracy = out.rsplit_once("validation accuracy ").unwrap().1;
    assert!(accuracy.starts_with("100.00 %"), "{out}");
    let config = json_of(&scene, "run/adapter/adapter_config.json");
    assert_eq!(config["modules_to_save"], json!(["classifier"]));
    scene.fails("merge run --out run.onnx", &["does not have the classes of the run"]);
    scene.ok("merge run --out whole");
    let config = json_of(&scene, "whole/config.json");
    assert_eq!(config["id2label"], json!({"0": "animal", "1": "colour", "2": "number"}));
    let graph = Graph::load(scene.path("whole/model.onnx")).unwrap();
    let body = &graph.body;
    let names: Vec<&str> = body.outputs.iter().map(|id| body.name_of(*id)).collect();
    assert_eq!(names, ["logits"]);
    assert!(!body.values.iter().any(|value| value.name.contains("lora_")));
    let again = scene.ok("finetune whole/model.onnx --task classify --data labels.jsonl --epochs 1 --out again");
    assert!(
        again.contains("the head of the base for 3 classes: animal, colour, number"),
        "{again}"
    );
}

#[test]
fn weights_in_any_file_beside_are_part_of_the_base() {
    let scene = scene();
    export(&scene, "classifier");
    let graph = Graph::load(scene.path("classifier/onnx/model.onnx")).unwrap();
    let options = SaveOptions {
        external_data: Some(true),
        external_threshold: 0,
    };
    graph.save_with(scene.path("classifier/apart.onnx"), options).unwrap();
    // Other programs give this file other names.
    let (own, other) = ("apart.onnx.data", "the.weights.bin");
    let bytes = scene.read("classifier/apart.onnx");
    let mut bytes = bytes.as_slice();
    let mut renamed = Vec::new();
    while let Some(at) = bytes.windows(own.len()).position(|part| part == own.as_bytes()) {
        renamed.extend([&bytes[..at], other.as_bytes()].concat());
        bytes = &bytes[at + own.len()..];
    }
    renamed.extend(bytes);
    scene.write("classifier/apart.onnx", &renamed);
    let mut weights = scene.read(&format!("classifier/{own}"));
    fs::remove_file(scene.path(&format!("classifier/{own}"))).unwrap();
    scene.write(&format!("classifier/{other}"), &weights);
    let line = "finetune classifier/apart.onnx --task classify --data labels.jsonl --lora --epochs 1 --threads 1";
    scene.ok(&format!("{line} --out run"));
    scene.ok("eval run");
    *weights.last_mut().unwrap() ^= 1;
    scene.write(&format!("classifier/{other}"), &weights);
    scene.fails("eval run", &["apart.onnx is not the model that", "began with"]);
}

#[test]
fn tokens_may_have_32_bits() {
    let scene = scene();
    export(&scene, "classifier");
    let line = "--task classify --data labels.jsonl --epochs 1 --threads 1 --out";
    scene.ok(&format!("finetune classifier/onnx/model.onnx {line} wide"));
    let mut graph = Graph::load(scene.path("classifier/onnx/model.onnx")).unwrap();
    for input in [0, 2] {
        let input = graph.body.inputs[input].index();
        let dims = ["batch", "sequence"].map(|name| Dim::Named(name.to_owned()));
        graph.body.values[input].ty = Some(ValueType::tensor(ElementType::I32, dims.to_vec()));
    }
    graph.save(scene.path("classifier/small.onnx")).unwrap();
    scene.ok(&format!("finetune classifier/small.onnx {line} small"));
    let learnt = |run: &str| {
        let state = StateDict::load(scene.path(run).join("model.safetensors")).unwrap();
        let values = state.iter().map(|(name, value)| (name.to_owned(), value.to_f64_vec()));
        values.collect::<Vec<_>>()
    };
    assert!(learnt("small") == learnt("wide"));
}

#[test]
fn files_that_cannot_learn_are_refused_by_name() {
    let scene = scene();
    export(&scene, "classifier");
    export(&scene, "sentences");
    let file = "classifier/onnx/model.onnx";
    let classify = "--task classify --data labels.jsonl --out run";
    scene.fails(
        &format!("finetune {file} --data completions.jsonl --out run"),
        &["model.onnx is an ONNX file, and not for --task text"],
    );
    scene.fails(
        &format!("finetune {file} --task embed --data pairs.jsonl --lora --out run"),
        &["has no output last_hidden_state or sentence_embedding"],
    );
    scene.fails(
        &format!("finetune {file} {classify} --lora targets=nothing"),
        &["nothing", "no layer"],
    );
    for option in ["dropout=0.1", "dora=true"] {
        scene.fails(
            &format!("finetune {file} {classify} --lora {option}"),
            &["an adapter in a graph has no"],
        );
    }
    scene.write(
        "others.jsonl",
        b"{\"text\": \"a\", \"label\": \"x\"}\n\
          {\"text\": \"b\", \"label\": \"y\"}\n{\"text\": \"b\", \"label\": \"y\"}\n",
    );
    scene.fails(
        &format!("finetune {file} --task classify --data others.jsonl --out run"),
        &["tells number, colour, animal apart, and its head stays: the examples have x, y"],
    );
    // A file of one length, one with another input, and one alone.
    let graph = Graph::load(scene.path(file)).unwrap();
    let save = |name: &str, change: &dyn Fn(&mut Graph)| {
        let mut graph = graph.clone();
        change(&mut graph);
        graph.save(scene.path("classifier").join(name)).unwrap();
    };
    save("fixed.onnx", &|graph| {
        let first = graph.body.inputs[0].index();
        let dims = vec![Dim::Fixed(1), Dim::Fixed(16)];
        graph.body.values[first].ty = Some(ValueType::tensor(ElementType::I64, dims));
    });
    save("floats.onnx", &|graph| {
        let mask = graph.body.inputs[1].index();
        let dims = vec![Dim::Named("batch".to_owned()), Dim::Named("sequence".to_owned())];
        graph.body.values[mask].ty = Some(ValueType::tensor(ElementType::F32, dims));
    });
    save("coarse.onnx", &|graph| {
        let mut weights = graph.body.initializers.iter_mut();
        let weight = weights.find(|known| known.tensor.host().shape().rank() == 2).unwrap();
        weight.tensor = weight.tensor.host().cast(DType::BF16).into();
        graph.body.values[weight.value.index()].ty = None;
    });
    save("other.onnx", &|graph| {
        let first = graph.body.inputs[0].index();
        graph.body.values[first].name = "pixel_values".to_owned();
    });
    for (name, said) in [
        ("coarse.onnx", "in bf16, in which small steps are lost"),
        (
            "floats.onnx",
            "takes attention_mask as float, and texts are int64 or int32",
        ),
        ("fixed.onnx", "takes input_ids [1, 16], and texts are [batch, sequence]"),
        (
            "other.onnx",
            "takes the input \"pixel_values\", and texts are input_ids",
        ),
    ] {
        scene.fails(&format!("finetune classifier/{name} {classify}"), &[name, said]);
    }
    fs::create_dir_all(scene.path("a/b")).unwrap();
    fs::copy(scene.path(file), scene.path("a/b/alone.onnx")).unwrap();
    scene.fails(
        &format!("finetune a/b/alone.onnx {classify}"),
        &["alone.onnx has no config.json and tokenizer.json beside it"],
    );
    assert!(!Path::new(&scene.path("run")).exists(), "nothing is written");
    scene.ok(&format!("finetune {file} {classify} --epochs 1"));
    scene.fails("merge run --out run.safetensors", &["is an ONNX file, and stays one"]);
    scene.fails(
        "merge run --out classifier/onnx/model.onnx",
        &["would lie among the files of the base"],
    );
    scene.ok("finetune classifier --task classify --data labels.jsonl --epochs 1 --out folder");
    scene.fails("merge folder --out folder.onnx", &["is no ONNX file"]);
}
