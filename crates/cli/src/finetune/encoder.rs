//! What runs of `--task classify` and `embed` have learnt, for a server.

use std::path::Path;

use polygrad::nn::lora;
use polygrad::nn::models::{Bert, BertClassifier};
use polygrad::text::{Pooling, Tokenizer};

use super::Settings;
use super::goal::Goal;
use super::model::{Encoder, Tuned};
use crate::failure::{Failure, Result, Shown};
use crate::run::{self, config};
use crate::trained::{self, Trained};

/// A BERT that tells texts apart, or makes vectors of them.
pub(crate) enum TextModel {
    Classifier(Box<BertClassifier>),
    Encoder(Box<Bert>, Pooling),
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
    let tokenizer = Settings::base(&config)?.format()?.tokenizer;
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
        #[cfg(feature = "onnx")]
        Tuned::Graph(_) => {
            return Err(Failure::new(format!("{} is of an ONNX file", path.shown()))
                .fix("serve the file that `polygrad merge RUN --out FILE.onnx` makes of it"));
        }
        Tuned::Lm(_) => {
            return Err(Failure::new(format!("{} holds a model of another task", path.shown())).fix("train anew"));
        }
    };
    Ok(Some((model, tokenizer)))
}
