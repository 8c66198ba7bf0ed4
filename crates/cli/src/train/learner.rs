//! A model that learns from labelled images.

use polygrad::Device;
use polygrad::nn::{Module, Sequential, loss::cross_entropy};
use polygrad::train::{Accuracy, Step, Trainer, TrainerConfig};

use super::optimizer;
use crate::data::files::Split;
use crate::failure::Result;
use crate::loaders::Batch;
use crate::model;
use crate::run::config::Config;

/// A new model with weights from this thread's generator, to be trained on `split`; the rest of how it is trained is in `options`.
///
/// # Errors
/// Those of the device; images that do not suit the model.
pub(crate) fn build(
    config: &Config,
    split: &Split,
    device: &Device,
    options: TrainerConfig,
) -> Result<Trainer<Sequential, Batch>> {
    let model = model::build(config.model, &config.input, config.classes.len(), device)?;
    let optimizer = optimizer::build(config.optimizer, config.lr, model.parameters())?;
    let steps = split.labels.len().div_ceil(config.batch_size) * config.epochs;
    let options = options
        .schedule(optimizer::schedule(steps as u64))
        .metric(Accuracy::new());
    let loss = |model: &Sequential, (images, labels): &Batch| {
        let logits = model.forward(images)?;
        Ok(Step::new(cross_entropy(&logits, labels)?).outputs(logits, labels))
    };
    Ok(options.build_captured(model, optimizer, loss)?)
}
