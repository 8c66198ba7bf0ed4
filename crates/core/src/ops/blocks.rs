//! Block-quantized weights.

use crate::{DType, Error, Result, Shape};

/// How the numbers of a quantized weight are packed into bytes, and how many consecutive ones share a scale: the scheme
/// of [`Backend::quantized_linear`](crate::Backend::quantized_linear).
///
/// Numbers are unsigned and have 8 or 4 bits. A byte holds two numbers of 4 bits, the first in its lower half. The size
/// of a block is a power of two, at least 16. A row of the weight consists of whole blocks.
///
/// Rows follow one another: bytes `[n, k · bits / 8]`, scales and zero points `[n, k / size]`. Or they are
/// *interleaved*, sixteen at a time: bytes `[n / 16, k · bits / 32, 64]`, the first four bytes of each of sixteen rows,
/// then the next four of each, and scales and zero points `[n / 16, k / size, 16]`. Rows so interleaved are the lanes
/// of a register.
///
/// The input is used as it is, unless the scheme [allows rounding it](Self::with_rounded_input).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockScheme {
    bits: u8,
    rounds_input: bool,
    size: u32,
}

impl BlockScheme {
    /// Rows that are interleaved.
    pub const ROWS: usize = 16;
    /// Bytes of a row that stay together where rows are interleaved.
    pub const WORD: usize = 4;
    /// Blocks of 32 numbers of 4 bits, as GGUF's Q4_0 and Q4_1 have them.
    pub const Q4: Self = Self::exact(4, 32);
    /// Blocks of 32 numbers of 8 bits, as GGUF's Q8_0 has them.
    pub const Q8: Self = Self::exact(8, 32);

    /// Blocks of `size` numbers of `bits` bits.
    ///
    /// # Errors
    /// When `bits` is neither 4 nor 8, or `size` is not a power of two of at least 16.
    pub fn new(bits: usize, size: usize) -> Result<Self> {
        let fits = u32::try_from(size)
            .ok()
            .filter(|size| *size >= 16 && size.is_power_of_two());
        match (bits, fits) {
            (4 | 8, Some(size)) => Ok(Self::exact(bits as u8, size)),
            _ => Err(Error::invalid(format!(
                "blocks of {size} numbers of {bits} bits: they have 4 or 8 bits, and a power of two of numbers \
                 from 16 on"
            ))),
        }
    }

    const fn exact(bits: u8, size: u32) -> Self {
        Self {
            bits,
            rounds_input: false,
            size,
        }
    }

    /// Whether a backend may round the input to numbers of 8 bits, symmetric about 0, with a scale for each block of
    /// the same size as the weight's, as llama.cpp does: products of integers are several times as fast. Default:
    /// false. Backends without such products, gradients and transposed products take the input as it is.
    #[must_use]
    pub const fn with_rounded_input(self, rounds_input: bool) -> Self {
        Self { rounds_input, ..self }
    }

    /// Whether [the input may be rounded](Self::with_rounded_input).
    pub const fn rounds_input(self) -> bool {
        self.rounds_input
    }

    /// Bits of a number: 4 or 8.
    pub const fn bits(self) -> usize {
        self.bits as usize
    }

    /// Numbers of a block.
    pub const fn size(self) -> usize {
        self.size as usize
    }

    /// Bytes of a block.
    pub const fn bytes(self) -> usize {
        self.size() / 8 * self.bits()
    }

    /// How many numbers this many bytes hold.
    pub const fn numbers(self, bytes: usize) -> usize {
        bytes.saturating_mul(8 / self.bits())
    }

    /// The zero point of numbers that are symmetric about 0.
    pub const fn centre(self) -> u8 {
        1 << (self.bits - 1)
    }

    /// The weight's shape `[n, k]`, from the shapes of its bytes, its scales and its zero points, which are `[1]` or as
    /// many as the scales. All parts with rows are interleaved, or none.
    ///
    /// # Errors
    /// When these shapes do not fit each other.
    pub fn shape(self, weight: &Shape, scales: &Shape, zeros: &Shape) -> Result<[usize; 2]> {
        const WORDS: usize = BlockScheme::ROWS * BlockScheme::WORD;
        let (n, bytes) = match *weight.dims() {
            [n, bytes] => (n, bytes),
            [groups, words, WORDS] => (groups * Self::ROWS, words * Self::WORD),
            _ => {
                return Err(Error::shape(format!(
                    "the weight's bytes have shape {weight}, not [out, bytes], or [out / 16, words, 64] if \
                     interleaved"
                )));
            }
        };
        let Self { bits, size, .. } = self;
        if !bytes.is_multiple_of(self.bytes()) {
            return Err(Error::shape(format!(
                "rows of {bytes} bytes are not made of blocks of {size} numbers of {bits} bits"
            )));
        }
        let [plain, interleaved] = [
            [n, bytes / self.bytes(), 1],
            [n / Self::ROWS, bytes / self.bytes(), Self::ROWS],
        ];
        let blocks = match weight.rank() {
            2 => &plain[..2],
            _ => &interleaved,
        };
        if scales.dims() != blocks {
            return Err(Error::shape(format!(
                "scales of shape {scales} for {blocks:?} blocks of {size}"
            )));
        }
        if zeros.dims() != [1] && zeros.dims() != blocks {
            return Err(Error::shape(format!(
                "zero points of shape {zeros}: they are [1], or one for each of {blocks:?} blocks of {size}"
            )));
        }
        Ok([n, self.numbers(bytes)])
    }

    /// Fails unless a weight's bytes are u8, its scales a float dtype, and its zero points u8 or a float dtype.
    ///
    /// # Errors
    /// When one has another dtype.
    pub fn check_dtypes(self, [weight, scales, zeros]: [DType; 3]) -> Result<()> {
        if weight != DType::U8 {
            return Err(Error::dtype(format!("the weight's bytes are {weight}, not u8")));
        }
        if !scales.is_float() {
            return Err(Error::dtype(format!("scales are {scales}, and must be floats")));
        }
        match zeros == DType::U8 || zeros.is_float() {
            true => Ok(()),
            false => Err(Error::dtype(format!(
                "zero points are {zeros}, and must be u8 or floats"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_say_what_fits() {
        for (bits, size) in [(3, 32), (4, 8), (8, 48), (4, 0)] {
            let error = BlockScheme::new(bits, size).unwrap_err().to_string();
            assert!(
                error.contains(&format!("blocks of {size} numbers of {bits} bits")),
                "{error}"
            );
        }
        let scheme = BlockScheme::new(4, 64).unwrap();
        assert_eq!((scheme.bytes(), scheme.numbers(96), scheme.centre()), (32, 192, 8));
        let shape = |weight: [usize; 2], scales: [usize; 2], zeros: &[usize]| {
            scheme.shape(&weight.into(), &scales.into(), &Shape::new(zeros).unwrap())
        };
        assert_eq!(shape([3, 96], [3, 3], &[1]).unwrap(), [3, 192]);
        // Interleaved rows: all parts, or none.
        let lanes = Shape::from([2, 24, 64]);
        let blocks = Shape::from([2, 3, 16]);
        let of = |scales: &Shape, zeros: &Shape| scheme.shape(&lanes, scales, zeros);
        assert_eq!(of(&blocks, &Shape::from([1])).unwrap(), [32, 192]);
        assert_eq!(of(&blocks, &blocks).unwrap(), [32, 192]);
        assert!(of(&Shape::from([32, 3]), &Shape::from([1])).is_err());
        assert!(of(&blocks, &Shape::from([32, 3])).is_err());
        let wide = scheme.shape(&Shape::from([2, 24, 32]), &blocks, &blocks).unwrap_err();
        assert!(wide.to_string().contains("[out / 16, words, 64]"));
        assert_eq!(shape([3, 96], [3, 3], &[3, 3]).unwrap(), [3, 192]);
        assert!(
            shape([3, 80], [3, 3], &[1])
                .unwrap_err()
                .to_string()
                .contains("80 bytes")
        );
        assert!(shape([3, 96], [3, 2], &[1]).unwrap_err().to_string().contains("[3, 2]"));
        assert!(shape([3, 96], [3, 3], &[3]).unwrap_err().to_string().contains("[3]"));
    }
}
