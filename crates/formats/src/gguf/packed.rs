//! Quantized numbers that stay packed.

use std::io::Read;

use polygrad_nn::HostBlocks;
use polygrad_nn::files::reserved;
use polygrad_tensor::{BlockScheme, DType, HostTensor, Result, Shape};

use super::block::{Block, half, nibbles, q6_part, q45_scales};

/// How numbers of a type are packed.
pub(crate) struct Form {
    bits: usize,
    size: usize,
    /// The dtype of the scales: f16 as in the file, or f32 if the file stores each as a product of two numbers.
    scales: DType,
    /// The zero point of all numbers; `None` if blocks have a minimum, and thus zero points of their own.
    zero: Option<u8>,
}

/// The parts read so far.
#[derive(Default)]
struct Parts {
    numbers: Vec<u8>,
    scales: Vec<f32>,
    zeros: Vec<f32>,
}

impl Parts {
    /// Adds numbers `q` that represent `d q`.
    fn scaled(&mut self, d: f32, numbers: impl Iterator<Item = u8>) {
        self.numbers.extend(numbers);
        self.scales.push(d);
    }

    /// Adds numbers `q` that represent `d q + min`.
    fn shifted(&mut self, d: f32, min: f32, numbers: impl Iterator<Item = u8>) {
        match d == 0.0 {
            false => {
                self.numbers.extend(numbers);
                self.scales.push(d);
                self.zeros.push(-min / d);
            }
            // All values are the minimum.
            true => {
                self.numbers.extend(numbers.map(|_| 0));
                self.scales.push(-min);
                self.zeros.push(1.0);
            }
        }
    }
}

impl Block {
    fn form(self) -> Option<Form> {
        let (bits, size, scales, zero) = match self {
            Self::Q4_0 => (4, 32, DType::F16, Some(8)),
            Self::Q4_1 => (4, 32, DType::F16, None),
            Self::Q8_0 => (8, 32, DType::F16, Some(128)),
            Self::Q4K => (4, 32, DType::F32, None),
            Self::Q6K => (8, 16, DType::F32, Some(32)),
            _ => return None,
        };
        Some(Form {
            bits,
            size,
            scales,
            zero,
        })
    }

    /// The form in which a tensor of this shape stays packed; `None` if it cannot.
    pub(crate) fn packed_form(self, shape: &Shape) -> Option<Form> {
        let form = self.form()?;
        matches!(*shape.dims(), [_, columns] if columns.is_multiple_of(form.size)).then_some(form)
    }

    /// Reads the blocks of a matrix without unpacking them; `None` for other tensors, and for types that do not support
    /// this.
    pub(crate) fn read_packed(self, shape: Shape, from: impl Read) -> Result<Option<HostBlocks>> {
        let (Some(form), &[rows, columns]) = (self.packed_form(&shape), shape.dims()) else {
            return Ok(None);
        };
        // llama.cpp also rounds the input that is multiplied by such a weight.
        let scheme = BlockScheme::new(form.bits, form.size)?.with_rounded_input(true);
        let mut parts = Parts {
            numbers: reserved(self.len())?,
            scales: reserved(shape.numel() / form.size)?,
            zeros: Vec::new(),
        };
        let mut bytes: Vec<u8> = reserved(shape.numel() / 8 * form.bits)?;
        self.each(shape, from, |block| {
            self.take(block, &mut parts);
            match form.bits {
                4 => bytes.extend(parts.numbers.chunks_exact(2).map(|pair| pair[0] | pair[1] << 4)),
                _ => bytes.extend(&parts.numbers),
            }
            parts.numbers.clear();
        })?;
        let of = |columns: usize| Shape::new(&[rows, columns]);
        let scales = HostTensor::new(of(columns / form.size)?, parts.scales)?.cast(form.scales);
        let zeros = match form.zero {
            Some(zero) => HostTensor::new(Shape::from([1]), vec![zero])?,
            None => HostTensor::new(of(columns / form.size)?, parts.zeros)?,
        };
        let bytes = HostTensor::new(of(columns / 8 * form.bits)?, bytes)?;
        HostBlocks::new([bytes, scales, zeros], scheme).map(Some)
    }

    /// Adds the numbers and scales of a block.
    fn take(self, block: &[u8], parts: &mut Parts) {
        match self {
            Self::Q4_0 => parts.scaled(half(block, 0), nibbles(&block[2..])),
            Self::Q4_1 => parts.shifted(half(block, 0), half(block, 2), nibbles(&block[4..])),
            // Signed in the file.
            Self::Q8_0 => parts.scaled(half(block, 0), block[2..].iter().map(|q| q ^ 128)),
            Self::Q4K => {
                let (d, min) = (half(block, 0), half(block, 2));
                for i in 0..8 {
                    let (scale, minimum) = q45_scales(block, i);
                    let part = &block[16 + 32 * (i / 2)..][..32];
                    let numbers = part.iter().map(|q| q >> (4 * (i % 2)) & 15);
                    parts.shifted(d * f32::from(scale), -(min * f32::from(minimum)), numbers);
                }
            }
            Self::Q6K => {
                let d = half(block, 208);
                for (i, &scale) in block[192..208].iter().enumerate() {
                    parts.scaled(d * f32::from(scale as i8), q6_part(block, i));
                }
            }
            other => unreachable!("{} has no form", other.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of a packed weight, from its parts.
    fn values(blocks: &HostBlocks) -> Vec<f64> {
        let [bytes, scales, zeros] = blocks.parts();
        let (scheme, scales, zeros) = (blocks.scheme(), scales.to_f64_vec(), zeros.to_f64_vec());
        let bytes = bytes.to_f64_vec().into_iter().map(|byte| byte as u8);
        let numbers: Vec<u8> = match scheme.bits() {
            4 => bytes.flat_map(|byte| [byte & 15, byte >> 4]).collect(),
            _ => bytes.collect(),
        };
        let value = |(i, number): (usize, u8)| {
            let block = i / scheme.size();
            (f64::from(number) - zeros[if zeros.len() == 1 { 0 } else { block }]) * scales[block]
        };
        numbers.into_iter().enumerate().map(value).collect()
    }

    #[test]
    fn packed_numbers_are_those_that_are_read() {
        for block in [Block::Q4_0, Block::Q4_1, Block::Q8_0, Block::Q4K, Block::Q6K] {
            let (rows, count) = (3, 2);
            let shape = Shape::from([rows, count * block.len()]);
            let mut bytes: Vec<u8> = (0..rows * count * block.size())
                .map(|i| (i * 151 + i / 7 * 89) as u8)
                .collect();
            let halves: &[usize] = match block {
                Block::Q6K => &[208],
                Block::Q4_1 | Block::Q4K => &[0, 2],
                _ => &[0],
            };
            for (i, part) in bytes.chunks_exact_mut(block.size()).enumerate() {
                for (j, &at) in halves.iter().enumerate() {
                    // One block whose scale is 0.
                    let half = if (i, j) == (4, 0) {
                        0.0
                    } else {
                        0.3 - 0.17 * (i + j) as f32
                    };
                    part[at..at + 2].copy_from_slice(&polygrad_core::f16::from_f32(half).to_le_bytes());
                }
            }
            let plain = block.read(shape, &*bytes).unwrap().to_f64_vec();
            let packed = block.read_packed(shape, &*bytes).unwrap().unwrap();
            let largest = plain.iter().fold(0.0f64, |a, b| a.max(b.abs()));
            for (i, (found, wanted)) in values(&packed).into_iter().zip(&plain).enumerate() {
                let off = (found - wanted).abs();
                assert!(off <= 1e-6 * largest, "{}: {found} for {wanted} at {i}", block.name());
            }
            assert!(
                block
                    .read_packed(Shape::from([rows, 1, count * block.len()]), &*bytes)
                    .unwrap()
                    .is_none()
            );
        }
        let bytes = vec![0; Block::Q5K.size()];
        assert!(
            Block::Q5K
                .read_packed(Shape::from([1, 256]), &*bytes)
                .unwrap()
                .is_none()
        );
    }
}
