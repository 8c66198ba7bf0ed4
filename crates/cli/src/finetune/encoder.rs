//! What runs of `--task classify` and `embed` have learnt, for a server.

use std::path::Path;

use polygrad::nn::lora;
use polygrad::nn::models::{Bert, BertClassifier};
use polygrad::text::{Pooling, Tokenizer};
use polygrad_onnx::graph::Graph;

use super::Settings;
use super::goal::Goal;
use super::model::{Encoder, Tuned};
use crate::failure::{Failure, Result, Shown};
use crate::run::{self, config};
use crate::trained::{self, Trained};

/// A model that tells texts apart, or makes vectors of them.
pub(crate) enum TextModel {
    Classifier(Box<BertClassifier>),
    Encoder(Box<Bert>, Pooling),
    /// The graph of an ONNX file, its padding token, and the most tokens of a text.
    Graph(Box<Graph>, (i64, usize)),
}

/// The model of a run, with what was learnt in its weights, and its tokenizer; `None` if it writes.
///
/// # Errors
/// A run or a base that is missing, damaged or has become another; those of the device.
pub(crate) fn of_run(path: &Path, backend: &str, threads: Option<usize>) -> Result<Option<(TextModel, Tokenizer)>> {
    let settings: Settings = config::load(&run::open(path)?.config())?;
    if settings.goal == Goal::Text {
        return Ok(None);
    }
    let Trained { config, model, .. } = trained::load::<Settings>(path, Some(backend), threads)?;
    let base = Settings::base(&config)?;
    let tokenizer = base.format()?.tokenizer;
    let model = model.into_inner();
    if config.lora.is_some() {
        lora::merge_and_unload(&model)?;
    }
    let model = match model {
        Tuned::Classifier(model) => TextModel::Classifier(model),
        Tuned::Encoder(model) => {
            let Encoder { bert, pooling } = *model;
            TextModel::Encoder(Box::new(bert), pooling)
        }
        Tuned::Graph(model) => {
            let graph = model.served()?.ok_or_else(|| {
                let what = "is of an ONNX file with vectors of tokens alone, or with inputs of its own form";
                Failure::new(format!("{} {what}", path.shown()))
                    .fix("serve the file that `polygrad merge RUN --out FILE.onnx` makes of it")
            })?;
            let pad = base.config["pad_token_id"].as_i64().unwrap_or(0);
            TextModel::Graph(Box::new(graph), (pad, base.sizes().0))
        }
        Tuned::Lm(_) => {
            return Err(Failure::new(format!("{} holds a model of another task", path.shown())).fix("train anew"));
        }
    };
    Ok(Some((model, tokenizer)))
}
