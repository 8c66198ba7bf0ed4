//! `polygrad merge`: a model with its training merged into the weights.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use polygrad::ErrorKind;
use polygrad::formats::{GgufType, rewrite_gguf};
use polygrad::nn::models::llama_to_gguf;
use polygrad::nn::{Module, StateDict, Trained as OnlyTrained, lora, replace_file};
use serde_json::{Map, Value, json};

use super::Settings;
use super::base::{Base, is_in};
use super::gguf::Gguf;
use super::goal::Goal;
use super::model::Tuned;
use crate::failure::{Failure, Result, Shown};
use crate::outcome::Outcome;
use crate::progress::say;
use crate::trained::{self, Trained};

/// Ends the path of a layer in the name of an adapter's factor.
const FACTOR: &str = ".lora_";

/// Files copied from the base's folder, if they exist: for tokenization and pooling.
const ALONG: [&str; 15] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "generation_config.json",
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "1_Pooling/config.json",
    "2_Normalize/config.json",
    "LICENSE",
];

#[derive(Debug, Args)]
pub(crate) struct Merge {
    /// Run folder written by `finetune`
    run: PathBuf,

    /// A new folder for the whole model, as the Hub or sentence-transformers has it; a file that ends in .safetensors
    /// for its weights alone, under the base's names; or one that ends in .gguf or .onnx, if the base is such a file
    #[arg(long, value_name = "FOLDER|FILE")]
    out: PathBuf,

    /// How a GGUF file has the matrices that were changed; all others are taken over from the base
    /// [default: q8_0 where the base has blocks, else as there]
    #[arg(long, value_enum, value_name = "TYPE")]
    weights: Option<Weights>,
}

/// A type of a GGUF file's matrices.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Weights {
    F32,
    F16,
    #[value(name = "q8_0")]
    Q8,
    #[value(name = "q4_0")]
    Q4,
}

/// Writes the whole model of a run in a format that other programs load.
///
/// # Errors
/// If a run is missing, damaged or not a finetuning; if a base is gone or has changed; if the destination is in the
/// folder of the base or the run; if the folder has files; if the base's config does not fit a model that is to be a
/// single file; if weights cannot be merged; those of the device and the disk.
pub(crate) fn command(args: &Merge) -> Result<Outcome> {
    say(&merge(&args.run, &args.out, args.weights)?);
    Ok(Outcome::Done)
}

/// Performs [`command`]; returns its output.
///
/// # Errors
/// As of [`command`].
pub(crate) fn merge(run: &Path, out: &Path, weights: Option<Weights>) -> Result<String> {
    let ends_in = |wanted: &str| out.extension().is_some_and(|end| end == wanted);
    let is_gguf = ends_in("gguf");
    let is_file = is_gguf || ends_in("safetensors") || ends_in("onnx");
    if weights.is_some() && !is_gguf {
        return Err(Failure::new("--weights is for GGUF files").fix("name one with --out, or leave --weights out"));
    }
    if is_in(out, run) {
        return Err(
            Failure::new(format!("{} would lie among the files of the run", out.shown())).fix("choose another folder"),
        );
    }
    if !is_file {
        must_be_free(out)?;
    }
    let trained = trained::load::<Settings>(run, None, None)?;
    let config = trained.config.clone();
    let mut base = Settings::base(&config)?;
    if base.holds(out) {
        return Err(
            Failure::new(format!("{} would lie among the files of the base", out.shown()))
                .fix("choose another folder: a base is never written"),
        );
    }
    if is_file
        && let Goal::Classify(labels) = &config.goal
        && *labels != base.labels()
    {
        return Err(Failure::new(
            "the config.json of the base does not have the classes of the run, and a file has no place for them",
        )
        .fix("give a folder with --out, which has a config.json of its own"));
    }
    if base.is_graph() != ends_in("onnx") && (is_file || !base.is_graph()) {
        return Err(match base.is_graph() {
            true => Failure::new(format!("{} is an ONNX file, and stays one", base.path().shown()))
                .fix("name a folder with --out, or a file that ends in .onnx"),
            false => Failure::new(format!("{} is no ONNX file", base.path().shown()))
                .fix("name a folder with --out, or give `finetune` the ONNX file of the model"),
        });
    }
    if is_gguf && base.gguf().is_none() {
        let what = format!(
            "{} is no GGUF file, whose metadata another one could have",
            base.path().shown()
        );
        let fix = "give a folder with --out, of which llama.cpp's convert_hf_to_gguf.py makes a GGUF file";
        return Err(Failure::new(what).fix(fix));
    }
    let changed = changed(&trained.model)?;
    let model = whole(trained, &mut base, is_file)?;
    Ok(if let Some(file) = base.gguf().filter(|_| is_gguf) {
        save_gguf(&model, &changed, file, weights, out)?;
        format!("{} holds the whole model with its tokenizer", out.shown())
    } else if is_file {
        save(&model, out)?;
        format!(
            "{} holds the whole model; its config.json and tokenizer.json are those of the base",
            out.shown()
        )
    } else {
        folder(&model, &config.goal, &base, out)?;
        format!("{} holds the whole model with its config and tokenizer", out.shown())
    })
}

/// The names of the parameters that the run has changed.
fn changed(model: &OnlyTrained<Tuned>) -> Result<BTreeSet<String>> {
    let state = model.state_dict()?;
    let whole = |name: &str| match name.split_once(FACTOR) {
        Some((layer, _)) => format!("{layer}.weight"),
        None => name.to_owned(),
    };
    Ok(state.keys().map(whole).collect())
}

/// The model with what was learnt in its weights, none of which stays packed. If the adapter is for one of two layers
/// that share a weight, each gets its own, and `base` says so.
fn whole(trained: Trained<Settings>, base: &mut Base, is_file: bool) -> Result<Tuned> {
    let Trained { config, model, device } = trained;
    let learnt = model.state_dict()?;
    let mut model = match base.gguf() {
        Some(file) if config.lora.is_some() && file.is_quantized()? => {
            adapted(Tuned::Lm(file.model(&device, false)?), &learnt, &config, base)?
        }
        _ => model.into_inner(),
    };
    let is_shared = lora::check_merge(&model).is_err_and(|error| error.kind() == ErrorKind::Unsupported);
    if is_shared && base.untie() {
        if is_file {
            let what = "the adapter is for one of two layers that share a weight, and in a file they would go on to";
            return Err(
                Failure::new(what).fix("give a folder with --out, whose config.json says that each has its own")
            );
        }
        let state = model.state_dict()?;
        let weights = state.iter().filter(|(name, _)| !name.contains(FACTOR));
        let weights: StateDict = weights.map(|(name, value)| (name.to_owned(), value.clone())).collect();
        let untied = base.shell(&device, &config.goal)?;
        untied.load_state_dict(&weights, true)?;
        model = adapted(untied, &learnt, &config, base)?;
    }
    lora::merge_and_unload(&model)?;
    Ok(model)
}

/// A model with the run's adapter, whose factors are in `learnt`.
fn adapted(mut model: Tuned, learnt: &StateDict, config: &Settings, base: &Base) -> Result<Tuned> {
    if let Some(lora) = &config.lora {
        // Those that have it: of packed layers fewer can have an adapter than of others.
        let layers = learnt.keys().filter_map(|name| Some(name.split_once(FACTOR)?.0));
        config.attach(&mut model, &config.adapter(lora, base).targets(layers), base)?;
    }
    let model = OnlyTrained::new(model);
    model.load_state_dict(learnt, true)?;
    Ok(model.into_inner())
}

fn save_gguf(
    model: &Tuned,
    changed: &BTreeSet<String>,
    file: &Gguf,
    weights: Option<Weights>,
    out: &Path,
) -> Result<()> {
    let state = model.state_dict()?;
    let state = state.iter().filter(|(name, _)| changed.contains(*name));
    let state = state.map(|(name, value)| (name.to_owned(), value.clone())).collect();
    let written = rewrite_gguf(file.path(), out, |name| {
        let Some(tensor) = llama_to_gguf(name, &file.config, &state)? else {
            return Ok(None);
        };
        let kind = match (tensor.shape().rank(), weights) {
            // llama.cpp takes biases and norms as f32 alone.
            (0 | 1, _) | (_, Some(Weights::F32)) => GgufType::F32,
            (_, Some(Weights::F16)) => GgufType::F16,
            (_, Some(Weights::Q8)) => GgufType::Q8_0,
            (_, Some(Weights::Q4)) => GgufType::Q4_0,
            (_, None) => match file.stored(name)?.as_str() {
                blocks if blocks.starts_with('Q') => GgufType::Q8_0,
                "f16" => GgufType::F16,
                _ => GgufType::F32,
            },
        };
        Ok(Some((tensor, kind)))
    });
    Ok(written?)
}

fn must_be_free(out: &Path) -> Result<()> {
    let is_free = match fs::read_dir(out) {
        Ok(mut entries) => entries.next().is_none(),
        Err(_) => !out.exists(),
    };
    match is_free {
        true => Ok(()),
        false => Err(Failure::new(format!("{} is there already", out.shown()))
            .fix("name a new folder, or a file that ends in .safetensors for the weights alone")),
    }
}

/// Saves the weights. A head that shares the embedding's weight is left out, as transformers does.
fn save(model: &Tuned, path: &Path) -> Result<()> {
    #[cfg(feature = "onnx")]
    if let Tuned::Graph(model) = model {
        return Ok(model.merged()?.save(path)?);
    }
    let format = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
    let parameters = model.named_parameters().into_iter().map(|(name, _)| name);
    let buffers = model.named_buffers().into_iter().map(|(name, _)| name);
    let once: BTreeSet<String> = parameters.chain(buffers).collect();
    let state = model.state_dict()?;
    let state = state.iter().filter(|(name, _)| once.contains(*name));
    let state: StateDict = state.map(|(name, value)| (name.to_owned(), value.clone())).collect();
    Ok(state.save_with_metadata(path, &format)?)
}

/// Writes all files of a model; the config comes last, since it makes the folder a model.
fn folder(model: &Tuned, goal: &Goal, base: &Base, out: &Path) -> Result<()> {
    if let Some(file) = base.gguf() {
        tokenizer(file, out)?;
    }
    for name in ALONG {
        let (from, to) = (base.folder().join(name), out.join(name));
        if from.is_file() {
            let parent = to.parent().unwrap_or(out);
            fs::create_dir_all(parent).map_err(|e| Failure::io("create", parent, &e))?;
            fs::copy(&from, &to).map_err(|e| Failure::io("write", &to, &e))?;
        }
    }
    let name = if base.is_graph() {
        "model.onnx"
    } else {
        "model.safetensors"
    };
    save(model, &out.join(name))?;
    write_json(&out.join("config.json"), &config(goal, base))
}

/// Writes what the metadata of a GGUF file say of its tokens, as folders have it.
fn tokenizer(file: &Gguf, out: &Path) -> Result<()> {
    fs::create_dir_all(out).map_err(|e| Failure::io("create", out, &e))?;
    let write = |name: &str, text: &str| replace_file(&out.join(name), |file| file.write_all(text.as_bytes()));
    let format = file.format()?;
    write("tokenizer.json", &format.tokenizer.to_json()?)?;
    if let Some(template) = file.template() {
        write("chat_template.jinja", template)?;
    }
    let mut named = json!({"tokenizer_class": "PreTrainedTokenizerFast"});
    for (name, _, token) in file.special() {
        named[name] = token.into();
    }
    write_json(&out.join("tokenizer_config.json"), &named)?;
    let ends = json!({"bos_token_id": format.first, "eos_token_id": format.ends});
    write_json(&out.join("generation_config.json"), &ends)
}

fn write_json(path: &Path, value: &Value) -> Result<()> {
    let text = serde_json::to_vec_pretty(value).map_err(|e| Failure::new(e.to_string()))?;
    Ok(replace_file(path, |file| file.write_all(&text))?)
}

/// The config of the base, with the classes and the kind of the trained model.
fn config(goal: &Goal, base: &Base) -> Value {
    let mut config = base.config.clone();
    // The trained weights are written as f32.
    for name in ["dtype", "torch_dtype"] {
        if let Some(dtype) = config.get_mut(name) {
            *dtype = "float32".into();
        }
    }
    match goal {
        Goal::Text => {}
        Goal::Embed if base.is_graph() => {}
        Goal::Embed => config["architectures"] = vec!["BertModel"].into(),
        Goal::Classify(labels) => {
            let numbered = || labels.iter().enumerate();
            let names: Map<String, Value> = numbered()
                .map(|(i, name)| (i.to_string(), name.clone().into()))
                .collect();
            let numbers: Map<String, Value> = numbered().map(|(i, name)| (name.clone(), i.into())).collect();
            let kind = base.architecture();
            config["architectures"] = vec![format!("{kind}ForSequenceClassification")].into();
            config["id2label"] = names.into();
            config["label2id"] = numbers.into();
            config["problem_type"] = "single_label_classification".into();
            if let Some(fields) = config.as_object_mut() {
                fields.remove("num_labels");
            }
        }
    }
    config
}
