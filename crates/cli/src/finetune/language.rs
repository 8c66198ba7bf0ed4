//! Language models: of runs, of folders in the Hub's format, and of GGUF files.

use std::path::Path;

use polygrad::ErrorKind;
use polygrad::nn::{Module, lora};
use polygrad::text::{LanguageModel, TextFormat};

use super::Settings;
use super::base::Base;
use super::goal::Goal;
use super::model::Tuned;
use crate::backend;
use crate::failure::{Failure, Result, Shown};
use crate::run;
use crate::trained::{self, Trained};

/// A language model in evaluation mode, with its text format.
pub(crate) struct Language {
    pub(crate) model: LanguageModel,
    pub(crate) format: TextFormat,
}

impl Language {
    /// Opens the model at a path, on the device that `backend` names. Default: the device of a run's training,
    /// otherwise the CPU.
    ///
    /// # Errors
    /// If there is no language model, or files are damaged or do not fit together; those of the device.
    pub(crate) fn open(path: &Path, backend: Option<&str>, threads: Option<usize>) -> Result<Self> {
        let language = if run::is_of_others(path) {
            let base = Base::open(path, &Goal::Text)?;
            let device = backend::open(backend.unwrap_or("cpu"), threads)?;
            let model = writer(base.model(&device, &Goal::Text)?, path, &Goal::Text)?;
            let format = base.format()?;
            Self { model, format }
        } else {
            of_run(path, backend, threads)?
        };
        language.model.eval();
        language.model.settle()?;
        Ok(language)
    }
}

/// The base of a run with what was learnt in its weights, or beside them where they stay packed.
fn of_run(path: &Path, backend: Option<&str>, threads: Option<usize>) -> Result<Language> {
    let Trained { config, model, .. } = trained::load::<Settings>(path, backend, threads)?;
    let base = Settings::base(&config)?;
    let mut format = base.format()?;
    // What completions were learnt to end with.
    format.ends.extend(base.end.filter(|end| !format.ends.contains(end)));
    let model = model.into_inner();
    // An adapter of a packed weight stays beside it, and so does one of two layers that share their weight.
    match lora::check_merge(&model) {
        Ok(()) => lora::merge_and_unload(&model)?,
        Err(error) if error.kind() == ErrorKind::Unsupported => {}
        Err(error) => return Err(error.into()),
    }
    let model = writer(model, path, &config.goal)?;
    Ok(Language { model, format })
}

/// The language model.
fn writer(model: Tuned, path: &Path, goal: &Goal) -> Result<LanguageModel> {
    match model {
        Tuned::Lm(model) => Ok(model),
        _ => Err(Failure::new(format!(
            "{} is for --task {}, and does not write",
            path.shown(),
            goal.name()
        ))
        .fix("`polygrad eval RUN` judges it, and `polygrad serve RUN` answers with what it has learnt")),
    }
}
