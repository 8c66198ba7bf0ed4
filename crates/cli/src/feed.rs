//! Brings labelled images to a device in batches, in an order that depends on the seed and the epoch alone.

use polygrad::backend::philox4x32;
use polygrad::{Device, Tensor};

use crate::data::files::Split;
use crate::data::idx::Images;
use crate::failure::{Failure, Result};
use crate::run::config::Input;

/// Images and labels of one split, for a device.
#[derive(Debug)]
pub(crate) struct Feed<'a> {
    split: &'a Split,
    /// What the model sees for each value of a pixel.
    values: [f32; 256],
    device: &'a Device,
}

/// Images on a device, with their labels.
#[derive(Debug)]
pub(crate) struct Batch {
    /// `[N, channels, rows, cols]`, f32, normalised.
    pub(crate) images: Tensor,
    /// `[N]`, i64.
    pub(crate) labels: Tensor,
}

impl<'a> Feed<'a> {
    /// Feeds `split` to `device`, normalised as `input` says.
    pub(crate) fn new(split: &'a Split, input: &Input, device: &'a Device) -> Self {
        Self {
            split,
            values: std::array::from_fn(|pixel| input.normalise(pixel as f64)),
            device,
        }
    }

    /// How many images there are, at least 1.
    pub(crate) fn len(&self) -> usize {
        self.split.labels.len()
    }

    /// The label of an image; the index must be below [`Feed::len`].
    pub(crate) fn label(&self, index: u32) -> u8 {
        self.split.labels[index as usize]
    }

    /// The images at `indices`, which must be below [`Feed::len`], those for which `mirrored` holds with left and right swapped.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn batch(&self, indices: &[u32], mirrored: impl Fn(u32) -> bool) -> Result<Batch> {
        let images = &self.split.images;
        let (size, cols) = (images.image_len(), images.cols);
        let mut values = Vec::with_capacity(indices.len() * size);
        for &index in indices {
            let start = index as usize * size;
            let pixels = &images.pixels[start..start + size];
            let value = |&pixel: &u8| self.values[usize::from(pixel)];
            if mirrored(index) {
                for row in pixels.chunks_exact(cols) {
                    values.extend(row.iter().rev().map(value));
                }
            } else {
                values.extend(pixels.iter().map(value));
            }
        }
        let labels: Vec<i64> = indices.iter().map(|&i| i64::from(self.label(i))).collect();
        let shape = [indices.len(), images.channels, images.rows, images.cols];
        Ok(Batch {
            images: Tensor::from_vec(values, shape, self.device)?,
            labels: Tensor::from_vec(labels, [indices.len()], self.device)?,
        })
    }
}

/// The mean and the standard deviation of all pixels, where 0 is black and 1 is white.
///
/// # Errors
/// Images that are all of one colour, from which there is nothing to learn.
pub(crate) fn statistics(images: &Images) -> Result<(f64, f64)> {
    let mut counts = [0_u64; 256];
    images.pixels.iter().for_each(|&pixel| counts[usize::from(pixel)] += 1);
    let total = images.pixels.len() as f64;
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

/// The chance decisions of one epoch. They depend on the seed and the epoch alone, so a run that resumes in the middle of one makes
/// the same again.
#[derive(Debug)]
pub(crate) struct Epoch {
    seed: u64,
    /// The first of this epoch's counters. The top bit keeps them apart from those of the thread's generator, which begin at 0.
    counter: u64,
}

impl Epoch {
    /// Epoch number `epoch`, below 2³⁰.
    pub(crate) fn new(seed: u64, epoch: usize) -> Self {
        Self {
            seed,
            counter: 1 << 63 | (epoch as u64) << 33,
        }
    }

    /// The numbers below `count` in random order, by Fisher and Yates's shuffle (Durstenfeld, CACM algorithm 235).
    pub(crate) fn order(&self, count: usize) -> Vec<u32> {
        let mut order: Vec<u32> = (0..count as u32).collect();
        for last in (1..count).rev() {
            let [high, low, ..] = philox4x32(self.seed, self.counter + last as u64);
            let random = u128::from(u64::from(high) << 32 | u64::from(low));
            order.swap(last, ((random * (last as u128 + 1)) >> 64) as usize);
        }
        order
    }

    /// Whether the image `index` is shown mirrored: half of them are.
    pub(crate) fn mirrors(&self, index: u32) -> bool {
        philox4x32(self.seed, self.counter + (1 << 32) + u64::from(index))[0] & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split() -> Split {
        Split {
            images: Images {
                pixels: vec![0, 51, 102, 153, 204, 255, 255, 255, 0, 0, 255, 0],
                count: 2,
                channels: 1,
                rows: 2,
                cols: 3,
            },
            labels: vec![4, 9],
        }
    }

    #[test]
    fn batches_are_normalised_and_mirrored() {
        let device = Device::new("cpu").unwrap();
        let split = split();
        let input = Input {
            channels: 1,
            rows: 2,
            cols: 3,
            mean: 0.2,
            std: 0.4,
        };
        let feed = Feed::new(&split, &input, &device);
        let batch = feed.batch(&[1, 0, 0], |i| i == 1).unwrap();
        assert_eq!(batch.images.dims(), [3, 1, 2, 3]);
        assert_eq!(batch.labels.to_vec::<i64>().unwrap(), [9, 4, 4]);
        let values = batch.images.to_vec::<f32>().unwrap();
        let (black, white) = (-0.5, 2.0);
        let expected = [
            black, white, white, black, white, black, black, 0.0, 0.5, 1.0, 1.5, white,
        ];
        for (value, expected) in values.iter().zip(expected) {
            assert!((value - expected).abs() < 1e-6, "{values:?}");
        }
        assert_eq!(values[6..12], values[12..]);
    }

    #[test]
    fn statistics_are_those_of_the_pixels() {
        let mut images = split().images;
        images.pixels = vec![0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255];
        assert_eq!(statistics(&images).unwrap(), (0.5, 0.5));
        images.pixels.fill(7);
        assert!(statistics(&images).unwrap_err().to_string().contains("same value"));
    }

    #[test]
    fn every_epoch_has_an_order_of_its_own() {
        let order = |seed, epoch| Epoch::new(seed, epoch).order(1000);
        let mut sorted = order(1, 0);
        assert_eq!(sorted, order(1, 0));
        assert_ne!(sorted, order(1, 1));
        assert_ne!(sorted, order(2, 0));
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..1000));
        // Over many epochs each place sees each number about equally often.
        let sum: u32 = (0..4000).map(|epoch| Epoch::new(3, epoch).order(5)[0]).sum();
        assert!((7600..8400).contains(&sum), "{sum}");
        let epoch = Epoch::new(1, 0);
        let mirrored = (0..10_000).filter(|&i| epoch.mirrors(i)).count();
        assert!((4700..5300).contains(&mirrored), "{mirrored}");
    }
}
