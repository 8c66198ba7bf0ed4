//! Language models that generate text, compared with the models themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use polygrad_core::{HostTensor, Result, Shape};
use polygrad_nn::Module;
use polygrad_nn::models::{CausalLm, GenerateConfig, Gpt2, Gpt2Config, Llama, LlamaConfig, ModelConfig};
use polygrad_onnx::Options;
use polygrad_reference::ReferenceDevice;
use polygrad_serve::{
    Finish, InferRequest, Model, NamedValue, Pool, Prompt, Repository, Settings, Strings, Style, Value, hub,
};
use polygrad_tensor::Device;
use serde_json::{Value as Json, json};

const WORDS: [&str; 8] = ["zero", "one", "two", "three", "four", "five", "six", "seven"];

fn device() -> Device {
    Device::from_inner(ReferenceDevice::erased())
}

/// Texts begin with a word, and no token ends them.
fn endless() -> Json {
    json!({ "bos_token_id": 3, "eos_token_id": 100 })
}

/// A folder of a model, with its `generation_config.json`.
fn save(folder: &Path, kind: &str, config: &impl ModelConfig, model: &impl Module, generation: &Json) {
    let mut config: Json = serde_json::from_str(&config.to_json().unwrap()).unwrap();
    config["model_type"] = json!(kind);
    fs::write(folder.join("config.json"), config.to_string()).unwrap();
    fs::write(folder.join("generation_config.json"), generation.to_string()).unwrap();
    let vocab: serde_json::Map<_, _> = WORDS
        .iter()
        .zip(0..)
        .map(|(word, id)| ((*word).to_owned(), json!(id)))
        .collect();
    let tokenizer = json!({
        "version": "1.0",
        "added_tokens": [],
        "normalizer": null,
        "pre_tokenizer": { "type": "Whitespace" },
        "post_processor": null,
        "decoder": null,
        "model": { "type": "WordLevel", "vocab": vocab, "unk_token": "zero" },
    });
    fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    model.eval();
    model.save(folder.join("model.safetensors")).unwrap();
}

fn gpt2() -> Gpt2Config {
    Gpt2Config {
        vocab_size: WORDS.len(),
        n_positions: 24,
        n_embd: 8,
        n_layer: 2,
        n_head: 2,
        // Large enough for tokens to differ.
        initializer_range: 0.5,
        ..Gpt2Config::default()
    }
}

fn load(folder: &Path) -> Result<Arc<dyn Model>> {
    hub::load(folder, &device(), Options::default(), false)
}

fn texts(texts: &[&'static str]) -> Value {
    let strings = texts.iter().map(|text| Bytes::from_static(text.as_bytes())).collect();
    Value::Strings(Strings::new(Shape::new(&[texts.len()]).unwrap(), strings).unwrap())
}

fn column<T: polygrad_core::Element>(values: Vec<T>) -> Value {
    let shape = Shape::new(&[values.len()]).unwrap();
    HostTensor::new(shape, values).unwrap().into()
}

fn words(value: &Value) -> Vec<String> {
    let Value::Strings(strings) = value else {
        panic!("numbers");
    };
    let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
    strings.strings().iter().map(text).collect()
}

/// The continuation of a prompt of tokens.
fn follows(model: &impl CausalLm<polygrad_core::AnyBackend>, prompt: &[i64], count: usize) -> Result<Vec<i64>> {
    let rows = model.generate_batch(&[prompt.to_vec()], count, &GenerateConfig::greedy())?;
    Ok(rows[0][prompt.len()..].to_vec())
}

fn said(tokens: &[i64]) -> String {
    tokens.iter().map(|&id| format!(" {}", WORDS[id as usize])).collect()
}

#[test]
fn texts_are_continued_as_the_model_does_it() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let model = Gpt2::new(&gpt2(), &device())?;
    save(path, "gpt2", &gpt2(), &model, &endless());
    let served = load(path)?;
    assert!(served.signature().is_batched());
    let run = |rows: &[&'static str], counts: Vec<i32>| -> Result<Vec<String>> {
        let temperatures = vec![0f32; counts.len()];
        let outputs = served.run(&[texts(rows), column(counts), column(temperatures)])?;
        Ok(words(&outputs[0]))
    };
    let (long, short) = (follows(&model, &[1, 2, 3], 7)?, follows(&model, &[7], 2)?);
    assert_eq!(
        run(&["one two three", "seven", "one two three"], vec![7, 2, 0])?,
        [said(&long), said(&short), String::new()]
    );

    let config = LlamaConfig {
        vocab_size: WORDS.len(),
        hidden_size: 8,
        intermediate_size: 16,
        num_hidden_layers: 2,
        num_attention_heads: 2,
        max_position_embeddings: 16,
        initializer_range: 0.5,
        ..LlamaConfig::default()
    };
    let model = Llama::new(&config, &device())?;
    save(path, "llama", &config, &model, &endless());
    let outputs = load(path)?.run(&[texts(&["four five"]), column(vec![5]), column(vec![0f32])])?;
    assert_eq!(words(&outputs[0]), [said(&follows(&model, &[4, 5], 5)?)]);
    // An empty text begins with the beginning token.
    let outputs = load(path)?.run(&[texts(&[""]), column(vec![5]), column(vec![0f32])])?;
    let begun = model.generate_batch(&[vec![3]], 5, &GenerateConfig::greedy())?;
    assert_eq!(words(&outputs[0]), [said(&begun[0][1..])]);
    // Logits, if ids are the input.
    let as_ids = hub::load(path, &device(), Options::default(), true)?;
    assert_eq!(as_ids.signature().outputs[0].name, "logits");
    Ok(())
}

#[test]
fn tokens_that_only_the_model_has_are_not_written() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let config = Gpt2Config {
        vocab_size: 4 * WORDS.len(),
        ..gpt2()
    };
    let model = Gpt2::new(&config, &device())?;
    save(folder.path(), "gpt2", &config, &model, &endless());
    let outputs = load(folder.path())?.run(&[texts(&["one"; 4]), column(vec![20; 4]), column(vec![9f32; 4])])?;
    for text in words(&outputs[0]) {
        let written: Vec<&str> = text.split_whitespace().collect();
        assert_eq!(written.len(), 20, "{text}");
        assert!(written.iter().all(|word| WORDS.contains(word)), "{text}");
    }
    Ok(())
}

#[test]
fn texts_that_do_not_fit_together_are_written_in_turn() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let model = Gpt2::new(&gpt2(), &device())?;
    save(path, "gpt2", &gpt2(), &model, &endless());
    let run = |max_run_bytes: usize, count: i32| -> Result<Vec<String>> {
        let options = Options {
            max_run_bytes,
            ..Options::default()
        };
        let inputs = [
            texts(&["one two", "seven three"]),
            column(vec![count; 2]),
            column(vec![0f32; 2]),
        ];
        let outputs = hub::load(path, &device(), options, false)?.run(&inputs)?;
        Ok(words(&outputs[0]))
    };
    // Two layers keep a key and a value of 8 numbers for each of the 9 tokens, and a step has 8 logits, in f32 and f64.
    let row = 9 * 2 * 2 * 8 * 4 + 8 * (4 + 8);
    let all = [said(&follows(&model, &[1, 2], 7)?), said(&follows(&model, &[7, 3], 7)?)];
    for bytes in [usize::MAX, 2 * row, 2 * row - 1, row] {
        assert_eq!(run(bytes, 7)?, all, "{bytes}");
    }
    let error = run(row - 1, 7).unwrap_err();
    assert_eq!(error.kind(), polygrad_core::ErrorKind::OutOfMemory);
    let wanted = format!("a text of 9 tokens takes {row} bytes, and the limit is {}", row - 1);
    assert!(error.to_string().contains(&wanted), "{error}");
    assert_eq!(run(row - 1, 6)?.len(), 2);
    Ok(())
}

#[tokio::test]
async fn a_request_may_say_how() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let model = Gpt2::new(&gpt2(), &device())?;
    save(folder.path(), "gpt2", &gpt2(), &model, &endless());
    let repository = Repository::new(Pool::new(1)?);
    let path = folder.path().to_owned();
    repository.add("it", 1, move || load(&path), Settings::default())?;
    repository.load("it").unwrap();
    let ask = async |inputs: Vec<(&str, Value)>| {
        let inputs = inputs.into_iter().map(|(name, value)| NamedValue {
            name: name.to_owned(),
            value,
        });
        let request = InferRequest {
            inputs: inputs.collect(),
            ..InferRequest::default()
        };
        let answer = repository.get("it", None)?.infer(request).await?;
        Ok::<_, polygrad_serve::Failure>(words(&answer.outputs[0].value))
    };
    let alone = ask(vec![("text", texts(&["one two"]))]).await.unwrap();
    assert_eq!(alone, [said(&follows(&model, &[1, 2], 16)?)]);
    let mut drawn = BTreeSet::new();
    for _ in 0..20 {
        let inputs = vec![("text", texts(&["one"])), ("temperature", column(vec![5f32]))];
        drawn.extend(ask(inputs).await.unwrap());
    }
    assert!(drawn.len() > 15, "{drawn:?}");
    for (inputs, wanted) in [
        (("max_tokens", column(vec![-1])), "max_tokens is -1"),
        (("max_tokens", column(vec![40])), "there are 24 positions"),
        (("max_tokens", column(vec![1, 2])), "shapes do not fit"),
        (("temperature", column(vec![-1f32])), "temperature = -1"),
    ] {
        let failure = ask(vec![("text", texts(&["one"])), inputs]).await.unwrap_err();
        assert_eq!(failure.reason, polygrad_serve::Reason::Invalid);
        assert!(failure.message.contains(wanted), "{failure}");
    }
    Ok(())
}

#[test]
fn a_text_ends_where_the_folder_says_so() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let model = Gpt2::new(&gpt2(), &device())?;
    let ask = |text: &'static str| -> Result<Vec<String>> {
        let outputs = load(path)?.run(&[texts(&[text]), column(vec![9]), column(vec![0f32])])?;
        Ok(words(&outputs[0]))
    };
    let tokens = follows(&model, &[1, 2], 9)?;
    let end = tokens[2];
    let first = tokens.iter().position(|&token| token == end).unwrap();
    save(path, "gpt2", &gpt2(), &model, &json!({ "eos_token_id": [end, 100] }));
    assert_eq!(ask("one two")?, [said(&tokens[..=first])]);
    // An empty text begins with that token.
    let begun = follows(&model, &[end], 9)?;
    let first = begun.iter().position(|&token| token == end).unwrap_or(8);
    assert_eq!(ask("")?, [said(&begun[..=first])]);
    save(path, "gpt2", &gpt2(), &model, &json!({}));
    let error = load(path).err().unwrap().to_string();
    assert!(error.contains("what token begins or ends a text"), "{error}");
    Ok(())
}

/// The texts of prompts that all join before the first step, and how each ended.
fn written_together(model: &dyn Model, asked: &[(Prompt, usize, Style)]) -> Result<Vec<(String, Finish)>> {
    let language = model.language().unwrap();
    let mut writing = language.begin()?;
    let mut texts = BTreeMap::new();
    for (prompt, count, style) in asked {
        let tokens = language.tokens(prompt)?;
        texts.insert(writing.join(&tokens, *count, style)?, (String::new(), None));
    }
    while texts.values().any(|(_, finish)| finish.is_none()) {
        for (number, piece) in writing.step()? {
            let piece = piece?;
            let (text, finish) = texts.get_mut(&number).unwrap();
            assert!(finish.is_none());
            text.push_str(&piece.text);
            *finish = piece.finish;
        }
    }
    assert!(writing.step()?.is_empty());
    Ok(texts
        .into_values()
        .map(|(text, finish)| (text, finish.unwrap()))
        .collect())
}

/// A text, and how it ended.
fn written(model: &dyn Model, prompt: &Prompt, count: usize, style: &Style) -> Result<(String, Finish)> {
    let mut all = written_together(model, &[(prompt.clone(), count, style.clone())])?;
    Ok(all.remove(0))
}

#[test]
fn texts_and_chats_are_written_in_pieces() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let model = Gpt2::new(&gpt2(), &device())?;
    save(path, "gpt2", &gpt2(), &model, &endless());
    let greedy = Style {
        temperature: 0.0,
        ..Style::default()
    };
    let served = load(path)?;
    let tokens = follows(&model, &[1, 2], 9)?;
    let (text, finish) = written(&*served, &Prompt::Text("one two".to_owned()), 9, &greedy)?;
    assert_eq!((text, finish.tokens, finish.is_stop), (said(&tokens), 9, false));
    let by_ids = written(&*served, &Prompt::Tokens(vec![1, 2]), 9, &greedy)?;
    assert_eq!(by_ids.0, said(&tokens));
    // An empty prompt begins with the beginning token.
    let begun = written(&*served, &Prompt::Tokens(Vec::new()), 5, &greedy)?;
    assert_eq!(begun.0, said(&follows(&model, &[3], 5)?));
    // Ends before a stop string.
    let stop = WORDS[tokens[3] as usize];
    let first = tokens.iter().position(|&token| token == tokens[3]).unwrap();
    let stopped = Style {
        stop: vec![stop.to_owned()],
        ..greedy.clone()
    };
    let (text, finish) = written(&*served, &Prompt::Text("one two".to_owned()), 9, &stopped)?;
    assert_eq!(
        (text.trim_end(), finish.is_stop),
        (said(&tokens[..first]).trim_end(), true)
    );
    assert_eq!(finish.tokens, first + 1);
    // The same seed gives the same text, other seeds do not.
    let drawn = |seed: u64| {
        let style = Style {
            temperature: 3.0,
            seed: Some(seed),
            ..Style::default()
        };
        written(&*served, &Prompt::Text("one".to_owned()), 20, &style).map(|(text, _)| text)
    };
    assert_eq!(drawn(1)?, drawn(1)?);
    assert_ne!(drawn(1)?, drawn(2)?);
    let chat = Prompt::Chat(vec![json!({"role": "user", "content": "two three"})]);
    let error = written(&*served, &chat, 1, &greedy).unwrap_err().to_string();
    assert!(
        error.contains("no template for chats") && error.contains("chat_template.jinja"),
        "{error}"
    );
    fs::write(path.join("chat_template.jinja"), "one {{ messages[0].content }} four").unwrap();
    let (text, _) = written(&*load(path)?, &chat, 6, &greedy)?;
    assert_eq!(text, said(&follows(&model, &[1, 2, 3, 4], 6)?));
    // As many positions as memory allows.
    let options = Options {
        max_run_bytes: 9 * 2 * 2 * 8 * 4 + 8 * (4 + 8),
        ..Options::default()
    };
    let small = hub::load(path, &device(), options, false)?;
    let language = small.language().unwrap();
    assert_eq!(language.positions(), 9);
    let mut writing = language.begin()?;
    assert!(writing.has_room(9) && !writing.has_room(10));
    let text = writing.join(&[1], 4, &greedy)?;
    assert!(writing.has_room(3) && !writing.has_room(4));
    writing.leave(text);
    assert!(writing.has_room(9));
    for (prompt, count, style, wanted) in [
        (vec![1, 100], 1, greedy.clone(), "token 100 is outside the vocabulary"),
        (
            vec![1],
            1,
            Style {
                top_p: 0.0,
                ..greedy.clone()
            },
            "top_p",
        ),
        (vec![1], 0, greedy.clone(), "no tokens"),
        (vec![1], 24, greedy.clone(), "there are 24 positions"),
    ] {
        let error = writing.join(&prompt, count, &style).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
    Ok(())
}

#[test]
fn each_text_is_as_if_it_were_alone() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let model = Gpt2::new(&gpt2(), &device())?;
    save(folder.path(), "gpt2", &gpt2(), &model, &endless());
    let served = load(folder.path())?;
    let style = |temperature: f64, seed: u64| Style {
        temperature,
        seed: Some(seed),
        ..Style::default()
    };
    let asked: Vec<_> = [
        ("one two three", 9, style(0.0, 0)),
        ("seven", 20, style(3.0, 1)),
        ("four five six seven one two", 3, style(0.0, 0)),
        ("seven", 12, style(3.0, 2)),
        ("two", 1, style(3.0, 3)),
    ]
    .into_iter()
    .map(|(text, count, style)| (Prompt::Text(text.to_owned()), count, style))
    .collect();
    let together = written_together(&*served, &asked)?;
    for ((prompt, count, style), found) in asked.iter().zip(&together) {
        assert_eq!(&written(&*served, prompt, *count, style)?, found);
    }
    // Draws with another seed differ.
    assert_ne!(together[1].0[..30], together[3].0[..30]);
    Ok(())
}
