//! Matrix products.
//!
//! `C ← α A B + β C` for matrices with any strides, in f32 and f64, behind the trait [`Gemm`]. The vector form packs B
//! into panels as wide as a register tile and multiplies row tiles of A by them. The order of additions depends only on
//! the shape of the product, so results are the same for any number of threads.

#[cfg(target_arch = "x86_64")]
mod bf16;
#[cfg(not(target_arch = "x86_64"))]
#[path = "no_bf16.rs"]
mod bf16;
#[cfg(feature = "blas")]
mod blas;
mod blocks;
pub mod bytes;
mod pack;
mod packed;
mod plain;
mod prepacked;
pub mod quantized;
mod tile;
mod vector;

pub use pack::{Panels, Strided};
pub(crate) use packed::{B, Rows};
pub use packed::{Packed, tiles};
pub use plain::Plain;
pub use prepacked::Prepacked;
pub use tile::{Input, NV, Out, Turned, Windows, any_tile, most_rows};

use polygrad_core::{Error, Result};

use blocks::pack_all;

use crate::buffers::Buffer;
use crate::simd::{Lanes, Simd};
use crate::{CpuDevice, Kernels, Level};

/// The shape of a product: A is `m × k`, B is `k × n`, C is `m × n`.
#[derive(Clone, Copy, Debug)]
pub struct Dims {
    pub m: usize,
    pub n: usize,
    pub k: usize,
}

/// A matrix to read: its first element, and the strides of rows and columns in elements.
#[derive(Clone, Copy, Debug)]
pub struct Mat<T> {
    pub ptr: *const T,
    pub rows: isize,
    pub cols: isize,
}

/// A matrix to write, in the same form.
#[derive(Clone, Copy, Debug)]
pub struct MatMut<T> {
    pub ptr: *mut T,
    pub rows: isize,
    pub cols: isize,
}

// SAFETY: the creator of a matrix guarantees that its pointer is used soundly.
unsafe impl<T> Sync for Mat<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for MatMut<T> {}

impl<T> Mat<T> {
    pub fn new(ptr: *const T, rows: isize, cols: isize) -> Self {
        Self { ptr, rows, cols }
    }

    #[inline(always)]
    pub fn at(&self, row: usize, column: usize) -> *const T {
        self.ptr
            .wrapping_offset(row.cast_signed() * self.rows + column.cast_signed() * self.cols)
    }

    /// The matrix that begins `by` elements later.
    pub fn moved(&self, by: isize) -> Self {
        Self::new(self.ptr.wrapping_offset(by), self.rows, self.cols)
    }

    pub fn transposed(self) -> Self {
        Self::new(self.ptr, self.cols, self.rows)
    }
}

impl<T> MatMut<T> {
    pub fn new(ptr: *mut T, rows: isize, cols: isize) -> Self {
        Self { ptr, rows, cols }
    }

    #[inline(always)]
    pub fn at(&self, row: usize, column: usize) -> *mut T {
        self.ptr
            .wrapping_offset(row.cast_signed() * self.rows + column.cast_signed() * self.cols)
    }

    pub fn transposed(self) -> Self {
        Self::new(self.ptr, self.cols, self.rows)
    }

    pub fn readable(self) -> Mat<T> {
        Mat::new(self.ptr.cast_const(), self.rows, self.cols)
    }
}

/// How the product is combined with C.
#[derive(Clone, Copy, Debug)]
pub struct Update<T> {
    pub alpha: T,
    /// If it is 0, C is not read.
    pub beta: T,
    /// Added to each row of the result: `n` contiguous elements, or null for no bias. Only with `alpha` 1 and `beta` 0.
    pub bias: *const T,
}

// SAFETY: the bias is only read.
unsafe impl<T> Sync for Update<T> {}

impl<T: Real> Update<T> {
    /// Overwrites C.
    pub fn set() -> Self {
        Self {
            alpha: T::ONE,
            beta: T::ZERO,
            bias: std::ptr::null(),
        }
    }

    /// Adds the product to C.
    pub fn add() -> Self {
        Self::add_scaled(T::ONE)
    }

    /// Adds `α` times the product to C.
    pub fn add_scaled(alpha: T) -> Self {
        Self {
            alpha,
            beta: T::ONE,
            ..Self::set()
        }
    }

    /// The update for the part of C that begins at a column.
    #[inline(always)]
    fn at_column(self, column: usize) -> Self {
        let bias = if self.bias.is_null() {
            self.bias
        } else {
            self.bias.wrapping_add(column)
        };
        Self { bias, ..self }
    }
}

/// A way to multiply matrices of `T`.
pub trait Gemm<T> {
    /// `C ← α A B + β C`, on one thread or more of the device.
    ///
    /// # Safety
    /// A and B must be readable; C must be writable, apart from both, and its elements must not overlap.
    unsafe fn gemm(
        &self,
        device: CpuDevice,
        dims: Dims,
        a: Mat<T>,
        b: Mat<T>,
        c: MatMut<T>,
        update: Update<T>,
    ) -> Result<()>;
}

/// The element types f32 and f64.
pub trait Real: Copy + PartialEq + Send + Sync + 'static {
    /// Registers of this element at a level.
    type Lanes<S: Simd>: Lanes<T = Self>;
    const ZERO: Self;
    const ONE: Self;

    /// The CBLAS library's product.
    #[cfg(feature = "blas")]
    const CBLAS: blas::Product<Self>;

    fn lanes<S: Simd>(s: S) -> Self::Lanes<S>;

    /// [`gemm`], or [`Prepacked::gemm`] with panels. A function of the type and not a generic one, which every crate
    /// that calls it would compile again.
    ///
    /// # Safety
    /// As for [`Gemm::gemm`]; the panels are those of `b`.
    ///
    /// # Errors
    /// If memory runs out.
    unsafe fn gemm(
        device: CpuDevice,
        dims: Dims,
        a: Mat<Self>,
        b: (Mat<Self>, Option<&Prepacked<Self>>),
        c: MatMut<Self>,
        update: Update<Self>,
    ) -> Result<()>;

    /// All panels of a matrix with `k` rows and `n` columns, by the tiles of a level; a function of the type as well.
    ///
    /// # Safety
    /// The matrix must be readable.
    ///
    /// # Errors
    /// If memory runs out.
    unsafe fn pack(level: Level, n: usize, k: usize, b: Mat<Self>) -> Result<Buffer>;

    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    fn widened(self) -> f64;
    fn rounded(x: f64) -> Self;
}

macro_rules! real {
    ($type:ty, $lanes:ty, |$s:ident| $get:expr, $cblas:ident) => {
        impl Real for $type {
            type Lanes<S: Simd> = $lanes;
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            #[cfg(feature = "blas")]
            const CBLAS: blas::Product<Self> = blas::$cblas;

            #[inline(always)]
            fn lanes<S: Simd>($s: S) -> $lanes {
                $get
            }

            unsafe fn gemm(
                device: CpuDevice,
                dims: Dims,
                a: Mat<Self>,
                b: (Mat<Self>, Option<&Prepacked<Self>>),
                c: MatMut<Self>,
                update: Update<Self>,
            ) -> Result<()> {
                // SAFETY: passed on.
                unsafe { multiply(device, dims, a, b, c, update) }
            }

            unsafe fn pack(level: Level, n: usize, k: usize, b: Mat<Self>) -> Result<Buffer> {
                // SAFETY: passed on.
                unsafe { pack_all(level, n, k, b) }
            }

            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self + other
            }

            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self * other
            }

            #[inline(always)]
            fn widened(self) -> f64 {
                self.into()
            }

            #[inline(always)]
            fn rounded(x: f64) -> Self {
                x as $type
            }
        }
    };
}

real!(f32, S, |s| s, cblas_sgemm);
real!(f64, S::Double, |s| s.double(), cblas_dgemm);

/// The product with the device's kernels.
///
/// # Safety
/// As for [`Gemm::gemm`].
pub unsafe fn gemm<T: Real>(
    device: CpuDevice,
    dims: Dims,
    a: Mat<T>,
    b: Mat<T>,
    c: MatMut<T>,
    update: Update<T>,
) -> Result<()> {
    // SAFETY: passed on.
    unsafe { T::gemm(device, dims, a, (b, None), c, update) }
}

/// [`Real::gemm`].
unsafe fn multiply<T: Real>(
    device: CpuDevice,
    dims: Dims,
    a: Mat<T>,
    (b, panels): (Mat<T>, Option<&Prepacked<T>>),
    c: MatMut<T>,
    update: Update<T>,
) -> Result<()> {
    if dims.m == 0 || dims.n == 0 {
        return Ok(());
    }
    // SAFETY: passed on.
    unsafe {
        if let Some(panels) = panels.filter(|panels| panels.suit(device, dims, c)) {
            return panels.multiply(device, dims, a, b, c, update);
        }
        match device.kernels() {
            Kernels::Scalar => Plain.gemm(device, dims, a, b, c, update),
            Kernels::Simd => Packed(device.level()).gemm(device, dims, a, b, c, update),
            #[cfg(feature = "blas")]
            Kernels::Blas => blas::Blas.gemm(device, dims, a, b, c, update),
            #[cfg(not(feature = "blas"))]
            Kernels::Blas => Packed(device.level()).gemm(device, dims, a, b, c, update),
        }
    }
}

/// Whether the device has instructions for products of bf16, which [`gemm_bf16`] uses.
pub fn multiplies_bf16(device: CpuDevice) -> bool {
    bf16::DotBf16::of(device).is_some()
}

/// `C ← A B`, plus a bias in each row if it is not null, on a device that [multiplies bf16](multiplies_bf16). Matrices
/// hold the bits of bf16. A sum is f32, and rounded once.
///
/// # Safety
/// A, B and `n` elements of the bias must be readable; C must be writable, apart from them, and have contiguous rows.
///
/// # Errors
/// If the device has no such instructions; if memory runs out.
pub unsafe fn gemm_bf16(
    device: CpuDevice,
    dims: Dims,
    a: Mat<u16>,
    b: Mat<u16>,
    c: MatMut<u16>,
    bias: *const u16,
) -> Result<()> {
    match bf16::DotBf16::of(device) {
        // SAFETY: passed on.
        Some(dot) => unsafe { dot.gemm(device, dims, a, b, c, bias) },
        None => Err(Error::unsupported(
            "the processor has no instructions for products of bf16",
        )),
    }
}

/// Approximate nanoseconds of a product.
#[inline]
pub fn cost(dims: Dims, level: Level) -> f32 {
    let per_flop = if level == Level::Portable { 0.5 } else { 0.02 };
    (dims.m * dims.n * dims.k) as f32 * per_flop
}

#[cfg(test)]
mod tests;
