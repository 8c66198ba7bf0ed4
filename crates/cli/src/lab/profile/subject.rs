//! What is profiled: a step that can be taken as often as wanted.

use std::rc::Rc;

use polygrad::nn::{Module, Visit};
use polygrad::{AnyBackend, Device, manual_seed};
use polygrad_workloads::Case;

use crate::data::files::Dataset;
use crate::failure::Result;
use crate::run::config::Config;
use crate::train::learner::Learner;

/// Work that can be made on any device.
pub(super) enum Subject {
    /// Training as `polygrad train` does it.
    Training { config: Box<Config>, data: Dataset },
    /// A case of `polygrad bench`.
    Case(Case),
}

/// Work on a device.
pub(super) struct Work<'a> {
    pub(super) model: Option<Rc<dyn Visit<AnyBackend>>>,
    pub(super) step: Box<dyn FnMut() -> Result<()> + 'a>,
}

impl Subject {
    /// For people, and for the trace.
    pub(super) fn title(&self) -> String {
        match self {
            Self::Training { config, .. } => format!("train {}", config.dataset),
            Self::Case(case) => case.name(),
        }
    }

    /// Makes model, optimizer and data on a device.
    ///
    /// # Errors
    /// When the device lacks an op or memory; images that do not suit the model.
    pub(super) fn work<'a>(&'a self, device: &'a Device) -> Result<Work<'a>> {
        match self {
            Self::Training { config, data } => training(config, data, device),
            Self::Case(case) => {
                let mut prepared = case.prepare(device)?;
                Ok(Work {
                    model: prepared.model(),
                    step: Box::new(move || Ok(prepared.step().map(drop)?)),
                })
            }
        }
    }
}

fn training<'a>(config: &'a Config, data: &'a Dataset, device: &'a Device) -> Result<Work<'a>> {
    manual_seed(config.seed);
    let mut learner = Learner::new(config, data, device)?;
    learner.model.train();
    let model: Rc<dyn Visit<AnyBackend>> = learner.model.clone();
    let (mut epoch, mut steps) = (learner.epoch(0), 0);
    let step = move || {
        let (number, batch) = (steps / learner.batches(), steps % learner.batches());
        if batch == 0 {
            epoch = learner.epoch(number);
        }
        let (chance, order) = &epoch;
        let indices = order.chunks(config.batch_size).nth(batch).unwrap_or_default();
        learner.step(indices, chance, steps as u64)?;
        steps += 1;
        Ok(())
    };
    Ok(Work {
        model: Some(model),
        step: Box::new(step),
    })
}
