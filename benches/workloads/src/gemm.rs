//! `gemm`: products of matrices, [m, k] by [k, n].

use polygrad_tensor::{Backend, Device, Result, Tensor};

use crate::Prepared;
use crate::data::{INPUT, TARGET, noise};

/// The extents of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gemm {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
}

const fn gemm(m: usize, n: usize, k: usize) -> Gemm {
    Gemm { m, n, k }
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

    pub(crate) fn flops(self) -> u64 {
        2 * (self.m * self.n * self.k) as u64
    }

    pub(crate) fn prepare<B: Backend>(self, device: &Device<B>) -> Result<Prepared<B>> {
        let a = Tensor::from_vec(noise(self.m * self.k, INPUT), [self.m, self.k], device)?;
        let b = Tensor::from_vec(noise(self.k * self.n, TARGET), [self.k, self.n], device)?;
        Ok(Prepared::call(move || a.matmul(&b)))
    }
}
