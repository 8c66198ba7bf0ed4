//! Turns a PNG or JPEG file of any size and colour into the small image that a model was trained on.

use std::path::Path;

use polygrad::ErrorKind;
use polygrad::data::Image;

use crate::failure::{Failure, Result};

/// The hint for files in other formats.
const FORMATS: &str = "give a PNG or JPEG file; others can be converted, for example with `magick in.webp out.png`";

/// Planes of values 0 to 255, in the order `[channels, rows, cols]`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Picture {
    /// The values, `channels * rows * cols` of them.
    pub(crate) values: Vec<f32>,
    /// Whether the border is brighter than mid-grey. The images of the MNIST family are light on a dark ground, so this
    /// picture probably needs inverting.
    pub(crate) light_ground: bool,
}

/// A decoded image.
struct Raster {
    image: Image,
    /// Whether light and dark are swapped.
    invert: bool,
}

/// Which value of a pixel is used.
#[derive(Clone, Copy)]
enum Plane {
    Grey,
    Colour(usize),
}

/// Loads the PNG or JPEG file at `path` as `channels` planes (1: grey, 3: red, green and blue) of `rows` × `cols`.
///
/// Colours become grey by ITU-R BT.601 luma, transparent parts become black, 16 bits become 8. A picture with other
/// proportions is centred on a ground of the mean of its own border. Then every pixel of the result is the mean of the
/// area that it covers. `invert` swaps light and dark.
///
/// # Errors
/// A file that is missing, has another format, is damaged or exceeds 128 MiB when decoded; a number of channels other
/// than 1 and 3.
pub(crate) fn load(path: &Path, channels: usize, rows: usize, cols: usize, invert: bool) -> Result<Picture> {
    if channels != 1 && channels != 3 {
        return Err(Failure::new(format!(
            "the model was trained on images of {channels} channels, a PNG has 1 or 3"
        )));
    }
    let image = decode(path)?;
    let raster = Raster { image, invert };
    let planes = match channels {
        1 => vec![Plane::Grey],
        _ => [0, 1, 2].map(Plane::Colour).to_vec(),
    };
    let grounds: Vec<f32> = planes.iter().map(|&plane| raster.border_mean(plane)).collect();
    let mut values = Vec::with_capacity(channels * rows * cols);
    for (&plane, &ground) in planes.iter().zip(&grounds) {
        values.extend(raster.fit(plane, (rows, cols), ground));
    }
    Ok(Picture {
        values,
        light_ground: grounds.iter().sum::<f32>() / grounds.len() as f32 > 127.5,
    })
}

fn decode(path: &Path) -> Result<Image> {
    Image::open_on_black(path).map_err(|error| match error.kind() {
        ErrorKind::Format => Failure::new(error.message()).fix(FORMATS),
        _ => error.into(),
    })
}

impl Raster {
    /// The value of a pixel, 0 to 255.
    fn at(&self, plane: Plane, row: usize, col: usize) -> f32 {
        let colours = self.image.channels();
        let at = (row * self.image.width() + col) * colours;
        let pixel = &self.image.pixels()[at..at + colours];
        let value = |colour: usize| {
            let value = f32::from(pixel[colour]);
            if self.invert { 255.0 - value } else { value }
        };
        match plane {
            Plane::Colour(colour) => value(colour.min(colours - 1)),
            Plane::Grey if colours == 1 => value(0),
            Plane::Grey => 0.299 * value(0) + 0.587 * value(1) + 0.114 * value(2),
        }
    }

    fn border_mean(&self, plane: Plane) -> f32 {
        let (rows, cols) = (self.image.height(), self.image.width());
        let (last_row, last_col) = (rows.saturating_sub(1), cols.saturating_sub(1));
        let (mut sum, mut count) = (0.0, 0.0);
        for row in 0..rows {
            // The first and last rows completely, of the rows between them the two ends.
            let step = match row == 0 || row == last_row {
                true => 1,
                false => last_col.max(1),
            };
            for col in (0..cols).step_by(step) {
                sum += f64::from(self.at(plane, row, col));
                count += 1.0;
            }
        }
        (sum / f64::max(count, 1.0)) as f32
    }

    /// Averages areas of a plane, after padding it with `ground` to the proportions of `to`.
    fn fit(&self, plane: Plane, to: (usize, usize), ground: f32) -> Vec<f32> {
        let from = (self.image.height(), self.image.width());
        // The side of one target pixel in source pixels: the larger of the two ratios, so that the whole picture fits.
        let side = f64::max(from.0 as f64 / to.0 as f64, from.1 as f64 / to.1 as f64);
        let spans = |from: usize, to: usize| -> Vec<Vec<(usize, f32)>> {
            let offset = (from as f64 - side * to as f64) / 2.0;
            (0..to)
                .map(|i| overlaps(offset + side * i as f64, side, from))
                .collect()
        };
        let (rows, cols) = (spans(from.0, to.0), spans(from.1, to.1));
        let mut out = Vec::with_capacity(to.0 * to.1);
        for row in &rows {
            for col in &cols {
                let (mut sum, mut covered) = (0.0, 0.0);
                for &(r, height) in row {
                    for &(c, width) in col {
                        sum += height * width * self.at(plane, r, c);
                        covered += height * width;
                    }
                }
                out.push(sum + (1.0 - covered) * ground);
            }
        }
        out
    }
}

/// The source pixels that `start .. start + side` touches, each with the share of the interval that it fills.
fn overlaps(start: f64, side: f64, len: usize) -> Vec<(usize, f32)> {
    let end = start + side;
    let first = start.max(0.0).floor() as usize;
    (first..len)
        .take_while(|&i| (i as f64) < end)
        .map(|i| {
            let shared = end.min(i as f64 + 1.0) - start.max(i as f64);
            (i, (shared / side) as f32)
        })
        .filter(|&(_, share)| share > 0.0)
        .collect()
}

#[cfg(test)]
#[path = "picture_tests.rs"]
mod tests;
