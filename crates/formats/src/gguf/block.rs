//! Quantized numbers: blocks of small integers with scales, and their conversion to f32.
//!
//! Source: ggml's `ggml/src/ggml-quants.c`, the functions `dequantize_row_*`, and `ggml-common.h`. The order of the
//! operations is theirs, and none is fused with the next, so the numbers are the same to the bit.

use std::io::Read;

use polygrad_core::f16;
use polygrad_nn::files::{reserved, unreadable};
use polygrad_tensor::{HostTensor, Result, Shape};

/// Approximate number of bytes read at a time.
const PIECE: usize = 1 << 16;

/// A block type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Block {
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2K,
    Q3K,
    Q4K,
    Q5K,
    Q6K,
}

impl Block {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Q4_0 => "Q4_0",
            Self::Q4_1 => "Q4_1",
            Self::Q5_0 => "Q5_0",
            Self::Q5_1 => "Q5_1",
            Self::Q8_0 => "Q8_0",
            Self::Q2K => "Q2_K",
            Self::Q3K => "Q3_K",
            Self::Q4K => "Q4_K",
            Self::Q5K => "Q5_K",
            Self::Q6K => "Q6_K",
        }
    }

    /// Number of values in a block.
    pub(crate) const fn len(self) -> usize {
        match self {
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Q8_0 => 32,
            _ => 256,
        }
    }

    /// Number of bytes in a block.
    pub(crate) const fn size(self) -> usize {
        match self {
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q8_0 => 34,
            Self::Q2K => 84,
            Self::Q3K => 110,
            Self::Q4K => 144,
            Self::Q5K => 176,
            Self::Q6K => 210,
        }
    }

    /// Reads the blocks of a tensor of this shape as f32.
    pub(crate) fn read(self, shape: Shape, from: impl Read) -> Result<HostTensor> {
        let mut values: Vec<f32> = reserved(shape.numel())?;
        self.each(shape, from, |block| self.unpack(block, &mut values))?;
        HostTensor::new(shape, values)
    }

    /// Reads the blocks of a tensor of this shape, one after another.
    pub(super) fn each(self, shape: Shape, mut from: impl Read, mut f: impl FnMut(&[u8])) -> Result<()> {
        let mut blocks = shape.numel() / self.len();
        let most = PIECE / self.size();
        let mut piece = vec![0; blocks.min(most) * self.size()];
        while blocks > 0 {
            let count = blocks.min(most);
            let bytes = &mut piece[..count * self.size()];
            from.read_exact(bytes).map_err(unreadable)?;
            bytes.chunks_exact(self.size()).for_each(&mut f);
            blocks -= count;
        }
        Ok(())
    }

    /// Appends the numbers of a block, which is [`Block::size`] long.
    fn unpack(self, block: &[u8], values: &mut Vec<f32>) {
        match self {
            Self::Q4_0 => {
                let (d, qs) = (half(block, 0), &block[2..]);
                values.extend(nibbles(qs).map(|q| (q as i32 - 8) as f32 * d));
            }
            Self::Q4_1 => {
                let (d, m, qs) = (half(block, 0), half(block, 2), &block[4..]);
                values.extend(nibbles(qs).map(|q| f32::from(q) * d + m));
            }
            Self::Q5_0 => {
                let (d, high, qs) = (half(block, 0), &block[2..6], &block[6..]);
                values.extend(fifth(qs, high).map(|q| (q as i32 - 16) as f32 * d));
            }
            Self::Q5_1 => {
                let (d, m, high, qs) = (half(block, 0), half(block, 2), &block[4..8], &block[8..]);
                values.extend(fifth(qs, high).map(|q| f32::from(q) * d + m));
            }
            Self::Q8_0 => {
                let d = half(block, 0);
                values.extend(block[2..].iter().map(|&q| f32::from(q as i8) * d));
            }
            Self::Q2K => q2_k(block, values),
            Self::Q3K => q3_k(block, values),
            Self::Q4K => q45_k(block, None, &block[16..], values),
            Self::Q5K => q45_k(block, Some(&block[16..48]), &block[48..], values),
            Self::Q6K => q6_k(block, values),
        }
    }
}

/// The half-precision number at offset `at` of a block.
pub(super) fn half(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// The low nibbles of all bytes, then the high ones.
pub(super) fn nibbles(qs: &[u8]) -> impl Iterator<Item = u8> {
    qs.iter().map(|q| q & 15).chain(qs.iter().map(|q| q >> 4))
}

/// As [`nibbles`], with a fifth bit for each from four further bytes.
fn fifth(qs: &[u8], high: &[u8]) -> impl Iterator<Item = u8> {
    nibbles(qs)
        .enumerate()
        .map(|(i, q)| q | (high[i / 8] >> (i % 8) & 1) << 4)
}

/// 16 scales of 4 bits with minima of 4 bits, 256 numbers of 2 bits.
fn q2_k(block: &[u8], values: &mut Vec<f32>) {
    let (scales, qs) = (&block[..16], &block[16..80]);
    let (d, min) = (half(block, 80), half(block, 82));
    for (i, &scale) in scales.iter().enumerate() {
        let (dl, ml) = (d * f32::from(scale & 15), min * f32::from(scale >> 4));
        let part = sixteenth(qs, i);
        values.extend(part.iter().map(|q| dl * f32::from(q >> shift(i) & 3) - ml));
    }
}

/// 16 scales of 6 bits, 256 numbers of 2 bits, with a third bit stored separately.
fn q3_k(block: &[u8], values: &mut Vec<f32>) {
    let (mask, qs, packed) = (&block[..32], &block[32..96], &block[96..108]);
    let d = half(block, 108);
    for i in 0..16 {
        let low = packed[i % 8] >> (4 * (i / 8)) & 15;
        let high = packed[8 + i % 4] >> (2 * (i / 4)) & 3;
        let dl = d * f32::from((low | high << 4) as i8 - 32);
        let part = sixteenth(qs, i);
        let bits = &mask[16 * (i % 2)..][..16];
        values.extend(part.iter().zip(bits).map(|(q, bit)| {
            let q = (q >> shift(i) & 3) as i8;
            let less = if bit >> (i / 2) & 1 == 0 { 4 } else { 0 };
            dl * f32::from(q - less)
        }));
    }
}

/// The bytes that contain the `i`-th sixteenth of a block of 2-bit numbers.
fn sixteenth(qs: &[u8], i: usize) -> &[u8] {
    &qs[32 * (i / 8) + 16 * (i % 2)..][..16]
}

fn shift(i: usize) -> usize {
    i % 8 / 2 * 2
}

/// 8 scales and minima of 6 bits, 256 numbers of 4 bits, and in some types a fifth bit stored separately.
fn q45_k(block: &[u8], high: Option<&[u8]>, qs: &[u8], values: &mut Vec<f32>) {
    let (d, min) = (half(block, 0), half(block, 2));
    for i in 0..8 {
        let (scale, minimum) = q45_scales(block, i);
        let (dl, ml) = (d * f32::from(scale), min * f32::from(minimum));
        let part = &qs[32 * (i / 2)..][..32];
        values.extend(part.iter().enumerate().map(|(l, q)| {
            let fifth = high.map_or(0, |high| (high[l] >> i & 1) << 4);
            dl * f32::from((q >> (4 * (i % 2)) & 15) + fifth) - ml
        }));
    }
}

/// The `i`-th of the 8 scales and minima of 6 bits.
pub(super) fn q45_scales(block: &[u8], i: usize) -> (u8, u8) {
    let packed = &block[4..16];
    match i {
        0..4 => (packed[i] & 63, packed[i + 4] & 63),
        _ => (
            packed[i + 4] & 15 | packed[i - 4] >> 6 << 4,
            packed[i + 4] >> 4 | packed[i] >> 6 << 4,
        ),
    }
}

/// 16 scales of 8 bits, 256 numbers of 6 bits, stored as four and two.
fn q6_k(block: &[u8], values: &mut Vec<f32>) {
    let d = half(block, 208);
    for (i, &scale) in block[192..208].iter().enumerate() {
        let dl = d * f32::from(scale as i8);
        values.extend(q6_part(block, i).map(|q| dl * f32::from(q as i8 - 32)));
    }
}

/// The numbers that belong to the `i`-th scale.
pub(super) fn q6_part(block: &[u8], i: usize) -> impl Iterator<Item = u8> {
    // 128 numbers in four rows of 32, each with two scales.
    let (part, row, column) = (i / 8, i % 8 / 2, 16 * (i % 2));
    let low = &block[64 * part + 32 * (row % 2) + column..][..16];
    let high = &block[128 + 32 * part + column..][..16];
    let number = move |(low, high): (&u8, &u8)| low >> (4 * (row / 2)) & 15 | (high >> (2 * row) & 3) << 4;
    low.iter().zip(high).map(number)
}
