//! `polygrad eval` of runs on tables: the accuracy of the model on rows that it was not trained on.

use polygrad::nn::Sequential;
use polygrad::no_grad;
use polygrad::train::{MeanAbsoluteError, Metric, R2Score, RootMeanSquaredError};

use super::data::Data;
use super::settings::{Goal, Settings};
use super::{figure, no_numbers};
use crate::args::Eval;
use crate::evaluation::evaluate;
use crate::failure::{Result, Shown};
use crate::outcome::Outcome;
use crate::progress::{grouped, say};
use crate::task::Task;
use crate::trained::{self, Trained};

/// Evaluates a run's model on the rows of its table that it was not trained on, or on all rows of `--data`.
///
/// # Errors
/// A run or a table that are missing or damaged, or do not fit together; those of the device.
pub(crate) fn command(args: &Eval) -> Result<Outcome> {
    let trained = trained::load::<Settings>(&args.run, args.backend.as_deref(), args.threads)?;
    let Trained { config, device, model } = &trained;
    let (table, place, what) = match args.data.place()? {
        Some(file) => {
            let data = Data::load(&file, &config.reading)?;
            config.must_know(&data)?;
            data.must_be_told(&config.target)?;
            (data.table, data.place, "rows")
        }
        None => {
            let data = config.load()?;
            let mut found = config.clone();
            found.fit(&data)?;
            if found != *config {
                return Err(config.other_data(&found, &args.run));
            }
            (config.parts(&data)?.1, data.place, "validation rows")
        }
    };
    let loader = config.loader(&table, &place, false, device)?;
    say(&format!(
        "{}: mlp on {} {what} of {place}, on {device}",
        args.run.shown(),
        grouped(table.rows() as u64),
    ));
    let Goal::Regress { mean, std } = config.goal else {
        let Goal::Classify { classes } = &config.goal else {
            return Ok(Outcome::Done);
        };
        let evaluation = evaluate(model, Sequential::forward, &loader, classes.len())?;
        if !evaluation.loss.is_finite() {
            return Err(no_numbers(&args.run));
        }
        evaluation.say(classes, "rows");
        return Ok(Outcome::Done);
    };
    let (mut mae, mut rmse, mut r2) = (MeanAbsoluteError::new(), RootMeanSquaredError::new(), R2Score::new());
    for batch in &loader {
        let (x, y) = batch?;
        let predicted = no_grad(|| model.forward(&x)? * std)?;
        let y = (y * std)?;
        for metric in [&mut mae as &mut dyn Metric, &mut rmse, &mut r2] {
            metric.update(&predicted, &y)?;
        }
    }
    if !mae.value().is_finite() {
        return Err(no_numbers(&args.run));
    }
    say(&format!(
        "mae {}  rmse {}  r2 {}; the target's mean at training was {}, its standard deviation {}",
        figure(mae.value()),
        figure(rmse.value()),
        match r2.value() {
            r2 if r2.is_finite() => format!("{r2:.4}"),
            _ => "- (the targets are all the same)".to_owned(),
        },
        figure(mean),
        figure(std)
    ));
    Ok(Outcome::Done)
}
