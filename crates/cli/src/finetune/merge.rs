//! `polygrad merge`: a model with what was learnt in its weights.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use polygrad::nn::{Module, lora, replace_file};
use serde_json::{Map, Value};

use super::Settings;
use super::base::{Base, is_in};
use super::goal::Goal;
use super::model::Tuned;
use crate::failure::{Failure, Result, Shown};
use crate::outcome::Outcome;
use crate::progress::say;
use crate::trained::{self, Trained};

/// What goes along from the folder of the base, where it is there: how texts become tokens, and vectors those of texts.
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
    /// The folder that `finetune` left
    run: PathBuf,

    /// A new folder for the whole model, as the Hub or sentence-transformers has it; or a file that ends in
    /// .safetensors for its weights alone, under the base's names
    #[arg(long, value_name = "FOLDER|FILE.safetensors")]
    out: PathBuf,
}

/// Writes the whole model of a run, as others load it.
///
/// # Errors
/// A run that is missing, damaged or of something else; a base that has gone or has changed; a place among the files of
/// the base or the run; a folder that has files; a file for a model whose base's config does not fit it; weights that
/// cannot be merged; those of the device and the disk.
pub(crate) fn command(args: &Merge) -> Result<Outcome> {
    say(&merge(&args.run, &args.out)?);
    Ok(Outcome::Done)
}

/// What [`command`] does; gives what to say of it.
///
/// # Errors
/// As of [`command`].
pub(crate) fn merge(run: &Path, out: &Path) -> Result<String> {
    let is_file = out.extension().is_some_and(|end| end == "safetensors");
    if is_in(out, run) {
        return Err(
            Failure::new(format!("{} would lie among the files of the run", out.shown())).fix("choose another folder"),
        );
    }
    if !is_file {
        must_be_free(out)?;
    }
    let Trained { config, model, .. } = trained::load::<Settings>(run, None, None)?;
    let base = Settings::base(&config)?;
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
    let model = model.into_inner();
    lora::merge_and_unload(&model)?;
    Ok(if is_file {
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

fn save(model: &Tuned, path: &Path) -> Result<()> {
    let format = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
    Ok(model.state_dict()?.save_with_metadata(path, &format)?)
}

/// Writes all files of a model; last the one that makes the folder a model's.
fn folder(model: &Tuned, goal: &Goal, base: &Base, out: &Path) -> Result<()> {
    for name in ALONG {
        let (from, to) = (base.folder().join(name), out.join(name));
        if from.is_file() {
            let parent = to.parent().unwrap_or(out);
            fs::create_dir_all(parent).map_err(|e| Failure::io("create", parent, &e))?;
            fs::copy(&from, &to).map_err(|e| Failure::io("write", &to, &e))?;
        }
    }
    save(model, &out.join("model.safetensors"))?;
    let config = serde_json::to_vec_pretty(&config(goal, base)).map_err(|e| Failure::new(e.to_string()))?;
    replace_file(&out.join("config.json"), |file| file.write_all(&config))?;
    Ok(())
}

/// That of the base, with the classes and the kind of model that was trained.
fn config(goal: &Goal, base: &Base) -> Value {
    let mut config = base.config.clone();
    // What was trained and is written are numbers of 32 bits.
    for name in ["dtype", "torch_dtype"] {
        if let Some(dtype) = config.get_mut(name) {
            *dtype = "float32".into();
        }
    }
    match goal {
        Goal::Text => {}
        Goal::Embed => config["architectures"] = vec!["BertModel"].into(),
        Goal::Classify(labels) => {
            let numbered = || labels.iter().enumerate();
            let names: Map<String, Value> = numbered()
                .map(|(i, name)| (i.to_string(), name.clone().into()))
                .collect();
            let numbers: Map<String, Value> = numbered().map(|(i, name)| (name.clone(), i.into())).collect();
            config["architectures"] = vec!["BertForSequenceClassification"].into();
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
