//! Products with weights of few bits in blocks, which stay packed in memory.
//!
//! For a few rows, the weight's numbers become floats in registers, so that only its packed bytes are read (`rows`).
//! For more rows, they become the panels of a float product (`unpack`), at a small cost compared with the product. Both
//! use the weight's exact values and accumulate in f32. If the other operand may be rounded to bytes, the products are
//! of integers (`rounded`).

mod factors;
mod rounded;
mod rows;
#[cfg(test)]
mod tests;
mod unpack;

use polygrad_core::{BlockScheme, Error, Result};

pub use self::factors::Factors;
use self::unpack::{Columns, Unpacked};
use super::packed::{Source, product};
use super::{Dims, Mat, MatMut, Update};
use crate::{CpuDevice, Level};

/// A weight `[n, k]`.
#[derive(Clone, Copy)]
pub struct Weight {
    /// Rows one after another, or interleaved; the 32-bit words are aligned.
    pub bytes: *const u8,
    pub n: usize,
    pub k: usize,
    /// Whether rows are interleaved, as are scales and zero points then. Only for rounded rows of X, not transposed.
    pub interleaved: bool,
    pub scheme: BlockScheme,
    pub scales: Factors,
    pub zeros: Factors,
}

// SAFETY: the pointers are only read, and the creator of a weight keeps their memory alive.
unsafe impl Sync for Weight {}

impl Weight {
    fn blocks(&self) -> usize {
        self.k / self.scheme.size()
    }

    /// The number of 32-bit words in a row.
    fn words(&self) -> usize {
        self.k / (32 / self.scheme.bits())
    }

    /// The zero point of all numbers, if there is a single one and it is an integer that fits a byte.
    ///
    /// # Safety
    /// The zero point must be readable.
    unsafe fn whole_zero(&self) -> Option<i32> {
        // SAFETY: by the caller.
        let zero = unsafe { self.zeros.single()? };
        (zero.fract() == 0.0 && (0.0..256.0).contains(&zero)).then_some(zero as i32)
    }

    /// `C = X Wᵀ` for `m` rows of `X`, or `C = X W` if `transposed`; both matrices are stored row by row.
    ///
    /// # Safety
    /// The weight and X must be readable, and `c` must have room for the result and not overlap them.
    ///
    /// # Errors
    /// If memory runs out.
    pub unsafe fn product(
        &self,
        device: CpuDevice,
        level: Level,
        (m, transposed): (usize, bool),
        x: *const f32,
        c: *mut f32,
    ) -> Result<()> {
        let (n, k) = if transposed { (self.k, self.n) } else { (self.n, self.k) };
        if m == 0 || n == 0 {
            return Ok(());
        }
        if self.scheme.rounds_input() && !transposed {
            // SAFETY: passed on.
            return unsafe { rounded::run(self, device, m, x, c) };
        }
        if self.interleaved {
            return Err(Error::unsupported(
                "interleaved rows are multiplied with rounded ones only",
            ));
        }
        let columns = match transposed {
            false if m <= rows::FEW => {
                // SAFETY: passed on.
                return unsafe { rows::run(self, device, level, m, x, c) };
            }
            false => Columns::Rows,
            true => Columns::Numbers,
        };
        let source = Unpacked { weight: *self, columns };
        let (a, c) = (Mat::new(x, k.cast_signed(), 1), MatMut::new(c, n.cast_signed(), 1));
        // SAFETY: passed on.
        unsafe {
            product(
                device,
                level,
                Dims { m, n, k },
                a,
                Source::Pack(&source, None),
                c,
                Update::set(),
            )
        }
    }
}
