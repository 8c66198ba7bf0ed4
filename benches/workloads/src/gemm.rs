//! `gemm`: matrix products of [m, k] by [k, n]; for bytes, with zero points and a prepacked right-hand side, as in
//! quantized models.

use polygrad_tensor::{Backend, DType, Device, Prepack, Result, Tensor, inference};

use crate::Prepared;
use crate::data::{INPUT, TARGET, noise};
use crate::extents::Extents;

/// m, n and k.
pub(crate) type Gemm = Extents<3>;

impl Gemm {
    /// Squares, then products from networks: a vector by a layer, the last layer of a small perceptron, its first
    /// layer, and a convolution.
    pub(crate) const ALL: [Self; 10] = [
        Self::f32([64, 64, 64]),
        Self::f32([128, 128, 128]),
        Self::f32([256, 256, 256]),
        Self::f32([512, 512, 512]),
        Self::f32([1024, 1024, 1024]),
        Self::f32([2048, 2048, 2048]),
        Self::f32([1, 512, 512]),
        Self::f32([32, 10, 128]),
        Self::f32([64, 128, 784]),
        Self::f32([4096, 32, 288]),
    ];

    pub(crate) fn flops(self) -> u64 {
        2 * self.of.into_iter().product::<usize>() as u64
    }

    pub(crate) fn prepare<B: Backend>(self, device: &Device<B>) -> Result<Prepared<B>> {
        let [m, n, k] = self.of;
        let factor = |rows: usize, columns: usize, seed| {
            Tensor::from_vec(noise(rows * columns, seed), [rows, columns], device)?.to_dtype(self.dtype)
        };
        if self.dtype == DType::U8 {
            let bytes = |rows: usize, columns: usize, seed| {
                let noise = Tensor::from_vec(noise(rows * columns, seed), [rows, columns], device)?;
                ((noise * 64.0)? + 128.0)?
                    .clamp(Some(0.0), Some(255.0))?
                    .to_dtype(DType::U8)
            };
            let (a, b) = (bytes(m, k, INPUT)?, bytes(k, n, TARGET)?);
            let b = inference::prepacked(&b, Prepack::MatmulU8)?;
            let (zero_a, zero_b) = (
                Tensor::from_vec(vec![121u8], [1], device)?,
                Tensor::from_vec(vec![128u8], [1], device)?,
            );
            return Ok(Prepared::call(move || inference::matmul_u8(&a, &b, [&zero_a, &zero_b])));
        }
        let (a, b) = (factor(m, k, INPUT)?, factor(k, n, TARGET)?);
        Ok(Prepared::call(move || a.matmul(&b)))
    }
}
