//! A model that learns from labelled images.

use polygrad::nn::{Module, Sequential, loss::cross_entropy};
use polygrad::train::{Accuracy, Step, Trainer, TrainerConfig};

use super::config::Config;
use crate::failure::Result;
use crate::task::Batch;
use crate::team::Team;
use crate::train::optimizer;

/// The trainer of `model` for `team` and this many steps, which are recorded and replayed if `captured`. `options` has
/// the rest.
///
/// # Errors
/// Errors of the device.
pub(crate) fn build(
    config: &Config,
    model: Sequential,
    steps: u64,
    options: TrainerConfig,
    team: &Team,
    captured: bool,
) -> Result<Trainer<Sequential, Batch>> {
    let optimizer = optimizer::build(config.optimizer, config.training.lr, model.parameters(), team)?;
    let options = options.schedule(optimizer::schedule(steps)).metric(Accuracy::new());
    let loss = |model: &Sequential, (images, labels): &Batch| {
        let logits = model.forward(images)?;
        Ok(Step::new(cross_entropy(&logits, labels)?).outputs(logits, labels))
    };
    Ok(match captured {
        true => options.build_captured(model, optimizer, loss)?,
        false => options.build(model, optimizer, loss)?,
    })
}
