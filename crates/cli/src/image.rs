//! Turns a PNG file of any size and colour into the small image that a model was trained on.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use png::{ColorType, Decoder, Limits, Transformations};

use crate::failure::{Failure, Result};

/// Larger images are refused before any memory is taken for them.
const MAX_BYTES: usize = 128 << 20;

/// Planes of values 0 to 255, in the order `[channels, rows, cols]`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Picture {
    /// The values, `channels * rows * cols` of them.
    pub(crate) values: Vec<f32>,
    /// Whether the border is brighter than mid-grey. The images of the MNIST family are light on a dark ground, so this
    /// one probably wants inverting.
    pub(crate) light_ground: bool,
}

/// An image as it was read: 1 (grey) or 3 (red, green, blue) values 0 to 255 per pixel.
struct Raster {
    values: Vec<f32>,
    channels: usize,
    rows: usize,
    cols: usize,
}

/// Loads the PNG file at `path` as `channels` planes (1: grey, 3: red, green and blue) of `rows` × `cols`.
///
/// Colours become grey by ITU-R BT.601 luma, transparent parts become black, 16 bits become 8. A picture that is not of
/// the right shape is set in the middle of a ground of its own border's mean, then every pixel of the result is the mean
/// of the area that it covers. `invert` swaps light and dark.
///
/// # Errors
/// A file that is missing, is no PNG, is damaged or is beyond 128 MiB when decoded; a number of channels other than 1
/// and 3.
pub(crate) fn load(path: &Path, channels: usize, rows: usize, cols: usize, invert: bool) -> Result<Picture> {
    if channels != 1 && channels != 3 {
        return Err(Failure::new(format!(
            "the model was trained on images of {channels} channels, a PNG has 1 or 3"
        )));
    }
    let mut raster = decode(path)?;
    if invert {
        raster.values.iter_mut().for_each(|v| *v = 255.0 - *v);
    }
    let planes = if channels == 1 {
        vec![raster.grey()]
    } else {
        (0..3).map(|c| raster.plane(c)).collect()
    };
    let border = planes.iter().map(|p| border_mean(p, raster.rows, raster.cols));
    let grounds: Vec<f32> = border.collect();
    let mut values = Vec::with_capacity(channels * rows * cols);
    for (plane, &ground) in planes.iter().zip(&grounds) {
        values.extend(fit(plane, (raster.rows, raster.cols), (rows, cols), ground));
    }
    Ok(Picture {
        values,
        light_ground: grounds.iter().sum::<f32>() / grounds.len() as f32 > 127.5,
    })
}

fn decode(path: &Path) -> Result<Raster> {
    let bad = |e: png::DecodingError| {
        let failure = match e {
            png::DecodingError::IoError(e) if e.kind() != std::io::ErrorKind::UnexpectedEof => {
                Failure::io("read", path, &e)
            }
            png::DecodingError::LimitsExceeded => Failure::new(format!(
                "{} is too large: it would take more than {} MiB",
                path.display(),
                MAX_BYTES >> 20
            )),
            e => Failure::new(format!("{} is no whole PNG file: {e}", path.display())),
        };
        failure.fix("give a PNG file; other formats can be converted, for example with `magick in.jpg out.png`")
    };
    let file = File::open(path).map_err(|e| Failure::io("read", path, &e))?;
    let mut decoder = Decoder::new_with_limits(BufReader::new(file), Limits { bytes: MAX_BYTES });
    decoder.set_transformations(Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().map_err(bad)?;
    let size = reader
        .output_buffer_size()
        .filter(|&size| size <= MAX_BYTES)
        .ok_or_else(|| bad(png::DecodingError::LimitsExceeded))?;
    let mut bytes = vec![0; size];
    let info = reader.next_frame(&mut bytes).map_err(bad)?;
    let (cols, rows) = (info.width as usize, info.height as usize);
    let samples = info.color_type.samples();
    let colours = match info.color_type {
        ColorType::Rgb | ColorType::Rgba => 3,
        _ => 1,
    };
    let mut values = Vec::with_capacity(rows * cols * colours);
    for pixel in bytes[..info.buffer_size()].chunks_exact(samples) {
        // What follows the colours is the opacity; the ground behind is black.
        let opacity = pixel.get(colours).map_or(1.0, |&a| f32::from(a) / 255.0);
        values.extend(pixel[..colours].iter().map(|&c| f32::from(c) * opacity));
    }
    Ok(Raster {
        values,
        channels: colours,
        rows,
        cols,
    })
}

impl Raster {
    fn grey(&self) -> Vec<f32> {
        if self.channels == 1 {
            return self.values.clone();
        }
        self.values
            .chunks_exact(3)
            .map(|p| 0.299 * p[0] + 0.587 * p[1] + 0.114 * p[2])
            .collect()
    }

    fn plane(&self, channel: usize) -> Vec<f32> {
        let channel = channel.min(self.channels - 1);
        self.values.chunks_exact(self.channels).map(|p| p[channel]).collect()
    }
}

fn border_mean(plane: &[f32], rows: usize, cols: usize) -> f32 {
    let on_border = |i: &usize| {
        let (r, c) = (i / cols, i % cols);
        r == 0 || c == 0 || r + 1 == rows || c + 1 == cols
    };
    let (mut sum, mut count) = (0.0, 0.0);
    for i in (0..plane.len()).filter(on_border) {
        sum += plane[i];
        count += 1.0;
    }
    sum / f32::max(count, 1.0)
}

/// Averages areas of `plane`, after padding it with `ground` to the proportions of `to`.
fn fit(plane: &[f32], from: (usize, usize), to: (usize, usize), ground: f32) -> Vec<f32> {
    // The side of one target pixel, in source pixels: the larger of the two ratios makes the whole picture fit.
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
                    sum += height * width * plane[r * from.1 + c];
                    covered += height * width;
                }
            }
            out.push(sum + (1.0 - covered) * ground);
        }
    }
    out
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
#[path = "image_tests.rs"]
mod tests;
