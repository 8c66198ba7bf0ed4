use polygrad_core::{DType, f16};

use super::*;
use crate::Kernels;

/// Numbers without a pattern, from 0 to below 1.
pub(super) fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mixed = |i: u64| (i + seed * 1_000_003 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (0..count as u64)
        .map(|i| (mixed(i) >> 40) as f32 / (1u64 << 24) as f32)
        .collect()
}

/// Scales as f16, and zero points; `zeros` of length 1 holds a single one for all blocks.
fn factors(scales: &[f16], zeros: &[u8]) -> (Factors, Factors) {
    let scales = Factors::new(DType::F16, scales.as_ptr().cast(), false).unwrap();
    let zeros = Factors::new(DType::U8, zeros.as_ptr(), zeros.len() == 1).unwrap();
    (scales, zeros)
}

/// Rows of `columns` elements, of which `word` stay together, in the order of [`BlockScheme`].
fn interleaved<T: Copy>(rows: &[T], columns: usize, word: usize) -> Vec<T> {
    let group = |rows: &[T]| -> Vec<T> {
        let words = (0..columns).step_by(word);
        let at = words.flat_map(|at| (0..BlockScheme::ROWS).map(move |row| row * columns + at));
        at.flat_map(|at| rows[at..at + word].iter().copied()).collect()
    };
    rows.chunks_exact(BlockScheme::ROWS * columns).flat_map(group).collect()
}

pub(super) struct Given {
    pub(super) scheme: BlockScheme,
    pub(super) n: usize,
    pub(super) k: usize,
    bytes: Vec<u8>,
    scales: Vec<f16>,
    zeros: Vec<u8>,
    /// A single zero point of all numbers, instead of `zeros`.
    pub(super) zero: Option<f32>,
}

impl Given {
    pub(super) fn new(bits: usize, size: usize, n: usize, blocks: usize, each: bool) -> Self {
        let scheme = BlockScheme::new(bits, size).unwrap();
        let (k, most) = (blocks * size, (1 << bits) as f32);
        let scale = |x: &f32| f16::from_f32((x - 0.3) / most);
        let zeros = numbers(n * blocks, 3).iter().map(|x| (x * most) as u8).collect();
        Self {
            scheme,
            n,
            k,
            bytes: numbers(n * k * bits / 8, 1).iter().map(|x| (x * 256.0) as u8).collect(),
            scales: numbers(n * blocks, 2).iter().map(scale).collect(),
            zeros: if each { zeros } else { vec![scheme.centre()] },
            zero: None,
        }
    }

    /// Calls `f` with the weight in the form that products take.
    pub(super) fn with(&self, f: impl FnOnce(&Weight)) {
        self.weight(false, f);
    }

    /// The same weight with interleaved rows, whose number must be a multiple of 16.
    pub(super) fn interleaved(&self) -> Self {
        let row = |part: usize| part / self.n;
        let zeros = match self.zeros.len() {
            1 => self.zeros.clone(),
            len => interleaved(&self.zeros, row(len), 1),
        };
        Self {
            bytes: interleaved(&self.bytes, row(self.bytes.len()), BlockScheme::WORD),
            scales: interleaved(&self.scales, row(self.scales.len()), 1),
            zeros,
            ..*self
        }
    }

    /// Calls `f` with the weight, whose rows may be interleaved.
    pub(super) fn weight(&self, interleaved: bool, f: impl FnOnce(&Weight)) {
        // Copies the bytes to 32-bit words, so that they are aligned.
        let words: Vec<u32> = self
            .bytes
            .as_chunks()
            .0
            .iter()
            .map(|&word| u32::from_le_bytes(word))
            .collect();
        let (scales, mut zeros) = factors(&self.scales, &self.zeros);
        if let Some(zero) = &self.zero {
            zeros = Factors::new(DType::F32, std::ptr::from_ref(zero).cast(), true).unwrap();
        }
        f(&Weight {
            bytes: words.as_ptr().cast(),
            n: self.n,
            k: self.k,
            interleaved,
            scheme: self.scheme,
            scales,
            zeros,
        });
    }

    /// Makes a block's scale NaN.
    pub(super) fn spoil(&mut self, block: usize) {
        self.scales[block] = f16::NAN;
    }

    /// The scale of a number of the weight.
    pub(super) fn scale(&self, row: usize, column: usize) -> f64 {
        f64::from(self.scales[(row * self.k + column) / self.scheme.size()])
    }

    /// A number of the weight.
    pub(super) fn get(&self, row: usize, column: usize) -> f64 {
        let at = row * self.k + column;
        let number = match self.scheme.bits() {
            4 => self.bytes[at / 2] >> (at % 2 * 4) & 15,
            _ => self.bytes[at],
        };
        let block = at / self.scheme.size();
        let zero = if self.zeros.len() == 1 {
            self.zeros[0]
        } else {
            self.zeros[block]
        };
        let zero = self.zero.map_or(f64::from(zero), f64::from);
        (f64::from(number) - zero) * f64::from(self.scales[block])
    }
}

/// Compares each level, with one thread and with three, with the definition. The scales are f16, the zero points u8.
fn check(given: &Given, m: usize) {
    let Given { scheme, n, k, .. } = *given;
    for (threads, level) in [1, 3]
        .into_iter()
        .flat_map(|threads| Level::available().into_iter().map(move |l| (threads, l)))
    {
        let device = CpuDevice::new(threads, Kernels::Simd).unwrap();
        for transposed in [false, true] {
            let (inner, outer) = if transposed { (n, k) } else { (k, n) };
            let x: Vec<f32> = numbers(m * inner, 4).iter().map(|x| x * 2.0 - 0.8).collect();
            let mut c = vec![f32::NAN; m * outer];
            // SAFETY: all buffers have the right sizes.
            given.with(|weight| unsafe {
                weight
                    .product(device, level, (m, transposed), x.as_ptr(), c.as_mut_ptr())
                    .unwrap();
            });
            for (at, &found) in c.iter().enumerate() {
                let (i, j) = (at / outer, at % outer);
                let terms = (0..inner).map(|p| {
                    let w = if transposed { given.get(p, j) } else { given.get(j, p) };
                    f64::from(x[i * inner + p]) * w
                });
                let (wanted, size) = terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()));
                let off = (f64::from(found) - wanted).abs();
                assert!(
                    off <= 1e-6 * size + 1e-30,
                    "{scheme:?} [{m}, {n}, {k}] {level:?} {transposed}: {found} for {wanted}"
                );
            }
        }
    }
}

#[test]
fn products_are_those_of_the_numbers() {
    for (bits, size, n, blocks) in [
        (4, 32, 9, 19),
        (4, 16, 37, 3),
        (4, 256, 5, 2),
        (8, 32, 6, 5),
        (8, 16, 3, 11),
        (8, 128, 4, 2),
    ] {
        for each in [false, true] {
            let given = Given::new(bits, size, n, blocks, each);
            for m in [1, 2, 5, 16, 17, 33] {
                check(&given, m);
            }
        }
    }
    // More rows than have their scales converted at a time, and more numbers than a block of a float product.
    check(&Given::new(4, 32, 261, 37, true), 1);
    check(&Given::new(4, 32, 40, 37, true), 19);
}

/// A NaN scale only affects its row.
#[test]
fn what_is_no_number_stays_in_its_row() {
    let mut given = Given::new(4, 32, 8, 3, false);
    given.spoil(9);
    let device = CpuDevice::new(1, Kernels::Simd).unwrap();
    for level in Level::available() {
        let mut c = [0f32; 8];
        // SAFETY: all buffers have the right sizes.
        given.with(|weight| unsafe {
            weight
                .product(device, level, (1, false), [1f32; 96].as_ptr(), c.as_mut_ptr())
                .unwrap()
        });
        let is_nan: Vec<bool> = c.iter().map(|y| y.is_nan()).collect();
        assert_eq!(
            is_nan,
            [false, false, false, true, false, false, false, false],
            "{level:?}"
        );
    }
}
