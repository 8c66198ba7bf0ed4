//! What is profiled: a step that can be taken as often as wanted.

use std::rc::Rc;

use polygrad::nn::{Module, Visit};
use polygrad::train::TrainerConfig;
use polygrad::{AnyBackend, Device, Error, manual_seed};
use polygrad_workloads::Case;

use crate::data::files::Dataset;
use crate::failure::Result;
use crate::images::config::Config;
use crate::images::learner;
use crate::task::{Batches as _, RunSettings as _};
use crate::team::Team;

/// Batches to train on, over and over.
const BATCHES: usize = 100;

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

fn training<'a>(config: &Config, data: &Dataset, device: &Device) -> Result<Work<'a>> {
    manual_seed(config.training.seed);
    let (train, _) = config.loaders(data, device)?;
    let epochs = config.training.epochs;
    let steps = (train.batches().unwrap_or(0) * epochs) as u64;
    // As it is written: a replay knows neither passes nor modules.
    let mut trainer = learner::build(
        config,
        config.model(device)?,
        steps,
        TrainerConfig::epochs(epochs as u64),
        &Team::default(),
        false,
    )?;
    trainer.model().train();
    let model: Rc<dyn Visit<AnyBackend>> = trainer.shared_model();
    // Made before, as the threads of a loader would.
    let batches = train.iter().take(BATCHES).collect::<polygrad::Result<Vec<_>>>()?;
    let mut next = batches.into_iter().cycle();
    let step = move || {
        let batch = next.next().ok_or_else(|| Error::invalid("there are no images"))?;
        trainer.step(&batch)?;
        Ok(())
    };
    Ok(Work {
        model: Some(model),
        step: Box::new(step),
    })
}
