//! `gemm`: products of matrices, [m, k] by [k, n].

use polygrad_tensor::{Backend, DType, Device, Result, Tensor};

use crate::Prepared;
use crate::data::{INPUT, TARGET, noise};

/// The extents of a product, and what its numbers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gemm {
    m: usize,
    n: usize,
    k: usize,
    dtype: DType,
}

/// The largest extent that can be asked for.
const LARGEST: usize = 1 << 15;

const fn gemm(m: usize, n: usize, k: usize) -> Gemm {
    let dtype = DType::F32;
    Gemm { m, n, k, dtype }
}

impl Gemm {
    /// Squares, then products as networks have them: a vector by a layer, the last layer of a small perceptron, its first one, and a convolution.
    pub(crate) const ALL: [Self; 10] = [
        gemm(64, 64, 64),
        gemm(128, 128, 128),
        gemm(256, 256, 256),
        gemm(512, 512, 512),
        gemm(1024, 1024, 1024),
        gemm(2048, 2048, 2048),
        gemm(1, 512, 512),
        gemm(32, 10, 128),
        gemm(64, 128, 784),
        gemm(4096, 32, 288),
    ];

    /// What the words after `gemm` mean: `4096x4096x4096`, and the dtype where it is not f32, `4096x4096x4096 bf16`.
    pub(crate) fn parse(words: &[&str]) -> Option<Self> {
        let (extents, dtype) = match words {
            [extents] => (extents, DType::F32),
            [extents, dtype] => (extents, dtype.parse().ok().filter(|dtype: &DType| dtype.is_float())?),
            _ => return None,
        };
        let extents: Vec<usize> = extents
            .split('x')
            .map(|word| word.parse().ok())
            .collect::<Option<_>>()?;
        match *extents {
            [m, n, k] if extents.iter().all(|extent| (1..=LARGEST).contains(extent)) => Some(Self { m, n, k, dtype }),
            _ => None,
        }
    }

    /// Those words.
    pub(crate) fn name(self) -> String {
        let Self { m, n, k, dtype } = self;
        match dtype {
            DType::F32 => format!("{m}x{n}x{k}"),
            _ => format!("{m}x{n}x{k} {dtype}"),
        }
    }

    pub(crate) fn flops(self) -> u64 {
        2 * (self.m * self.n * self.k) as u64
    }

    pub(crate) fn prepare<B: Backend>(self, device: &Device<B>) -> Result<Prepared<B>> {
        let factor = |rows: usize, columns: usize, seed| {
            Tensor::from_vec(noise(rows * columns, seed), [rows, columns], device)?.to_dtype(self.dtype)
        };
        let (a, b) = (factor(self.m, self.k, INPUT)?, factor(self.k, self.n, TARGET)?);
        Ok(Prepared::call(move || a.matmul(&b)))
    }
}
