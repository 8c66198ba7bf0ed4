//! Adapters beside the packed weights of GGUF files.

use std::fs;
use std::time::Duration;

use polygrad::formats::{GgufType, TensorFile, rewrite_gguf};
use polygrad::nn::models::{Llama, LlamaConfig, ModelConfig};
use polygrad::nn::{Module, StateDict, lora};
use polygrad::{Device, Tensor};

use crate::common::Scene;
use crate::finetune::scene;
use crate::language::quantize;

const ADAPTER: &str = "--lora r=4,alpha=8,targets=q_proj,v_proj,down_proj --lr 0.02 --batch-size 8 --threads 1";

/// The folder `llama`, whose numbers are those of `model.gguf`, in blocks of 8 bits where rows are made of such.
fn quantized() -> Scene {
    let scene = scene();
    quantize(&scene);
    scene
}

/// The losses of a run on a part of its examples.
fn losses(scene: &Scene, run: &str, split: &str) -> Vec<f64> {
    let text = String::from_utf8(scene.read(&format!("{run}/metrics.csv"))).unwrap();
    let rows = text.lines().skip(1).map(|row| row.split(',').collect::<Vec<_>>());
    let own = rows.filter(|row| row[2] == split);
    own.map(|row| row[3].parse().unwrap()).collect()
}

#[test]
fn adapters_of_packed_weights_learn_as_those_of_others() {
    let scene = quantized();
    let held = scene.read("model.gguf");
    let rewritten = |from: &str, to: &str, kind: GgufType| {
        let file = TensorFile::open(scene.path(from)).unwrap();
        rewrite_gguf(scene.path(from), scene.path(to), |name| {
            let tensor = file.read(name)?;
            let is_matrix = name.ends_with("weight") && tensor.shape().rank() == 2;
            Ok((is_matrix && tensor.shape()[1].is_multiple_of(32)).then_some((tensor, kind)))
        })
        .unwrap();
    };
    rewritten("model.gguf", "four.gguf", GgufType::Q4_0);
    rewritten("four.gguf", "wide.gguf", GgufType::F32);
    let mut counts = Vec::new();
    for base in ["llama", "model.gguf", "four.gguf", "wide.gguf"] {
        let run = format!("{}-run", base.trim_end_matches(".gguf"));
        let out = scene.ok(&format!(
            "finetune {base} --data lines.jsonl --epochs 4 --out {run} {ADAPTER}"
        ));
        assert!(out.contains("36 examples to learn from, 4 to judge by"), "{out}");
        // Weights that stay packed are counted, too.
        let count = out.split_once(" parameters are trained").unwrap().0;
        counts.push(count.rsplit_once(" of ").unwrap().1.to_owned());
    }
    assert!(counts.iter().all(|count| *count == counts[0]), "{counts:?}");
    let near = |run: &str, other: &str, name: &str, most: f64| {
        let (found, wanted) = (losses(&scene, run, name), losses(&scene, other, name));
        assert!(wanted.len() == found.len() && !wanted.is_empty(), "{name}");
        for (found, wanted) in found.iter().zip(&wanted) {
            assert!(
                (found - wanted).abs() <= most * wanted,
                "{run}, {name}: {found} for {wanted}"
            );
        }
    };
    // The folder's losses are held to PEFT's. Each pair has the same numbers; evaluation rounds the inputs of packed
    // weights.
    for (packed, floats) in [("model-run", "llama-run"), ("four-run", "wide-run")] {
        near(packed, floats, "train", 1e-4);
        near(packed, floats, "validation", 0.02);
    }
    assert!(scene.read("model.gguf") == held, "a base is never written");
    let model = StateDict::load(scene.path("model-run/model.safetensors")).unwrap();
    assert!(model.len() == 12 && model.keys().all(|name| name.contains(".lora_")));
    let judged = scene.ok("eval model-run");
    let last = losses(&scene, "model-run", "validation").pop().unwrap();
    let (_, figure) = judged.split_once("\nloss ").unwrap();
    let figure: f64 = figure.split(' ').next().unwrap().parse().unwrap();
    assert!((figure - last).abs() < 1e-3, "{judged} {last}");
}

#[test]
fn a_killed_run_of_a_gguf_file_ends_in_the_same_bytes() {
    let scene = quantized();
    let line = format!("finetune model.gguf --data lines.jsonl --epochs 12 {ADAPTER}");
    scene.ok(&format!("{line} --out whole"));
    let mut early = scene.command(&format!("{line} --out killed")).spawn().unwrap();
    while !scene.path("killed/checkpoint.safetensors").exists() {
        std::thread::sleep(Duration::from_millis(2));
    }
    early.kill().unwrap();
    early.wait().unwrap();
    scene.ok("train --resume killed");
    scene.same("killed", "whole");

    let mut other = scene.read("model.gguf");
    *other.last_mut().unwrap() ^= 1;
    scene.write("model.gguf", &other);
    for line in [
        "train --resume whole --epochs 13",
        "generate whole",
        "merge whole --out x.gguf",
        "eval whole",
    ] {
        scene.fails(line, &["model.gguf is not the model that", "began with"]);
    }
}

#[test]
fn what_was_learnt_beside_packed_weights_is_merged() {
    let scene = quantized();
    scene.ok(&format!(
        "finetune model.gguf --data lines.jsonl --epochs 12 --out run {ADAPTER}"
    ));
    let options = "--temperature 0 --tokens 6 --prompt blue --backend cpu:kernels=scalar";
    let written = scene.ok(&format!("generate run {options}"));
    assert!(written.starts_with("blue"), "{written}");
    scene.ok("merge run --out merged.safetensors");
    scene.ok("merge run --out folder");
    scene.ok("merge run --out merged.gguf --weights f32");
    scene.ok("merge run --out small.gguf");
    for model in ["folder", "merged.gguf"] {
        assert_eq!(scene.ok(&format!("generate {model} {options}")), written, "{model}");
    }
    scene.ok(&format!("generate small.gguf {options}"));

    // The weights are those of the adapter in its files, on the folder with the same numbers.
    let config = LlamaConfig::load(scene.path("llama/config.json")).unwrap();
    let device = Device::new("cpu").unwrap();
    let load = |path: &str| {
        let model = Llama::new(&config, &device).unwrap();
        model.load(scene.path(path)).unwrap();
        model.eval();
        model
    };
    let ids = Tensor::new([[3i64, 70, 250, 8]], &device).unwrap();
    let logits = |model: &Llama| model.forward(&ids).unwrap().to_f64_vec().unwrap();
    let (base, merged) = (load("llama/model.safetensors"), load("merged.safetensors"));
    assert_eq!(lora::load(&base, "mine", scene.path("run/adapter")).unwrap().len(), 6);
    let far = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(far(&logits(&base), &logits(&merged)) < 1e-4);
    assert!(scene.read("folder/model.safetensors") == scene.read("merged.safetensors"));
    // A folder of what the file has, which is trained further as any.
    scene.ok("finetune folder --data lines.jsonl --epochs 1 --lora r=2 --out again --threads 1");

    // All but the changed matrices is as in the base, whose are written in blocks of 8 bits, or as said.
    let [own, whole, small] = ["model.gguf", "merged.gguf", "small.gguf"];
    let [own, whole, small] = [own, whole, small].map(|name| TensorFile::open(scene.path(name)).unwrap());
    for name in own.keys() {
        let is_changed = ["attn_q", "attn_v", "ffn_down"].iter().any(|part| name.contains(part));
        let stored = |file: &TensorFile| file.info(name).unwrap().stored;
        let read = |file: &TensorFile| file.read(name).unwrap().to_f64_vec();
        if is_changed {
            assert_eq!(stored(&whole), "f32");
            assert!(far(&read(&whole), &read(&own)) > 1e-3, "{name}");
            assert!(far(&read(&whole), &read(&small)) < 0.02, "{name}");
        } else {
            assert!(read(&whole) == read(&own) && stored(&whole) == stored(&own), "{name}");
        }
        assert_eq!(stored(&small), stored(&own));
    }
    assert!(whole.metadata() == own.metadata());
}

#[test]
fn an_adapter_of_all_layers_is_merged_although_packed_embeddings_have_none() {
    let scene = quantized();
    let line = "finetune model.gguf --data lines.jsonl --lora r=2,targets=* --epochs 1 --threads 1 --out run";
    scene.ok(line);
    let state = StateDict::load(scene.path("run/model.safetensors")).unwrap();
    assert!(state.keys().any(|name| name.contains("gate_proj")));
    scene.ok("merge run --out merged.gguf");
    scene.ok("generate merged.gguf --tokens 2");
    let line = "finetune model.gguf --data lines.jsonl --lora targets=embed_tokens --threads 1 --out none";
    scene.fails(line, &["embed_tokens is the name of no layer", "targets=q_proj,v_proj"]);
}

#[test]
fn gguf_files_that_cannot_be_trained_or_written_are_refused() {
    let scene = quantized();
    let whole = scene.read("model.gguf");
    scene.write("cut.gguf", &whole[..whole.len() - 100]);
    scene.write("begun.gguf", &whole[..200]);
    scene.write("text.gguf", b"no such file");
    // Other words of the same length.
    let replaced = |from: &str, to: &str| {
        assert_eq!(from.len(), to.len());
        let at = whole
            .windows(from.len())
            .position(|part| part == from.as_bytes())
            .unwrap();
        [&whole[..at], to.as_bytes(), &whole[at + from.len()..]].concat()
    };
    scene.write("bare.gguf", &replaced("tokenizer.ggml.model", "tokenizer.ggml.other"));
    scene.write(
        "wordless.gguf",
        &replaced("tokenizer.ggml.tokens", "tokenizer.ggml.others"),
    );
    scene.write("kind.gguf", &replaced("tokenizer.ggml.pre", "tokenizer.ggml.pra"));
    let architecture = [&5u64.to_le_bytes()[..], b"llama"].concat();
    let at = whole.windows(13).position(|part| part == architecture).unwrap();
    scene.write("other.gguf", &[&whole[..at + 8], b"bloom", &whole[at + 13..]].concat());
    for (file, words) in [
        ("cut.gguf", "the file ends at"),
        ("begun.gguf", "begun.gguf"),
        ("text.gguf", "as no file of tensors does"),
        ("llama/model.safetensors", "is a file of safetensors, not of GGUF"),
        ("bare.gguf", "the file has no tokenizer: it lacks tokenizer.ggml.model"),
        ("wordless.gguf", "the file has no tokenizer.ggml.tokens"),
        ("other.gguf", "general.architecture is"),
        ("absent.gguf", "absent.gguf"),
    ] {
        scene.fails(
            &format!("finetune {file} --data lines.jsonl --lora --out none"),
            &[words],
        );
    }
    let line = |options: &str| format!("finetune model.gguf --data lines.jsonl --out none {options}");
    scene.fails(&line(""), &["model.gguf has quantized weights", "--lora"]);
    scene.fails(
        &line("--lora targets=query"),
        &["query is the name of no layer", "targets=q_proj,v_proj"],
    );
    scene.fails(&line("--lora --context 65"), &["more than the 64 tokens of the model"]);
    scene.fails(
        &line("--lora --task classify"),
        &["model.gguf is a file, and not for --task classify"],
    );
    assert!(!scene.path("none").exists());

    scene.ok("finetune model.gguf --data lines.jsonl --lora r=2 --epochs 1 --out run --threads 1");
    scene.ok("finetune llama --data lines.jsonl --lora r=2 --epochs 1 --out other --threads 1");
    let refused = |line: &str, words: &[&str]| scene.fails(line, words);
    refused("merge run --out model.gguf", &["would lie among the files of the base"]);
    refused(
        "merge run --out run/merged.gguf",
        &["would lie among the files of the run"],
    );
    refused("merge run --out folder --weights f16", &["--weights is for GGUF files"]);
    refused(
        "merge other --out merged.gguf",
        &["llama is no GGUF file", "convert_hf_to_gguf.py"],
    );
    fs::hard_link(scene.path("model.gguf"), scene.path("link.gguf")).unwrap();
    scene.ok("merge run --out link.gguf");
    assert!(scene.read("model.gguf") == whole, "a base is never written");
    // Rows of 48 numbers are not made of blocks.
    scene.ok("finetune model.gguf --data lines.jsonl --lora r=2,targets=down_proj --epochs 1 --out down --threads 1");
    scene.fails(
        "merge down --out down.gguf --weights q4_0",
        &["ffn_down.weight", "blocks of 32"],
    );
    assert!(!scene.path("down.gguf").exists());
}
