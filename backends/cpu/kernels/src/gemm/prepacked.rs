//! A right-hand side that is packed once and multiplied many times: a layer's weight.

use std::marker::PhantomData;

use polygrad_core::Result;

use super::packed::{Source, product};
use super::vector::by_vectors;
use super::{Dims, Mat, MatMut, Real, Strided, Update};
use crate::buffers::Buffer;
use crate::{CpuDevice, Kernels, Level};

/// The panels of a matrix B, for the kernels of one instruction set.
pub struct Prepacked<T> {
    panels: Buffer,
    level: Level,
    n: usize,
    k: usize,
    element: PhantomData<T>,
}

impl<T: Real> Prepacked<T> {
    /// Packs B, `k` rows and `n` columns; `None` if the device's kernels use no panels.
    ///
    /// # Safety
    /// B must be readable.
    ///
    /// # Errors
    /// When memory runs out.
    pub unsafe fn new(device: CpuDevice, n: usize, k: usize, b: Mat<T>) -> Result<Option<Self>> {
        if device.kernels() != Kernels::Simd || n == 0 || k == 0 {
            return Ok(None);
        }
        let level = device.level();
        // SAFETY: passed on.
        let panels = unsafe { T::pack(level, n, k, b)? };
        Ok(Some(Self {
            panels,
            level,
            n,
            k,
            element: PhantomData,
        }))
    }

    /// `C ← α A B + β C`, where `b` is the matrix that was packed.
    ///
    /// # Safety
    /// As for [`super::Gemm::gemm`].
    pub unsafe fn gemm(
        &self,
        device: CpuDevice,
        dims: Dims,
        a: Mat<T>,
        b: Mat<T>,
        c: MatMut<T>,
        update: Update<T>,
    ) -> Result<()> {
        // SAFETY: passed on; the panels are those of B.
        unsafe { T::gemm(device, dims, a, (b, Some(self)), c, update) }
    }

    /// Whether a product is one by these panels.
    pub(super) fn suit(&self, device: CpuDevice, dims: Dims, c: MatMut<T>) -> bool {
        device.kernels() == Kernels::Simd
            && device.level() == self.level
            && (dims.n, dims.k) == (self.n, self.k)
            && c.cols == 1
    }

    /// [`Prepacked::gemm`] if the panels [suit](Self::suit) it.
    ///
    /// # Safety
    /// As for [`super::Gemm::gemm`].
    pub(super) unsafe fn multiply(
        &self,
        device: CpuDevice,
        dims: Dims,
        a: Mat<T>,
        b: Mat<T>,
        c: MatMut<T>,
        update: Update<T>,
    ) -> Result<()> {
        // SAFETY: passed on; the panels are those of B.
        unsafe {
            if by_vectors(device, self.level, dims, a, b, c, update) {
                return Ok(());
            }
            let source = Source::<_, Strided<T>>::Panels(self.panels.as_ptr().cast_const().cast());
            product(device, self.level, dims, a, source, c, update)
        }
    }
}
