//! `polygrad train table`: a perceptron that predicts one column of a table from the others.

mod args;
mod data;
pub(crate) mod eval;
#[cfg(feature = "onnx")]
mod export;
pub(crate) mod predict;
mod settings;

use std::path::Path;

use polygrad::Device;
use polygrad::data::DataLoader;
use polygrad::nn::loss::{cross_entropy, mse_loss};
use polygrad::nn::{Linear, Module, ReLU, Sequential};
use polygrad::train::{Accuracy, MeanAbsoluteError, RootMeanSquaredError, Row, Step, Trainer, TrainerConfig};

use crate::failure::{Failure, Result, Shown};
use crate::kind::Kind;
use crate::progress::{grouped, short};
use crate::run::config::{counts, name};
use crate::task::{Batch, Batches, RunSettings, Task, of_examples};
use crate::team::Team;
use crate::train::resumed::Fixed;
use crate::train::session::{Session, Trained};
use crate::train::{optimizer, place, qat};

pub(crate) use args::TrainArgs;
use data::Data;
#[cfg(feature = "onnx")]
pub(crate) use data::unfit;
pub(crate) use settings::Settings;
use settings::{Goal, Reading, SPLITS};

impl RunSettings for Settings {
    type Model = Sequential;

    const KIND: Kind = Kind::Table;
    const MAY_CHANGE: &'static [&'static str] = &["epochs", "data"];

    of_examples!(RunSettings);

    fn check(&self) -> std::result::Result<(), String> {
        self.training.check()?;
        let width = self.encoder.as_ref().map_or(0, |encoder| encoder.width());
        counts(&[("the inputs", width), ("the outputs", self.goal.outputs())])?;
        let hidden: Vec<(&str, usize)> = self.hidden.iter().map(|&size| ("hidden", size)).collect();
        counts(&hidden)?;
        if let Goal::Regress { mean, std } = self.goal
            && !(mean.is_finite() && std.is_finite() && std > 0.0)
        {
            return Err(format!(
                "mean {} and std {} are not those of a target",
                short(mean),
                short(std)
            ));
        }
        match SPLITS.contains(&self.validation_split) {
            true => Ok(()),
            false => Err(format!(
                "validation_split: {} is not {} to {}",
                short(self.validation_split),
                SPLITS.start(),
                SPLITS.end()
            )),
        }
    }

    fn model(&self, device: &Device) -> Result<Sequential> {
        let mut width = self.encoder()?.width();
        let mut model = Sequential::new();
        for &hidden in &self.hidden {
            model = model.push(Linear::new(width, hidden, device)?).push(ReLU);
            width = hidden;
        }
        let model = model.push(Linear::new(width, self.goal.outputs(), device)?);
        qat::attached(model, self.training.qat)
    }
}

impl Task for Settings {
    type Args = TrainArgs;
    type Data = Data;

    of_examples!(Task);

    fn new(args: &TrainArgs) -> Result<Self> {
        Self::of_options(args)
    }

    fn title(&self) -> Vec<String> {
        vec![self.dataset().to_owned()]
    }

    fn load(&self) -> Result<Data> {
        match &self.data {
            Some(file) => Data::load(file, &self.reading).map_err(|error| match file.exists() {
                true => error,
                false => error.fix("bring it back, or say with --data where it is now"),
            }),
            None => Err(settings::no_file()),
        }
    }

    fn describe(&mut self, data: &Data) -> Result<()> {
        self.fit(data)
    }

    fn other_data(&self, found: &Self, path: &Path) -> Failure {
        let what = match found.rows == self.rows {
            true => "its cells differ".to_owned(),
            false => format!(
                "it had {} rows, and has {}",
                grouped(self.rows as u64),
                grouped(found.rows as u64)
            ),
        };
        Failure::new(format!(
            "{} is not the table that {} was trained on: {what}",
            self.place(),
            path.shown()
        ))
        .fix("bring it back, say with --data where it is now, or start a new run")
    }

    fn train(&self, data: &Self::Data, device: &Device, session: Session<'_>) -> Result<Trained> {
        session.fit(self, data, device)
    }

    fn metrics(&self, _device: &Device) -> Result<Vec<String>> {
        let names: &[&str] = match self.goal {
            Goal::Regress { .. } => &["mae", "rmse"],
            Goal::Either | Goal::Classify { .. } => &["accuracy"],
        };
        Ok(names.iter().map(|name| (*name).to_owned()).collect())
    }

    fn next(&self, path: &str) -> Vec<String> {
        vec![
            format!("polygrad eval {path}"),
            format!("polygrad predict {path} FILE.csv"),
        ]
    }
}

impl Batches for Settings {
    of_examples!(Batches);

    const JUDGED_BY: &'static str = "validation";

    fn resume(&mut self, args: &TrainArgs, fixed: &mut Fixed) -> Result<()> {
        let goal = match (args.classify, args.regress) {
            (true, _) => Some("classify"),
            (_, true) => Some("regress"),
            _ => None,
        };
        fixed.option("the goal", goal, self.goal.name());
        fixed.option("--target", args.target.as_deref(), &self.target);
        let ignored = Some(args.ignore.join(", ")).filter(|ignored| !ignored.is_empty());
        fixed.option("--ignore", ignored, self.ignored.join(", "));
        let given = |list: &[String]| Some(list.join(",")).filter(|list| !list.is_empty());
        let Reading {
            missing, categorical, ..
        } = &self.reading;
        fixed.option("--missing", given(&args.missing), missing.join(","));
        fixed.option("--categorical", given(&args.categorical), categorical.join(","));
        let decimal_comma = args.decimal_comma.then_some(true);
        fixed.option("--decimal-comma", decimal_comma, self.reading.decimal_comma);
        fixed.option("--validation-split", args.validation_split, self.validation_split);
        fixed.option("--optimizer", args.optimizer.map(name), name(self.optimizer));
        fixed.option("--qat", args.qat.then_some(true), self.training.qat);
        if let Some(file) = place(args.path.as_deref(), args.data.as_deref())? {
            self.data = Some(file);
        }
        Ok(())
    }

    fn dataset(&self) -> &str {
        Self::KIND.name()
    }

    fn place(&self) -> String {
        self.data.as_ref().map_or_else(String::new, |file| file.shown())
    }

    fn loaders(&self, data: &Data, device: &Device) -> Result<(DataLoader<Batch>, DataLoader<Batch>)> {
        let (train, held_out) = self.parts(data)?;
        Ok((
            self.loader(&train, &data.place, true, device)?,
            self.loader(&held_out, &data.place, false, device)?,
        ))
    }

    fn about(&self, data: &Data, model: &Sequential, device: &Device) -> Vec<String> {
        let held_out = self.held_out(data.table.rows());
        let goal = match &self.goal {
            Goal::Classify { classes } => format!("one of {} classes", classes.len()),
            _ => "a number".to_owned(),
        };
        vec![
            format!(
                "{}: {} training and {} validation rows; {} from {} columns is {goal}",
                self.place(),
                grouped((data.table.rows() - held_out) as u64),
                grouped(held_out as u64),
                self.target,
                self.columns.len()
            ),
            format!(
                "mlp{} of {} parameters with {}, batches of {}, learning rate {}, on {device}",
                qat::title(self.training.qat),
                grouped(model.num_parameters() as u64),
                name(self.optimizer),
                self.training.batch_size,
                short(self.training.lr)
            ),
        ]
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
        let optimizer = optimizer::build(self.optimizer, self.training.lr, model.parameters(), team)?;
        let options = options.schedule(optimizer::schedule(steps));
        Ok(match self.goal {
            Goal::Regress { std, .. } => options
                .metric(MeanAbsoluteError::new())
                .metric(RootMeanSquaredError::new())
                .build_captured(model, optimizer, move |model: &Sequential, (x, y): &Batch| {
                    let predicted = model.forward(x)?;
                    let loss = mse_loss(&predicted, y)?;
                    // Errors in the target's units do not depend on its mean.
                    Ok(Step::new(loss).outputs((predicted * std)?, &(y * std)?))
                })?,
            _ => options.metric(Accuracy::new()).build_captured(
                model,
                optimizer,
                |model: &Sequential, (x, labels): &Batch| {
                    let logits = model.forward(x)?;
                    Ok(Step::new(cross_entropy(&logits, labels)?).outputs(logits, labels))
                },
            )?,
        })
    }

    fn result(&self, last: &Row) -> String {
        match (&self.goal, &last.metrics[..]) {
            (Goal::Regress { .. }, &[mae, rmse]) => format!("validation mae {}, rmse {}", figure(mae), figure(rmse)),
            (_, metrics) => {
                let accuracy = metrics.first().copied().unwrap_or(f64::NAN);
                format!("validation accuracy {:.2} %", 100.0 * accuracy)
            }
        }
    }
}

/// A number with at most five significant digits.
fn figure(x: f64) -> String {
    short(format!("{x:.4e}").parse().unwrap_or(x))
}

/// The error for a model whose answers are NaN or infinite.
fn no_numbers(run: &Path) -> Failure {
    Failure::new(format!("the model of {} computes no numbers", run.shown()))
        .fix("look for very large numbers in the table; if there are none, train anew, perhaps with a lower --lr")
}
