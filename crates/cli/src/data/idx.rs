//! Reads IDX, the file format of MNIST and its relatives, plain or gzip-compressed.
//!
//! The format (<http://yann.lecun.com/exdb/mnist/>): two zero bytes, a type code, the rank, one big-endian `u32` per
//! dimension, then the elements in row-major order. All data sets of this family hold unsigned bytes (type code 8).

use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use polygrad::nn::open_file;

use crate::failure::{Failure, Result, Shown};

/// No deflate stream expands further than this, so a header that promises more is a lie.
const MAX_DEFLATE_RATIO: u64 = 1032;

/// Grey or multi-channel images of one size, as bytes in the order `[count, channels, rows, cols]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Images {
    /// `count * channels * rows * cols` bytes, 0 is black.
    pub(crate) pixels: Vec<u8>,
    /// How many images there are, at least 1.
    pub(crate) count: usize,
    /// 1 for a file of rank 3, the second dimension of a file of rank 4.
    pub(crate) channels: usize,
    /// The height of an image in pixels.
    pub(crate) rows: usize,
    /// The width of an image in pixels.
    pub(crate) cols: usize,
}

impl Images {
    /// The number of bytes in one image.
    pub(crate) fn image_len(&self) -> usize {
        self.channels * self.rows * self.cols
    }

    /// Swaps the rows and columns of every image.
    pub(crate) fn transpose(&mut self) {
        let (rows, cols) = (self.rows, self.cols);
        let mut turned = vec![0; rows * cols];
        for plane in self.pixels.chunks_exact_mut(rows * cols) {
            for (i, &pixel) in plane.iter().enumerate() {
                turned[(i % cols) * rows + i / cols] = pixel;
            }
            plane.copy_from_slice(&turned);
        }
        (self.rows, self.cols) = (cols, rows);
    }
}

/// Reads images: rank 3 `[count, rows, cols]` or rank 4 `[count, channels, rows, cols]`, unsigned bytes.
///
/// # Errors
/// A file that is missing, truncated, corrupt, too long, empty, of another type or of another rank.
pub(crate) fn read_images(path: &Path) -> Result<Images> {
    let (dims, pixels) = read(path, "images", &[3, 4])?;
    let (count, channels, rows, cols) = match dims[..] {
        [count, rows, cols] => (count, 1, rows, cols),
        [count, channels, rows, cols] => (count, channels, rows, cols),
        _ => return Err(bad(path, "has an impossible rank")),
    };
    Ok(Images {
        pixels,
        count,
        channels,
        rows,
        cols,
    })
}

/// Reads labels: rank 1, unsigned bytes.
///
/// # Errors
/// As for [`read_images`].
pub(crate) fn read_labels(path: &Path) -> Result<Vec<u8>> {
    Ok(read(path, "labels", &[1])?.1)
}

fn read(path: &Path, holds: &str, ranks: &[u8]) -> Result<(Vec<usize>, Vec<u8>)> {
    let (file, length) = open_file(path)?;
    let mut plain = BufReader::with_capacity(1 << 16, file);
    let begin = plain.fill_buf().map_err(|e| Failure::io("read", path, &e))?;
    let gzip = begin.starts_with(&[0x1f, 0x8b]);
    if gzip {
        let most = length.saturating_mul(MAX_DEFLATE_RATIO);
        parse(path, &mut MultiGzDecoder::new(plain), most, holds, ranks)
    } else {
        parse(path, &mut plain, length, holds, ranks)
    }
}

/// Reads one IDX file from `source`, which cannot yield more than `most` bytes.
fn parse(path: &Path, source: &mut dyn Read, most: u64, holds: &str, ranks: &[u8]) -> Result<(Vec<usize>, Vec<u8>)> {
    let mut magic = [0; 4];
    source
        .read_exact(&mut magic)
        .map_err(|e| broken(path, &e, "ends inside its header"))?;
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
        .fix("images and labels may have been swapped: check the file names"));
    }
    let mut dims = Vec::with_capacity(usize::from(rank));
    for _ in 0..rank {
        let mut dim = [0; 4];
        source
            .read_exact(&mut dim)
            .map_err(|e| broken(path, &e, "ends inside its header"))?;
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
            Failure::new(format!(
                "{} needs {expected} bytes of memory, which are not to be had",
                path.shown()
            ))
        })?;
    source
        .take(expected)
        .read_to_end(&mut bytes)
        .map_err(|e| broken(path, &e, "ends too early"))?;
    if (bytes.len() as u64) < expected {
        return Err(bad(
            path,
            &format!(
                "is truncated: its header promises {dims:?} = {expected} bytes, it holds {}",
                bytes.len()
            ),
        ));
    }
    // Reading on to the end also makes the decoder compare gzip's own checksum.
    match source.read(&mut [0]) {
        Ok(0) => Ok(bytes),
        Ok(_) => Err(bad(
            path,
            &format!("is corrupt: it goes on after the {expected} bytes that its header {dims:?} promises"),
        )),
        Err(e) => Err(broken(path, &e, "ends too early")),
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

/// A failed read in the middle of a file: the end came too soon, or the compressed stream is damaged.
fn broken(path: &Path, error: &std::io::Error, early: &str) -> Failure {
    match error.kind() {
        ErrorKind::UnexpectedEof => bad(path, &format!("is truncated: it {early}")),
        ErrorKind::InvalidData | ErrorKind::InvalidInput => {
            bad(path, &format!("is corrupt: its gzip stream is damaged ({error})"))
        }
        _ => Failure::io("read", path, error),
    }
}

fn bad(path: &Path, what: &str) -> Failure {
    Failure::new(format!("{} {what}", path.shown())).fix("get the file anew from the data set's home")
}
