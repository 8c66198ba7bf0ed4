//! A weight as the right-hand side of a product of floats, unpacked panel by panel.

use std::mem::MaybeUninit;

use super::Weight;
use crate::gemm::{Mat, Panels, Strided};
use crate::simd::Lanes;

/// The count of numbers unpacked together, all of one block.
const STEP: usize = 16;

/// The count of numbers of a row that are unpacked before they are copied to a panel.
const STRETCH: usize = 128;

/// The most columns of a panel.
const COLUMNS: usize = 32;

/// The meaning of the matrix's columns.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Columns {
    /// The weight's rows: the product is with the transposed weight.
    Rows,
    /// The positions within the weight's rows.
    Numbers,
}

pub(super) struct Unpacked {
    pub(super) weight: Weight,
    pub(super) columns: Columns,
}

impl Unpacked {
    /// Unpacks the numbers `first..end` of a row; both are multiples of [`STEP`].
    ///
    /// # Safety
    /// The weight must have these numbers, and `to` must have room for them.
    #[inline(always)]
    unsafe fn unpack(&self, row: usize, (first, end): (usize, usize), to: *mut f32) {
        let Weight {
            k,
            scheme,
            scales,
            zeros,
            ..
        } = self.weight;
        let (bits, size) = (scheme.bits(), scheme.size());
        let mut start = first;
        // SAFETY: all indices are inside the weight.
        unsafe {
            while start < end {
                let block = row * (k / size) + start / size;
                let (scale, zero) = (scales.get(block), zeros.get(block));
                let stop = end.min((start / size + 1) * size);
                for at in (start..stop).step_by(STEP) {
                    let from = self.weight.bytes.add((row * k + at) / 8 * bits);
                    let to = to.add(at - first).cast::<[f32; STEP]>();
                    let mut numbers = [0u8; STEP];
                    if bits == 4 {
                        let bytes = from.cast::<[u8; STEP / 2]>().read();
                        for i in 0..STEP {
                            numbers[i] = bytes[i / 2] >> (i % 2 * 4) & 15;
                        }
                    } else {
                        numbers = from.cast::<[u8; STEP]>().read();
                    }
                    let mut floats = [0f32; STEP];
                    for i in 0..STEP {
                        floats[i] = (f32::from(numbers[i]) - zero) * scale;
                    }
                    to.write(floats);
                }
                start = stop;
            }
        }
    }
}

impl Panels<f32> for Unpacked {
    #[inline(always)]
    unsafe fn pack<L: Lanes<T = f32>>(
        &self,
        l: L,
        (row, rows): (usize, usize),
        (column, columns): (usize, usize),
        width: usize,
        to: *mut f32,
    ) {
        let around = |first: usize, end: usize| (first / STEP * STEP, end.next_multiple_of(STEP));
        let mut room = [MaybeUninit::<f32>::uninit(); COLUMNS * STRETCH];
        let room = room.as_mut_ptr().cast::<f32>();
        // SAFETY: rows and columns are inside the matrix by the caller, and a row of the weight has a multiple of
        // `STEP` numbers; a panel is no wider than `COLUMNS`, for which there is room.
        unsafe {
            if self.columns == Columns::Numbers {
                let (first, end) = around(column, column + columns);
                for p in 0..rows {
                    self.unpack(row + p, (first, end), room);
                    let to = to.add(p * width);
                    to.copy_from_nonoverlapping(room.add(column - first), columns);
                    (columns..width).for_each(|j| to.add(j).write(0.0));
                }
                return;
            }
            let mut start = row;
            while start < row + rows {
                let first = start / STEP * STEP;
                let stop = (first + STRETCH).min(row + rows);
                let (_, end) = around(first, stop);
                for j in 0..columns {
                    self.unpack(column + j, (first, end), room.add(j * STRETCH));
                }
                let part = Mat::new(room.add(start - first).cast_const(), 1, STRETCH.cast_signed());
                let to = to.add((start - row) * width);
                Strided(part).pack(l, (0, stop - start), (0, columns), width, to);
                start = stop;
            }
        }
    }
}
