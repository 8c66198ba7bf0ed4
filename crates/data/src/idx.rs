//! Reads IDX, the file format of MNIST and its relatives, plain or gzip-compressed.
//!
//! The format (<http://yann.lecun.com/exdb/mnist/>): two zero bytes, a type code, the rank, one big-endian `u32` per
//! dimension, then the elements in row-major order. All data sets of this family hold unsigned bytes (type code 8).

use std::io::Read;
use std::path::Path;

use polygrad_core::{Error, ErrorKind, Result};

use crate::dataset::{Dataset, fingerprint};
use crate::image::{Image, bad as damaged};
use crate::input::{self, Input};

#[cfg(feature = "gzip")]
/// The largest expansion of a deflate stream; a header that promises more must be wrong.
const MAX_DEFLATE_RATIO: u64 = 1032;

/// The images of an IDX file, plain or gzip-compressed, in memory. An example is an [`Image`]; labels are
/// read by [`Idx::labels`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idx {
    /// `count * channels * height * width` bytes, 0 is black.
    pixels: Vec<u8>,
    count: usize,
    channels: usize,
    height: usize,
    width: usize,
}

impl Idx {
    /// Reads images: rank 3 `[count, height, width]` or rank 4 `[count, channels, height, width]`, unsigned bytes.
    ///
    /// # Errors
    /// A file that is missing, truncated, corrupt, too long, empty, of another type or of another rank.
    pub fn images(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let (dims, pixels) = read(path, "images", &[3, 4])?;
        let (count, channels, height, width) = match dims[..] {
            [count, height, width] => (count, 1, height, width),
            [count, channels, height, width] => (count, channels, height, width),
            _ => return Err(bad(path, "has an impossible rank")),
        };
        Ok(Self {
            pixels,
            count,
            channels,
            height,
            width,
        })
    }

    /// Reads labels: rank 1, unsigned bytes.
    ///
    /// # Errors
    /// As for [`Idx::images`].
    pub fn labels(path: impl AsRef<Path>) -> Result<Vec<usize>> {
        let bytes = read(path.as_ref(), "labels", &[1])?.1;
        Ok(bytes.into_iter().map(usize::from).collect())
    }

    /// Channels of each image; 1 for a file of rank 3.
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// Height of each image, in pixels.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Width of each image, in pixels.
    pub fn width(&self) -> usize {
        self.width
    }

    /// All images one after another: for each its channels, for each channel its rows.
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    /// Swaps the rows and columns of every image, which EMNIST's files need.
    pub fn transpose(&mut self) {
        let (height, width) = (self.height, self.width);
        let mut turned = vec![0; height * width];
        for plane in self.pixels.chunks_exact_mut(height * width) {
            for (i, &pixel) in plane.iter().enumerate() {
                turned[(i % width) * height + i / width] = pixel;
            }
            plane.copy_from_slice(&turned);
        }
        (self.height, self.width) = (width, height);
    }
}

impl Dataset for Idx {
    type Item = Image;

    fn len(&self) -> usize {
        self.count
    }

    fn example(&self, index: usize) -> Result<Image> {
        let area = self.height * self.width;
        let planes = &self.pixels[index * self.channels * area..][..self.channels * area];
        let pixels = match self.channels {
            1 => planes.to_vec(),
            channels => (0..area)
                .flat_map(|at| (0..channels).map(move |channel| planes[channel * area + at]))
                .collect(),
        };
        Image::new(self.channels, self.height, self.width, pixels)
    }

    fn fingerprint(&self) -> Option<u64> {
        Some(fingerprint(&(self.channels, self.height, self.width, &self.pixels)))
    }
}

fn read(path: &Path, holds: &str, ranks: &[u8]) -> Result<(Vec<usize>, Vec<u8>)> {
    let (mut input, length) = Input::open(path)?;
    let most = match input {
        Input::Plain(_) => length,
        #[cfg(feature = "gzip")]
        Input::Gzip(_) => length.saturating_mul(MAX_DEFLATE_RATIO),
    };
    parse(path, &mut input, most, holds, ranks)
}

/// Reads one IDX file from `source`, which cannot yield more than `most` bytes.
fn parse(path: &Path, source: &mut dyn Read, most: u64, holds: &str, ranks: &[u8]) -> Result<(Vec<usize>, Vec<u8>)> {
    let mut magic = [0; 4];
    source
        .read_exact(&mut magic)
        .map_err(|e| broken(path, e, "ends inside its header"))?;
    let [0, 0, kind, rank] = magic else {
        return Err(bad(
            path,
            &format!("is no IDX file: it starts with the bytes {magic:02x?}, not with 00 00"),
        ));
    };
    if kind != 8 {
        return Err(bad(
            path,
            &format!("holds {}, but {holds} are unsigned bytes (code 0x08)", type_name(kind)),
        ));
    }
    if !ranks.contains(&rank) {
        return Err(bad(
            path,
            &format!("has rank {rank}, but a file of {holds} has rank {}", list(ranks)),
        )
        .with_hint("images and labels may have been swapped: check the file names"));
    }
    let mut dims = Vec::with_capacity(usize::from(rank));
    for _ in 0..rank {
        let mut dim = [0; 4];
        source
            .read_exact(&mut dim)
            .map_err(|e| broken(path, e, "ends inside its header"))?;
        dims.push(u32::from_be_bytes(dim));
    }
    if dims.contains(&0) {
        return Err(bad(path, &format!("holds no {holds}: its header says {dims:?}")));
    }
    let promised = dims.iter().try_fold(1_u64, |n, &d| n.checked_mul(u64::from(d)));
    let header = 4 + 4 * dims.len() as u64;
    let room = most.saturating_sub(header);
    let Some(expected) = promised.filter(|&n| n <= room) else {
        return Err(bad(
            path,
            &format!("is truncated or corrupt: its header promises {dims:?} bytes, the file can hold at most {room}"),
        ));
    };
    let bytes = read_exactly(path, source, expected, &dims)?;
    Ok((dims.into_iter().map(|d| d as usize).collect(), bytes))
}

fn read_exactly(path: &Path, source: &mut dyn Read, expected: u64, dims: &[u32]) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    usize::try_from(expected)
        .ok()
        .and_then(|n| bytes.try_reserve_exact(n).ok())
        .ok_or_else(|| {
            Error::new(
                ErrorKind::OutOfMemory,
                format!(
                    "{} needs {expected} bytes of memory, which are not to be had",
                    path.display()
                ),
            )
        })?;
    source
        .take(expected)
        .read_to_end(&mut bytes)
        .map_err(|e| broken(path, e, "ends too early"))?;
    if (bytes.len() as u64) < expected {
        return Err(bad(
            path,
            &format!(
                "is truncated: its header promises {dims:?} = {expected} bytes, it holds {}",
                bytes.len()
            ),
        ));
    }
    // Reading to the end also makes the decoder check gzip's checksum.
    match source.read(&mut [0]) {
        Ok(0) => Ok(bytes),
        Ok(_) => Err(bad(
            path,
            &format!("is corrupt: it goes on after the {expected} bytes that its header {dims:?} promises"),
        )),
        Err(e) => Err(broken(path, e, "ends too early")),
    }
}

fn type_name(kind: u8) -> String {
    match kind {
        0x09 => "signed bytes (code 0x09)".into(),
        0x0b => "16-bit integers (code 0x0b)".into(),
        0x0c => "32-bit integers (code 0x0c)".into(),
        0x0d => "32-bit floats (code 0x0d)".into(),
        0x0e => "64-bit floats (code 0x0e)".into(),
        _ => format!("elements of the unknown type code 0x{kind:02x}"),
    }
}

fn list(ranks: &[u8]) -> String {
    let words: Vec<String> = ranks.iter().map(u8::to_string).collect();
    words.join(" or ")
}

fn bad(path: &Path, what: &str) -> Error {
    anew(damaged(path, what))
}

fn broken(path: &Path, error: std::io::Error, early: &str) -> Error {
    anew(input::broken(path, error, early))
}

fn anew(error: Error) -> Error {
    error.with_hint("get the file anew from the data set's home")
}

#[cfg(test)]
#[path = "idx_tests.rs"]
mod tests;
