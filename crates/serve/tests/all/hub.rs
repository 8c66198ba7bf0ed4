//! Folders of the Hub's form, compared with the models themselves.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use polygrad_core::{HostTensor, Result, Shape};
use polygrad_nn::models::{
    Bert, BertClassifier, BertConfig, BertInput, Gpt2, Gpt2Config, Llama, LlamaConfig, ModelConfig, ResNet,
    ResNetConfig, T5, T5Config, VisionTransformer, VitConfig,
};
use polygrad_nn::{Module, StateDict};
use polygrad_onnx::Options;
use polygrad_onnx::graph::Dim;
use polygrad_reference::ReferenceDevice;
use polygrad_serve::{Failure, InferRequest, Model, NamedValue, Pool, Repository, Settings, Strings, Value, hub};
use polygrad_tensor::{DType, Device, Tensor, no_grad};
use serde_json::json;

fn device() -> Device {
    Device::from_inner(ReferenceDevice::erased())
}

fn write(folder: &Path, name: &str, value: &serde_json::Value) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, value.to_string()).unwrap();
}

/// Saves a config with the Hub's additional fields, and the weights.
fn save(folder: &Path, kind: &str, architecture: &str, config: &impl ModelConfig, model: &impl Module) {
    let mut config: serde_json::Value = serde_json::from_str(&config.to_json().unwrap()).unwrap();
    config["model_type"] = json!(kind);
    config["architectures"] = json!([architecture]);
    write(folder, "config.json", &config);
    model.eval();
    model.save(folder.join("model.safetensors")).unwrap();
}

fn load(folder: &Path) -> Arc<dyn Model> {
    hub::load(folder, &device(), Options::default(), false).unwrap()
}

fn ids(rows: &[&[i64]]) -> (Value, Tensor) {
    let shape = Shape::new(&[rows.len(), rows[0].len()]).unwrap();
    let host = HostTensor::new(shape, rows.concat()).unwrap();
    (host.clone().into(), Tensor::from_host(host, &device()).unwrap())
}

fn close(served: &Value, own: &Tensor) {
    let served = served.tensor().unwrap().host();
    assert_eq!(served.shape(), &own.shape());
    let (served, own) = (served.to_f64_vec(), own.to_f64_vec().unwrap());
    let far = served.iter().zip(&own).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(far < 1e-5, "{far}");
}

fn bert() -> BertConfig {
    BertConfig {
        vocab_size: 30,
        hidden_size: 8,
        num_hidden_layers: 2,
        num_attention_heads: 2,
        intermediate_size: 16,
        max_position_embeddings: 12,
        num_labels: Some(3),
        ..BertConfig::default()
    }
}

#[test]
fn language_models_answer_as_they_are() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let (given, tokens) = ids(&[&[4, 7, 9, 1], &[5, 3, 0, 2]]);

    let config = Gpt2Config {
        vocab_size: 11,
        n_positions: 16,
        n_embd: 8,
        n_layer: 2,
        n_head: 2,
        ..Gpt2Config::default()
    };
    let model = Gpt2::new(&config, &device())?;
    save(folder.path(), "gpt2", "GPT2LMHeadModel", &config, &model);
    let own = no_grad(|| model.forward(&tokens))?;
    close(&load(folder.path()).run(std::slice::from_ref(&given))?[0], &own);
    // As in the Hub's gpt2: without the prefix of the base model.
    let file = folder.path().join("model.safetensors");
    let state = StateDict::load(&file)?;
    let bare = state
        .iter()
        .map(|(name, host)| (name.replace("transformer.", ""), host.clone()));
    bare.collect::<StateDict>().save(&file)?;
    let served = load(folder.path());
    close(&served.run(std::slice::from_ref(&given))?[0], &own);
    assert!(served.signature().is_batched());
    assert_eq!(served.signature().inputs[0].dims[1], Dim::Named("sequence".into()));

    let config = LlamaConfig {
        vocab_size: 11,
        hidden_size: 8,
        intermediate_size: 16,
        num_hidden_layers: 2,
        num_attention_heads: 2,
        max_position_embeddings: 16,
        ..LlamaConfig::default()
    };
    let model = Llama::new(&config, &device())?;
    save(folder.path(), "llama", "LlamaForCausalLM", &config, &model);
    let own = no_grad(|| model.forward(&tokens))?;
    close(&load(folder.path()).run(std::slice::from_ref(&given))?[0], &own);

    let config = T5Config {
        vocab_size: 11,
        d_model: 8,
        d_kv: 4,
        d_ff: 16,
        num_layers: 2,
        num_heads: 2,
        ..T5Config::default()
    };
    let model = T5::new(&config, &device())?;
    save(folder.path(), "t5", "T5ForConditionalGeneration", &config, &model);
    let (mask, seen) = ids(&[&[1, 1, 1, 1], &[1, 1, 0, 0]]);
    let (start, begun) = ids(&[&[0, 3], &[0, 5]]);
    let own = no_grad(|| model.forward(&tokens, Some(&seen), &begun))?;
    close(&load(folder.path()).run(&[given, mask, start])?[0], &own);
    Ok(())
}

#[test]
fn models_of_images_answer_as_they_are() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let images = Tensor::randn([2, 3, 32, 32], &device())?;
    let given: Value = images.to_host()?.into();

    let config = ResNetConfig {
        width: 4,
        ..ResNetConfig::resnet18(5)
    };
    let model = ResNet::new(&config, &device())?;
    save(folder.path(), "resnet", "ResNet", &config, &model);
    let own = no_grad(|| model.forward(&images))?;
    close(&load(folder.path()).run(std::slice::from_ref(&given))?[0], &own);

    let config = VitConfig {
        image_size: 32,
        patch_size: 8,
        num_layers: 2,
        num_heads: 2,
        hidden_dim: 8,
        mlp_dim: 16,
        num_classes: 5,
        ..VitConfig::default()
    };
    let model = VisionTransformer::new(&config, &device())?;
    save(folder.path(), "vit", "VisionTransformer", &config, &model);
    let own = no_grad(|| model.forward(&images))?;
    let served = load(folder.path());
    close(&served.run(&[given])?[0], &own);
    assert_eq!(served.signature().inputs[0].dims[2], Dim::Fixed(32));
    Ok(())
}

#[test]
fn bert_answers_as_its_folder_says() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let (given, tokens) = ids(&[&[4, 7, 9, 1], &[5, 3, 0, 0]]);
    let (mask, seen) = ids(&[&[1, 1, 1, 1], &[1, 1, 0, 0]]);
    let (types, of) = ids(&[&[0, 0, 1, 1], &[0, 1, 0, 0]]);
    let inputs = [given, mask, types];

    let model = BertClassifier::new(&bert(), &device())?;
    save(path, "bert", "BertForSequenceClassification", &bert(), &model);
    let input = BertInput::new(&tokens).attention_mask(&seen).token_type_ids(&of);
    let own = no_grad(|| model.forward(input))?;
    close(&load(path).run(&inputs)?[0], &own);

    let model = Bert::new(&bert(), &device())?;
    save(path, "bert", "BertModel", &bert(), &model);
    let hidden = no_grad(|| model.forward(input))?;
    let served = load(path).run(&inputs)?;
    close(&served[0], &hidden);
    close(&served[1], &no_grad(|| model.pool(&hidden))?);

    let part = |kind: &str, path: &str| json!({ "type": format!("sentence_transformers.models.{kind}"), "path": path });
    let parts = |names: &[(&str, &str)]| json!(names.iter().map(|(kind, path)| part(kind, path)).collect::<Vec<_>>());
    let all = [
        ("Transformer", ""),
        ("Pooling", "1_Pooling"),
        ("Normalize", "2_Normalize"),
    ];
    let counted = seen.unsqueeze(2)?.to_dtype(DType::F32)?;
    let mean = (hidden.mul(&counted)?.sum(1)? / counted.sum(1)?)?;
    let largest = hidden
        .masked_fill(&seen.unsqueeze(2)?.eq(0)?, f64::NEG_INFINITY)?
        .max(1)?
        .0;
    for (mode, pooled) in [
        ("mean_tokens", mean),
        ("cls_token", hidden.select(1, 0)?),
        ("max_tokens", largest),
    ] {
        write(
            path,
            "1_Pooling/config.json",
            &json!({ format!("pooling_mode_{mode}"): true, "word_embedding_dimension": 8 }),
        );
        write(path, "modules.json", &parts(&all[..2]));
        close(&load(path).run(&inputs)?[0], &pooled);
        write(path, "modules.json", &parts(&all));
        let unit = (&pooled / pooled.square()?.sum_keepdim(1)?.sqrt()?)?;
        close(&load(path).run(&inputs)?[0], &unit);
    }

    for (text, wanted) in [
        ("Dense", "asks for \"Dense\""),
        ("Pooling", "a pooling that is not there"),
    ] {
        write(
            path,
            "1_Pooling/config.json",
            &json!({ "pooling_mode_weightedmean_tokens": true }),
        );
        write(
            path,
            "modules.json",
            &parts(&[("Transformer", ""), (text, "1_Pooling")]),
        );
        let error = hub::load(path, &device(), Options::default(), false)
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains(wanted), "{error}");
    }
    Ok(())
}

/// A tokenizer that maps words to tokens, between `[CLS]` and `[SEP]`.
fn tokenizer() -> serde_json::Value {
    let words = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "the", "cat", "sat", "dog"];
    let vocab: serde_json::Map<_, _> = words
        .iter()
        .zip(0..)
        .map(|(word, id)| ((*word).to_owned(), json!(id)))
        .collect();
    let special = |name: &str, id: u32| json!({ "SpecialToken": { "id": name, "type_id": id } });
    json!({
        "version": "1.0",
        "added_tokens": [],
        "normalizer": null,
        "pre_tokenizer": { "type": "Whitespace" },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [special("[CLS]", 0), { "Sequence": { "id": "A", "type_id": 0 } }, special("[SEP]", 0)],
            "pair": [],
            "special_tokens": {
                "[CLS]": { "id": "[CLS]", "ids": [1], "tokens": ["[CLS]"] },
                "[SEP]": { "id": "[SEP]", "ids": [2], "tokens": ["[SEP]"] },
            },
        },
        "decoder": null,
        "model": { "type": "WordLevel", "vocab": vocab, "unk_token": "[UNK]" },
    })
}

fn texts(texts: &[&'static str]) -> Value {
    let strings = texts.iter().map(|text| Bytes::from_static(text.as_bytes())).collect();
    Value::Strings(Strings::new(Shape::new(&[texts.len()]).unwrap(), strings).unwrap())
}

#[test]
fn texts_are_tokenized() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let model = BertClassifier::new(&bert(), &device())?;
    save(path, "bert", "BertForSequenceClassification", &bert(), &model);
    write(path, "tokenizer.json", &tokenizer());
    let served = load(path);
    assert_eq!(
        (served.signature().inputs.len(), served.signature().is_batched()),
        (1, true)
    );
    let (_, tokens) = ids(&[&[1, 4, 5, 6, 2], &[1, 7, 2, 0, 0]]);
    let (_, seen) = ids(&[&[1, 1, 1, 1, 1], &[1, 1, 1, 0, 0]]);
    let own = no_grad(|| model.forward(BertInput::new(&tokens).attention_mask(&seen)))?;
    close(&served.run(&[texts(&["the cat sat", "dog"])])?[0], &own);

    // 12 positions, the last of which is the end token.
    let long = "cat cat cat cat cat cat cat cat cat cat cat cat cat cat";
    let (_, tokens) = ids(&[&[1, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 2]]);
    let own = no_grad(|| model.forward(BertInput::new(&tokens)))?;
    close(&served.run(&[texts(&[long])])?[0], &own);

    // A classifier has no vectors; with the files of sentence-transformers, the base model does.
    assert!(served.encoder().is_none());
    let model = Bert::new(&bert(), &device())?;
    let sentences = tempfile::tempdir().unwrap();
    save(sentences.path(), "bert", "BertModel", &bert(), &model);
    write(sentences.path(), "tokenizer.json", &tokenizer());
    assert!(load(sentences.path()).encoder().is_none());
    let part = |kind: &str, path: &str| json!({ "type": kind, "path": path });
    let parts = json!([part("Transformer", ""), part("Pooling", "1_Pooling")]);
    write(sentences.path(), "modules.json", &parts);
    let mean = json!({ "pooling_mode_mean_tokens": true });
    write(sentences.path(), "1_Pooling/config.json", &mean);
    write(
        sentences.path(),
        "sentence_bert_config.json",
        &json!({ "max_seq_length": 6 }),
    );
    let encoder = load(sentences.path());
    let count = |text: &str| encoder.encoder().unwrap().count(text).unwrap();
    assert_eq!([count("the cat sat"), count(""), count(long)], [5, 2, 6]);

    let bytes = Strings::new(Shape::new(&[1])?, vec![Bytes::from_static(b"\xff")])?;
    let error = served.run(&[Value::Strings(bytes)]).unwrap_err().to_string();
    assert!(error.contains("not UTF-8"), "{error}");

    let as_ids = hub::load(path, &device(), Options::default(), true)?;
    assert_eq!(as_ids.signature().inputs.len(), 3);
    Ok(())
}

#[test]
fn folders_of_sentence_transformers_6_give_its_vectors() -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/data/finetune/sentences");
    let served = load(&folder);
    let found = served.run(&[texts(&["what is one", "a red cat and a dog"])])?;
    let vectors = found[0].tensor()?.host().to_vec::<f32>()?;
    // The first numbers of each vector from `SentenceTransformer(folder).encode`.
    let wanted = [
        [0.145_259, 0.062_840, -0.168_254, 0.239_068],
        [-0.063_380, 0.138_932, -0.002_575, 0.103_380],
    ];
    for (row, wanted) in vectors.chunks(16).zip(wanted) {
        assert!(row.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-5), "{row:?}");
    }
    assert_eq!(served.encoder().unwrap().count("what is one")?, 5);
    assert_eq!(served.encoder().unwrap().count(&"a ".repeat(30))?, 20);
    Ok(())
}

/// The answer to a request for a model.
async fn asked<const N: usize>(model: Arc<dyn Model>, inputs: [(&str, Value); N]) -> Result<Value, Failure> {
    let repository = Repository::new(Pool::new(1).unwrap());
    let source = move || Ok(Arc::clone(&model));
    repository.add("it", 1, source, Settings::default()).unwrap();
    repository.load("it")?;
    let inputs = inputs.into_iter().map(|(name, value)| NamedValue {
        name: name.to_owned(),
        value,
    });
    let request = InferRequest {
        inputs: inputs.collect(),
        ..InferRequest::default()
    };
    let mut answer = repository.get("it", None)?.infer(request).await?;
    Ok(answer.outputs.remove(0).value)
}

#[tokio::test]
async fn types_of_tokens_may_be_left_out() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let (given, tokens) = ids(&[&[4, 7, 9, 1], &[5, 3, 0, 0]]);
    let (mask, seen) = ids(&[&[1, 1, 1, 1], &[1, 1, 0, 0]]);
    let model = BertClassifier::new(&bert(), &device())?;
    save(folder.path(), "bert", "BertForSequenceClassification", &bert(), &model);
    let own = no_grad(|| model.forward(BertInput::new(&tokens).attention_mask(&seen)))?;
    let inputs = [("input_ids", given), ("attention_mask", mask)];
    close(&asked(load(folder.path()), inputs.clone()).await.unwrap(), &own);

    let config = BertConfig {
        type_vocab_size: 1,
        ..bert()
    };
    let model = BertClassifier::new(&config, &device())?;
    save(folder.path(), "bert", "BertForSequenceClassification", &config, &model);
    let served = load(folder.path());
    assert_eq!(served.signature().inputs.len(), 2);
    let own = no_grad(|| model.forward(BertInput::new(&tokens).attention_mask(&seen)))?;
    close(&asked(served, inputs).await.unwrap(), &own);
    Ok(())
}

#[test]
fn what_is_missing_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let fails = |words: &str| {
        let error = hub::load(path, &device(), Options::default(), false)
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains(words), "{error}");
    };
    fails("config.json");
    fs::write(path.join("config.json"), "{").unwrap();
    fails("config.json");
    write(path, "config.json", &json!({ "model_type": "mamba" }));
    fails("one of: bert, gpt2");
    let model = Bert::new(&bert(), &device()).unwrap();
    save(path, "bert", "BertModel", &bert(), &model);
    fs::remove_file(path.join("model.safetensors")).unwrap();
    fails("give the file that holds the tensors");
    save(
        path,
        "bert",
        "BertModel",
        &BertConfig {
            num_hidden_layers: 3,
            ..bert()
        },
        &model,
    );
    fails("the weights have no encoder.layer.2");
    let file = path.join("model.safetensors");
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    fails("model.safetensors");
}
