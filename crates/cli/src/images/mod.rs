//! Runs on labelled images.

mod args;
pub(crate) mod config;
pub(crate) mod eval;
#[cfg(feature = "onnx")]
mod export;
pub(crate) mod learner;
pub(crate) mod loaders;
mod model;
mod picture;
pub(crate) mod predict;
mod settings;
#[cfg(test)]
mod settings_tests;

use std::path::Path;

use polygrad::Device;
use polygrad::data::DataLoader;
use polygrad::nn::Sequential;
use polygrad::train::{Row, Trainer, TrainerConfig};

use crate::data::files::Dataset;
use crate::data::folder;
use crate::data::source::{Places, Request};
use crate::failure::{Failure, Result, Shown};
use crate::kind::Kind;
use crate::progress::{grouped, short};
use crate::run::config::name;
use crate::task::{Batch, Batches, RunSettings, Task, of_examples};
use crate::team::Team;
use crate::train::qat;
use crate::train::resumed::Fixed;
use crate::train::session::{Session, Trained};
pub(crate) use args::TrainArgs;
use config::{Config, Input};

impl RunSettings for Config {
    type Model = Sequential;

    const KIND: Kind = Kind::Images;
    const MAY_CHANGE: &'static [&'static str] = &["epochs", "data", "full"];

    of_examples!(RunSettings);

    fn check(&self) -> std::result::Result<(), String> {
        self.training.check()?;
        self.check_images()
    }

    fn model(&self, device: &Device) -> Result<Sequential> {
        let model = model::build(self.model, &self.input, self.classes.len(), device)?;
        qat::attached(model, self.training.qat)
    }
}

impl Task for Config {
    type Args = TrainArgs;
    type Data = Dataset;

    of_examples!(Task);

    fn new(args: &TrainArgs) -> Result<Self> {
        settings::new(args)
    }

    fn title(&self) -> Vec<String> {
        vec![self.dataset.clone(), name(self.model)]
    }

    fn load(&self) -> Result<Dataset> {
        let data = if let (settings::IMAGES, Some(folder)) = (self.dataset.as_str(), &self.data) {
            folder::load(folder, self.input.rows, self.training.seed)?
        } else {
            let request = Request {
                dataset: &self.dataset,
                folder: self.data.as_deref(),
                full: self.full,
            };
            Places::of_this_machine().locate(request)?.load(&self.dataset)?
        };
        match data.classes.as_slice() {
            [class] => Err(
                Failure::new(format!("all images of {} are of the class {class:?}", self.place()))
                    .fix("give images of at least two classes, so that there is something to tell apart"),
            ),
            _ => Ok(data),
        }
    }

    fn describe(&mut self, data: &Dataset) -> Result<()> {
        let [channels, rows, cols] = data.train.shape;
        let (mean, std) = loaders::statistics(&data.train)?;
        self.classes.clone_from(&data.classes);
        self.input = Input {
            channels,
            rows,
            cols,
            mean,
            std,
        };
        Ok(())
    }

    fn other_data(&self, _found: &Self, path: &Path) -> Failure {
        Failure::new(format!(
            "these are not the images that {} was trained on: their number, size, brightness or classes differ",
            path.shown()
        ))
        .fix("say with --data or --full where those images are now, or start a new run")
    }

    fn train(&self, data: &Self::Data, device: &Device, session: Session<'_>) -> Result<Trained> {
        session.fit(self, data, device)
    }

    fn metrics(&self, _device: &Device) -> Result<Vec<String>> {
        Ok(vec!["accuracy".to_owned()])
    }

    fn next(&self, path: &str) -> Vec<String> {
        vec![
            format!("polygrad eval {path}"),
            format!("polygrad predict {path} IMAGE.png"),
        ]
    }
}

impl Batches for Config {
    of_examples!(Batches);

    const JUDGED_BY: &'static str = "test";

    fn resume(&mut self, args: &TrainArgs, fixed: &mut Fixed) -> Result<()> {
        fixed.option("--model", args.model.map(name), name(self.model));
        fixed.option("--optimizer", args.optimizer.map(name), name(self.optimizer));
        fixed.option("--qat", args.qat.then_some(true), self.training.qat);
        fixed.option("--size", args.size, self.input.rows);
        let place = settings::place(&self.dataset, args)?;
        if args.data.full || place.is_some() {
            (self.data, self.full) = (place, args.data.full);
        }
        Ok(())
    }

    fn dataset(&self) -> &str {
        &self.dataset
    }

    fn place(&self) -> String {
        match &self.data {
            Some(folder) => folder.shown(),
            None if self.full => "the full set".into(),
            None => "the subset that comes with Polygrad".into(),
        }
    }

    fn loaders(&self, data: &Dataset, device: &Device) -> Result<(DataLoader<Batch>, DataLoader<Batch>)> {
        Ok((
            loaders::training(&data.train, self, device)?,
            loaders::evaluation(&data.test, &self.input, device)?,
        ))
    }

    fn about(&self, data: &Dataset, _model: &Sequential, device: &Device) -> Vec<String> {
        about(self, data, device)
    }

    fn calibrate(&self, model: &Sequential, batches: &DataLoader<Batch>, steps: u64) -> Result<()> {
        qat::calibrate(model, batches, steps)
    }

    fn trainer(
        &self,
        model: Sequential,
        steps: u64,
        options: TrainerConfig,
        team: &Team,
    ) -> Result<Trainer<Sequential, Batch>> {
        learner::build(self, model, steps, options, team, true)
    }

    fn result(&self, last: &Row) -> String {
        let accuracy = last.metrics.first().copied().unwrap_or(f64::NAN);
        format!("test accuracy {:.2} %", 100.0 * accuracy)
    }
}

/// Describes what is trained on which data.
pub(crate) fn about(config: &Config, data: &Dataset, device: &Device) -> Vec<String> {
    vec![
        format!(
            "{}: {} training and {} test images of {} × {}, {} classes",
            config.dataset,
            grouped(data.train.labels.len() as u64),
            grouped(data.test.labels.len() as u64),
            config.input.rows,
            config.input.cols,
            config.classes.len()
        ),
        format!(
            "{}{} with {}, batches of {}, learning rate {}, on {device}",
            name(config.model),
            qat::title(config.training.qat),
            name(config.optimizer),
            config.training.batch_size,
            short(config.training.lr)
        ),
    ]
}
