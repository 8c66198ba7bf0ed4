//! Labelled images in batches.

use std::sync::Arc;

use polygrad::backend::HostTensor;
use polygrad::data::{DataLoader, DataLoaderConfig, Dataset, Normalize};
use polygrad::{Device, Shape};

use super::config::{Config, Input};
use crate::data::files::Split;
use crate::failure::{Failure, Result};
use crate::task::Batch;

/// Large enough to keep all cores busy, small enough for their caches.
const EVALUATED: usize = 250;

/// The images of `split`, `[N, channels, rows, cols]`, f32, normalised, with labels `[N]`, i64, in an order that
/// depends only on the seed and the epoch. If the settings say so, half of them are mirrored.
///
/// # Errors
/// Invalid settings.
pub(crate) fn training(split: &Split, config: &Config, device: &Device) -> Result<DataLoader<Batch>> {
    let (normalize, mirror) = (normalize(&config.input)?, config.mirror);
    let labels: Vec<i64> = split.labels.iter().map(|&label| label as i64).collect();
    // With a tensor it is known whether other processes have the same one.
    let labels = HostTensor::new(Shape::from([labels.len()]), labels)?;
    let images = DataLoaderConfig::new(Arc::clone(&split.images).zip(labels)?)
        .batch_size(config.training.batch_size)
        .shuffle(config.training.seed)
        .workers(split.workers);
    let seen = images.transform(move |(image, label), rng| {
        let image = match mirror {
            true => image.random_horizontal_flip(0.5, rng),
            false => image,
        };
        Ok((normalize.apply(&image)?, label))
    });
    Ok(seen.build(device)?)
}

/// The images of `split` in order, without augmentation.
///
/// # Errors
/// Invalid settings.
pub(crate) fn evaluation(split: &Split, input: &Input, device: &Device) -> Result<DataLoader<Batch>> {
    let normalize = normalize(input)?;
    let images = DataLoaderConfig::new(Arc::clone(&split.images).zip(Arc::clone(&split.labels))?);
    let seen = images.transform(move |(image, label), _| Ok((normalize.apply(&image)?, label)));
    Ok(seen.batch_size(EVALUATED).workers(split.workers).build(device)?)
}

/// The normalization of images for the model.
///
/// # Errors
/// Invalid settings.
pub(super) fn normalize(input: &Input) -> Result<Normalize> {
    Ok(Normalize::new(&[input.mean as f32], &[input.std as f32])?)
}

/// The number of images that are sampled if files have to be read.
const SAMPLED: usize = 1000;

/// The mean and the standard deviation of all pixels, where 0 is black and 1 is white.
///
/// # Errors
/// Images that cannot be read, or that are all of one colour, from which there is nothing to learn.
pub(crate) fn statistics(split: &Split) -> Result<(f64, f64)> {
    let step = match split.workers {
        0 => 1,
        _ => split.labels.len().div_ceil(SAMPLED),
    };
    let mut counts = [0_u64; 256];
    for index in (0..split.labels.len()).step_by(step) {
        let image = split.images.example(index)?;
        image.pixels().iter().for_each(|&pixel| counts[usize::from(pixel)] += 1);
    }
    let total = counts.iter().sum::<u64>() as f64;
    let expectation = |f: &dyn Fn(f64) -> f64| -> f64 {
        let weighed = counts
            .iter()
            .enumerate()
            .map(|(pixel, &n)| f(pixel as f64 / 255.0) * n as f64);
        weighed.sum::<f64>() / total
    };
    let mean = expectation(&|x| x);
    let std = expectation(&|x| (x - mean).powi(2)).sqrt();
    if std > 0.0 {
        Ok((mean, std))
    } else {
        Err(Failure::new("every pixel of the training images has the same value")
            .fix("give images that show something"))
    }
}

#[cfg(test)]
mod tests {
    use polygrad::data::Image;

    use super::*;

    fn split(pixels: &[u8]) -> Split {
        let image = |pixels: &[u8]| Image::new(1, 2, 3, pixels.to_vec()).unwrap();
        Split {
            images: Arc::new(pixels.chunks(6).map(image).collect::<Vec<_>>()),
            labels: Arc::new(vec![4, 9]),
            shape: [1, 2, 3],
            workers: 0,
        }
    }

    #[test]
    fn images_are_normalised() {
        let device = Device::new("cpu").unwrap();
        let split = split(&[0, 51, 102, 153, 204, 255, 255, 255, 0, 0, 255, 0]);
        let input = Input {
            channels: 1,
            rows: 2,
            cols: 3,
            mean: 0.2,
            std: 0.4,
        };
        let loader = evaluation(&split, &input, &device).unwrap();
        let (x, labels) = loader.iter().next().unwrap().unwrap();
        assert_eq!(x.dims(), [2, 1, 2, 3]);
        assert_eq!(labels.to_vec::<i64>().unwrap(), [4, 9]);
        let values = x.to_vec::<f32>().unwrap();
        let (black, white) = (-0.5, 2.0);
        let expected = [
            black, 0.0, 0.5, 1.0, 1.5, white, white, white, black, black, white, black,
        ];
        for (value, expected) in values.iter().zip(expected) {
            assert!((value - expected).abs() < 1e-6, "{values:?}");
        }
    }

    #[test]
    fn statistics_are_those_of_the_pixels() {
        let halves = [0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255];
        assert_eq!(statistics(&split(&halves)).unwrap(), (0.5, 0.5));
        let error = statistics(&split(&[7; 12])).unwrap_err().to_string();
        assert!(error.contains("same value"), "{error}");
    }
}
