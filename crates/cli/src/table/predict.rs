//! `polygrad predict` of runs on tables: the target of each row of a file, as CSV.

use polygrad::{Tensor, no_grad};

use super::data::{Data, EVALUATED, unfit};
use super::no_numbers;
use super::settings::{Goal, Settings};
use crate::args::Predict;
use crate::failure::{Failure, Result};
use crate::outcome::Outcome;
use crate::progress::give;
use crate::trained::{self, Trained};

/// Prints a header and then a prediction for each row, for classes with its probability.
///
/// # Errors
/// A run or a table that are missing or damaged, or do not fit together; those of the device.
pub(crate) fn command(args: &Predict) -> Result<Outcome> {
    if args.invert {
        return Err(Failure::new("--invert is for images, and this is a run of table").fix("leave it out"));
    }
    let trained = trained::load::<Settings>(&args.run, args.backend.as_deref(), args.threads)?;
    let Trained { config, device, model } = &trained;
    let data = Data::load(&args.input, &config.reading)?;
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
            let answer = model.forward(&x)?;
            Ok(match config.goal {
                Goal::Classify { .. } => answer.softmax(1)?.to_f64_vec()?,
                // With a large mean, an f32 would lose the relevant digits.
                Goal::Regress { mean, std } => answer.to_f64_vec()?.iter().map(|x| x * std + mean).collect(),
                Goal::Either => Vec::new(),
            })
        })?;
        if answers.iter().any(|x| !x.is_finite()) {
            return Err(no_numbers(&args.run));
        }
        let each = answers.chunks_exact(config.goal.outputs().max(1));
        lines.extend(each.map(|answer| match &config.goal {
            Goal::Regress { std, .. } => answer.iter().map(|&x| digits(x, *std)).collect(),
            Goal::Classify { classes } => {
                let likeliest = answer.iter().zip(classes).max_by(|a, b| a.0.total_cmp(b.0));
                let (probability, class) = likeliest.map_or((f64::NAN, ""), |(p, class)| (*p, class));
                format!("{},{probability:.4}", quoted(class))
            }
            Goal::Either => String::new(),
        }));
        give(&lines.join("\n"));
        lines.clear();
    }
    Ok(Outcome::Done)
}

/// A number with only as many digits as f32 arithmetic, scaled by `std`, can give.
fn digits(x: f64, std: f64) -> String {
    let decimals = (6.0 - std.log10()).max(0.0) as usize;
    let rounded: f64 = format!("{x:.decimals$}").parse().unwrap_or(x);
    rounded.to_string()
}

/// A cell quoted as in RFC 4180.
pub(crate) fn quoted(cell: &str) -> String {
    match cell.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_that_are_known() {
        assert_eq!(digits(1_700_000_123.456_789, 20.0), "1700000123.4568");
        assert_eq!(digits(321_430.812_5, 91_855.0), "321430.8");
        assert_eq!([digits(0.1 + 0.2, 1.0), digits(5e11, 1e12)], ["0.3", "500000000000"]);
        assert_eq!(digits(1.5e-9, 1e-9), "0.0000000015");
    }
}
