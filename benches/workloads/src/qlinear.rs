//! `qlinear`: a linear layer whose weight stays packed in blocks of 32 numbers, compared with an f32 layer.

use polygrad_tensor::{Backend, BlockScheme, DType, Device, Prepack, Result, Tensor, f16, inference};

use crate::Prepared;
use crate::case::Amount;
use crate::data::{INPUT, TARGET, noise};
use crate::extents::Extents;

/// Rows, outputs and inputs, and the kind of weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QLinear {
    of: [usize; 3],
    weight: Weight,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weight {
    F32,
    Q8,
    Q4,
    /// The same, with rounding of the input allowed.
    Q8Rounding,
    Q4Rounding,
}

impl Weight {
    const ALL: [Self; 5] = [Self::F32, Self::Q8, Self::Q4, Self::Q8Rounding, Self::Q4Rounding];

    const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Q8 => "q8",
            Self::Q4 => "q4",
            Self::Q8Rounding => "q8-i8",
            Self::Q4Rounding => "q4-i8",
        }
    }

    const fn scheme(self) -> Option<BlockScheme> {
        match self {
            Self::F32 => None,
            Self::Q8 => Some(BlockScheme::Q8),
            Self::Q4 => Some(BlockScheme::Q4),
            Self::Q8Rounding => Some(BlockScheme::Q8.with_rounded_input(true)),
            Self::Q4Rounding => Some(BlockScheme::Q4.with_rounded_input(true)),
        }
    }
}

impl QLinear {
    /// One row, as when a language model generates a text, and many rows, as when it reads one.
    pub(crate) fn all() -> Vec<Self> {
        let extents = [[1, 8192, 4096], [128, 2048, 2048]];
        let of = |of| Weight::ALL.map(|weight| Self { of, weight });
        extents.into_iter().flat_map(of).collect()
    }

    /// Parses `1x4096x4096 q4`.
    pub(crate) fn parse(words: &[&str]) -> Option<Self> {
        let [extents, weight] = words else { return None };
        let weight = Weight::ALL.into_iter().find(|kind| kind.name() == *weight)?;
        let of = Extents::<3>::parse(&[extents], |_| false)?.of;
        let whole = weight.scheme().is_none_or(|scheme| of[2].is_multiple_of(scheme.size()));
        whole.then_some(Self { of, weight })
    }

    /// The reverse of [`parse`](Self::parse).
    pub(crate) fn name(self) -> String {
        format!("{} {}", Extents::f32(self.of).name(), self.weight.name())
    }

    /// For one row, the bytes that are read; for several rows, the operations.
    pub(crate) fn amount(self) -> Amount {
        let [m, n, k] = self.of;
        let bytes = match self.weight.scheme() {
            None => 4 * n * k,
            Some(scheme) => n * (k / scheme.size()) * (scheme.bytes() + size_of::<f16>()),
        };
        let flops = 2 * (m * n * k) as u64;
        match m {
            1 => Amount {
                elements: n as u64,
                bytes: bytes as u64,
                flops,
                ..Amount::default()
            },
            _ => Amount {
                flops,
                ..Amount::default()
            },
        }
    }

    pub(crate) fn prepare<B: Backend>(self, device: &Device<B>) -> Result<Prepared<B>> {
        let [m, n, k] = self.of;
        let x = Tensor::from_vec(noise(m * k, INPUT), [m, k], device)?;
        let Some(scheme) = self.weight.scheme() else {
            let weight = Tensor::from_vec(noise(n * k, TARGET), [n, k], device)?;
            // One row reads the weight in its layout, without a copy of 128 MiB.
            let weight = if m == 1 {
                weight
            } else {
                inference::prepacked(&weight, Prepack::Linear)?
            };
            return Ok(Prepared::call(move || x.linear(&weight, None)));
        };
        let (bytes, blocks) = (k / 8 * scheme.bits(), k / scheme.size());
        // A pattern that is as good as noise.
        let numbers = (0..n * bytes)
            .map(|i| (i.wrapping_mul(0x9E37_79B9) >> 11) as u8)
            .collect();
        let weight = Tensor::from_vec(numbers, [n, bytes], device)?;
        let scales = Tensor::from_vec(noise(n * blocks, TARGET), [n, blocks], device)?.to_dtype(DType::F16)?;
        let zeros = Tensor::from_vec(vec![scheme.centre()], [1], device)?;
        Ok(Prepared::call(move || {
            x.quantized_linear([&weight, &scales, &zeros], scheme)
        }))
    }
}
