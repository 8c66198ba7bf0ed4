//! `polygrad predict` of runs on images: the classes of a picture by a trained model.

use polygrad::backend::printable;
use polygrad::data::Image;
use polygrad::{Device, Tensor, no_grad};

use super::config::{Config, Input};
use super::settings::IMAGES;
use super::{loaders, picture};
use crate::args::Predict;
use crate::failure::{Failure, Result, Shown};
use crate::outcome::Outcome;
use crate::progress::{note, say};
use crate::trained::{self, Trained};

/// Prints the classes with their probabilities, the most likely one first.
///
/// # Errors
/// A run or a picture that is missing or damaged; those of the device.
pub(crate) fn command(args: &Predict) -> Result<Outcome> {
    let trained = trained::load::<Config>(&args.run, args.backend.as_deref(), args.threads)?;
    let Trained { config, device, model } = &trained;
    rank(
        args,
        &config.input,
        &config.classes,
        config.dataset == IMAGES,
        device,
        |x| model.forward(x),
    )
}

/// Prints the classes of a picture by a model. `resized` says whether the model's images were resized to its shape.
///
/// # Errors
/// A picture that is missing or damaged; a model whose results are not numbers; errors of the device.
pub(crate) fn rank(
    args: &Predict,
    input: &Input,
    classes: &[String],
    resized: bool,
    device: &Device,
    forward: impl Fn(&Tensor) -> polygrad::Result<Tensor>,
) -> Result<Outcome> {
    let probabilities = no_grad(|| -> Result<Vec<f64>> {
        let x = match resized {
            true => as_in_training(args, input, device)?,
            false => in_the_middle(args, input, device)?,
        };
        Ok(forward(&x)?.softmax(1)?.to_f64_vec()?)
    })?;
    if probabilities.iter().any(|p| !p.is_finite()) {
        return Err(
            Failure::new(format!("the model of {} computes no numbers", args.run.shown()))
                .fix("its training went wrong, or its files were changed: train anew, perhaps with a lower --lr"),
        );
    }
    let mut ranking: Vec<(f64, &String)> = probabilities.into_iter().zip(classes).collect();
    ranking.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (probability, class) in ranking {
        say(&format!("{:>6.2} %  {}", 100.0 * probability, printable(class)));
    }
    Ok(Outcome::Done)
}

/// An image as in training on a folder: resized to the model's shape.
fn as_in_training(args: &Predict, input: &Input, device: &Device) -> Result<Tensor> {
    let image = Image::open(&args.input)?.to_rgb().resize(input.rows, input.cols)?;
    let image = match args.invert {
        true => {
            let swapped = image.pixels().iter().map(|pixel| 255 - pixel).collect();
            Image::new(image.channels(), image.height(), image.width(), swapped)?
        }
        false => image,
    };
    let seen = Tensor::from_host(loaders::normalize(input)?.apply(&image)?, device)?;
    Ok(seen.unsqueeze(0)?)
}

/// A picture made like those of an IDX file: complete and centred.
fn in_the_middle(args: &Predict, input: &Input, device: &Device) -> Result<Tensor> {
    let picture = picture::load(&args.input, input.channels, input.rows, input.cols, args.invert)?;
    if picture.light_ground {
        note(if args.invert {
            "once inverted, this picture has a light background; if the training images are light on dark, leave \
             --invert out"
        } else {
            "this picture has a light background; if the training images are light on dark, add --invert"
        });
    }
    let values: Vec<f32> = picture
        .values
        .iter()
        .map(|&value| input.normalise(f64::from(value)))
        .collect();
    let shape = [1, input.channels, input.rows, input.cols];
    Ok(Tensor::from_vec(values, shape, device)?)
}
