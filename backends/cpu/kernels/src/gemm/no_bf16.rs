//! Stands in for `bf16` on targets without instructions for products of bf16.

use std::convert::Infallible;

use polygrad_core::Result;

use super::{Dims, Mat, MatMut};
use crate::CpuDevice;

/// Has no value.
#[derive(Clone, Copy)]
pub(super) struct DotBf16(Infallible);

impl DotBf16 {
    pub(super) fn of(_: CpuDevice) -> Option<Self> {
        None
    }

    /// # Safety
    /// None: it cannot be called.
    pub(super) unsafe fn gemm(
        self,
        _: CpuDevice,
        _: Dims,
        _: Mat<u16>,
        _: Mat<u16>,
        _: MatMut<u16>,
        _: *const u16,
    ) -> Result<()> {
        match self.0 {}
    }
}
