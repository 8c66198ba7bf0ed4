//! `polygrad predict` of runs on images: what a trained model sees in a picture.

use polygrad::backend::printable;
use polygrad::{Tensor, no_grad};

use super::config::Config;
use super::picture;
use crate::args::Predict;
use crate::failure::{Failure, Result, Shown};
use crate::outcome::Outcome;
use crate::progress::{note, say};
use crate::trained;

/// Prints the classes with their probabilities, the most likely one first.
///
/// # Errors
/// A run or a picture that is missing or damaged; those of the device.
pub(crate) fn command(args: &Predict) -> Result<Outcome> {
    let trained = trained::load::<Config>(&args.run, args.backend.as_deref(), args.threads)?;
    let input = &trained.config.input;
    let picture = picture::load(&args.input, input.channels, input.rows, input.cols, args.invert)?;
    if picture.light_ground {
        note(if args.invert {
            "the ground of this picture is light once it is inverted; if the images of training are light on dark, leave --invert out"
        } else {
            "the ground of this picture is light; if the images of training are light on dark, add --invert"
        });
    }
    let values: Vec<f32> = picture
        .values
        .iter()
        .map(|&value| input.normalise(f64::from(value)))
        .collect();
    let shape = [1, input.channels, input.rows, input.cols];
    let probabilities = no_grad(|| -> Result<Vec<f64>> {
        let x = Tensor::from_vec(values, shape, &trained.device)?;
        Ok(trained.model.forward(&x)?.softmax(1)?.to_f64_vec()?)
    })?;
    if probabilities.iter().any(|p| !p.is_finite()) {
        return Err(
            Failure::new(format!("the model of {} computes no numbers", args.run.shown()))
                .fix("its training went wrong, or its files were changed: train anew, perhaps with a lower --lr"),
        );
    }
    let mut ranking: Vec<(f64, &String)> = probabilities.into_iter().zip(&trained.config.classes).collect();
    ranking.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (probability, class) in ranking {
        say(&format!("{:>6.2} %  {}", 100.0 * probability, printable(class)));
    }
    Ok(Outcome::Done)
}
