//! `polygrad eval` of finetuned models: their quality on examples that they were not trained on.

use polygrad::no_grad;
use polygrad::train::{Accuracy, Metric, Perplexity};

use super::Settings;
use super::goal::Goal;
use super::lines::Lines;
use crate::args::Eval;
use crate::evaluation::evaluate;
use crate::failure::{Failure, Result, Shown};
use crate::outcome::Outcome;
use crate::progress::{grouped, say};
use crate::task::Task;
use crate::trained::{self, Trained};

/// Evaluates a run's model on its validation examples, or on all lines of `--data`.
///
/// # Errors
/// If a run, a base or examples are missing, damaged or changed; if the model does not know a label; those of the
/// device.
pub(crate) fn command(args: &Eval) -> Result<Outcome> {
    let trained = trained::load::<Settings>(&args.run, args.backend.as_deref(), args.threads)?;
    let Trained { config, device, model } = &trained;
    let (lines, place) = match args.data.place()? {
        Some(file) => (Lines::judging(&file, config)?, file.shown()),
        None => {
            let lines = config.load()?;
            let mut found = config.clone();
            found.describe(&lines)?;
            if found != *config {
                return Err(config.other_data(&found, &args.run));
            }
            let place = config
                .validation
                .as_deref()
                .map_or("the end of the examples".to_owned(), Shown::shown);
            (lines, place)
        }
    };
    let loader = lines.validation(config, device)?;
    say(&format!(
        "{}: {} examples of {place}, on {device}",
        args.run.shown(),
        grouped(lines.counts[1] as u64),
    ));
    lines.cuts.iter().for_each(|line| say(line));
    if let Goal::Classify(labels) = &config.goal {
        let evaluation = evaluate(&**model, |model, x| model.logits(x), &loader, labels.len())?;
        must_be_numbers(evaluation.loss, args)?;
        evaluation.say(labels, "texts");
        return Ok(Outcome::Done);
    }
    let mut metric: Box<dyn Metric> = match config.goal {
        Goal::Text => Box::new(Perplexity::new()),
        Goal::Classify(_) | Goal::Embed => Box::new(Accuracy::new()),
    };
    let (mut loss, mut count) = (0.0, 0);
    for batch in &loader {
        let batch = batch?;
        let (mean, rows) = no_grad(|| -> Result<_> {
            let (mean, predictions, targets) = model.judged(&batch, config.rows())?;
            metric.update(&predictions, &targets)?;
            Ok((mean.item()?, batch.0.dims()[0]))
        })?;
        loss += mean * rows as f64;
        count += rows;
    }
    let loss = loss / count as f64;
    must_be_numbers(loss, args)?;
    say(&config.figure(loss, &[metric.value()]));
    Ok(Outcome::Done)
}

fn must_be_numbers(loss: f64, args: &Eval) -> Result<()> {
    match loss.is_finite() {
        true => Ok(()),
        false => Err(
            Failure::new(format!("the model of {} computes no numbers", args.run.shown()))
                .fix("train anew, perhaps with a lower --lr"),
        ),
    }
}
