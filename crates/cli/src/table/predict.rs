//! `polygrad predict` of runs on tables: the target of each row of a file, as CSV.

use polygrad::{Tensor, no_grad};

use super::data::{Data, EVALUATED, unfit};
use super::settings::{Goal, Settings};
use crate::args::Predict;
use crate::failure::{Failure, Result, Shown};
use crate::onnx::Exported;
use crate::outcome::Outcome;
use crate::progress::say;
use crate::trained::{self, Trained};

/// Prints a line of names and then a prediction for each row, of classes with its probability.
///
/// # Errors
/// A run or a table that are missing or damaged, or do not fit together; those of the device.
pub(crate) fn command(args: &Predict) -> Result<Outcome> {
    if args.invert {
        return Err(Failure::new("--invert is for images, and this is a run of table").fix("leave it out"));
    }
    let trained = trained::load::<Settings>(&args.run, args.backend.as_deref(), args.threads)?;
    let Trained { config, device, model } = &trained;
    let data = Data::load(&args.input)?;
    config.must_know(&data)?;
    let mut lines = vec![match config.goal {
        Goal::Classify { .. } => format!("{},probability", quoted(&config.target)),
        _ => quoted(&config.target),
    }];
    let rows: Vec<usize> = (0..data.table.rows()).collect();
    for rows in rows.chunks(EVALUATED) {
        let table = data.table.select(rows)?;
        let features = config.encoder()?.encode(&table).map_err(|e| unfit(&data.place, &e))?;
        let answers = no_grad(|| -> Result<Vec<f64>> {
            let x = Tensor::from_host(features, device)?;
            let answer = config.answer(model, &x)?;
            let answer = match config.goal {
                Goal::Classify { .. } => answer.softmax(1)?,
                _ => answer,
            };
            Ok(answer.to_f64_vec()?)
        })?;
        if answers.iter().any(|x| !x.is_finite()) {
            return Err(
                Failure::new(format!("the model of {} computes no numbers", args.run.shown()))
                    .fix("look for very large numbers in the table; if there are none, train anew, perhaps with a lower --lr"),
            );
        }
        let each = answers.chunks_exact(config.goal.outputs().max(1));
        lines.extend(each.map(|answer| match &config.goal {
            Goal::Classify { classes } => {
                let likeliest = answer.iter().zip(classes).max_by(|a, b| a.0.total_cmp(b.0));
                let (probability, class) = likeliest.map_or((f64::NAN, ""), |(p, class)| (*p, class));
                format!("{},{probability:.4}", quoted(class))
            }
            _ => answer.iter().map(|&x| (x as f32).to_string()).collect(),
        }));
        say(&lines.join("\n"));
        lines.clear();
    }
    Ok(Outcome::Done)
}

/// A cell as RFC 4180 has it.
fn quoted(cell: &str) -> String {
    match cell.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell.to_owned(),
    }
}
