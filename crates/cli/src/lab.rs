//! The laboratory's commands, and the subject of `profile train`: the steps of `train` with images.

use std::rc::Rc;

use polygrad::nn::{Module, Visit};
use polygrad::train::TrainerConfig;
use polygrad::{AnyBackend, Device, Error, manual_seed};
pub(crate) use polygrad_lab::run;
use polygrad_lab::{Subject, Training, Work};

use crate::data::files::Dataset;
use crate::failure::{Failure, Result};
use crate::images::config::Config;
use crate::images::{self, TrainArgs, learner};
use crate::kind::Kind;
use crate::progress::say;
use crate::task::{Batches as _, RunSettings as _};
use crate::team::Team;
use crate::train;

/// The number of batches that training cycles through.
const BATCHES: usize = 100;

pub(crate) type Command = polygrad_lab::Command<TrainArgs>;

struct Images {
    config: Config,
    data: Dataset,
}

impl Training for TrainArgs {
    fn subject(&self) -> Result<(Box<dyn Subject>, Device)> {
        refuse_runs(self)?;
        let (config, device, data) = train::prepare::<Config>(self)?;
        images::about(&config, &data, &device).iter().for_each(|line| say(line));
        Ok((Box::new(Images { config, data }), device))
    }
}

fn refuse_runs(TrainArgs { every, .. }: &TrainArgs) -> Result<()> {
    let kind = every.dataset.as_deref().map_or(Kind::Images, Kind::of_dataset);
    if kind != Kind::Images {
        return Err(Failure::new(format!(
            "a profile of training is of images, and this is {}",
            kind.name()
        ))
        .fix("name a data set of images, such as fashion-mnist, or a case of `polygrad profile bench`"));
    }
    for (option, given) in [("--resume", &every.resume), ("--out", &every.out)] {
        if given.is_some() {
            return Err(Failure::new(format!("{option} names a run, and a profile leaves none"))
                .fix(format!("leave {option} out; --trace names the file to write")));
        }
    }
    if every.tui {
        return Err(Failure::new("--tui shows a run, and a profile is none").fix("leave --tui out"));
    }
    Ok(())
}

impl Subject for Images {
    fn title(&self) -> String {
        format!("train {}", self.config.dataset)
    }

    fn work<'a>(&'a self, device: &'a Device) -> Result<Work<'a>> {
        let Self { config, data } = self;
        manual_seed(config.training.seed);
        let (train, _) = config.loaders(data, device)?;
        let epochs = config.training.epochs;
        let steps = (train.batches().unwrap_or(0) * epochs) as u64;
        // Not captured: a replay has no passes or modules to measure.
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
        // Loaded before, as the threads of a loader would do.
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
}
