//! How operands are packed into words.

use super::dot::{Dot, NV, Work};
use crate::gemm::Mat;

/// The sign bit of a byte: flipping it turns a u8 into that number minus 128 as i8.
const SIGN: u8 = 0x80;

/// The most columns of a panel.
const WIDEST: usize = 16 * NV;

/// Bytes as they are, or minus 128.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bytes {
    Unsigned,
    Signed,
}

impl Bytes {
    /// The number that is subtracted from each byte.
    pub(super) fn offset(self) -> i32 {
        match self {
            Self::Unsigned => 0,
            Self::Signed => 128,
        }
    }

    /// `G` numbers in a word.
    #[inline(always)]
    fn word<const G: usize>(self, numbers: [u8; G]) -> u32 {
        let mut word = 0;
        for (i, x) in numbers.into_iter().enumerate() {
            word |= match (G, self) {
                (4, Self::Unsigned) => u32::from(x) << (8 * i),
                (4, Self::Signed) => u32::from(x ^ SIGN) << (8 * i),
                _ => u32::from((i16::from(x) - self.offset() as i16).cast_unsigned()) << (16 * i),
            };
        }
        word
    }
}

/// Packs columns of a matrix of `k` rows, minus 128, into panels: for each group of rows, the words of as many columns
/// as a tile has; those beyond the matrix are 0. Then writes the sum of each column's packed numbers, if wanted.
///
/// Each group of rows is packed for several panels at a time, since the rows of a large matrix are pages apart.
pub(super) struct PackPanels {
    pub(super) from: Mat<u8>,
    pub(super) k: usize,
    /// The first column, and the number of columns.
    pub(super) columns: (usize, usize),
    /// Has room for the words of the panels.
    pub(super) to: *mut u32,
    /// Has room for the sums of the panels, or is null.
    pub(super) sums: *mut i32,
}

impl Work for PackPanels {
    type Out = ();

    #[inline(always)]
    fn run<D: Dot>(self, d: D) {
        let width = NV * D::LANES;
        let (left, count) = self.columns;
        let groups = self.k.div_ceil(D::GROUP);
        let by_columns = self.from.rows == 1 && self.from.cols != 1;
        // SAFETY: the creator of the work guarantees that the matrix is readable, and that `to` has room.
        unsafe {
            for group in 0..groups {
                for first in (0..count).step_by(width) {
                    let columns = (left + first, width.min(count - first));
                    let to = self.to.add(first * groups + group * width);
                    match (D::GROUP, by_columns) {
                        (4, false) => self.by_rows::<D, 4>(group, columns, to),
                        (4, true) => self.by_columns::<D, 4>(group, columns, to),
                        (_, false) => self.by_rows::<D, 2>(group, columns, to),
                        (_, true) => self.by_columns::<D, 2>(group, columns, to),
                    }
                }
            }
            if !self.sums.is_null() {
                for first in (0..count).step_by(width) {
                    self.sum(d, self.to.add(first * groups), self.sums.add(first));
                }
            }
        }
    }
}

impl PackPanels {
    /// Packs a group of a panel, row by row, for any stride within a row.
    ///
    /// # Safety
    /// The matrix must have the columns and rows, `to` the room.
    #[inline(always)]
    unsafe fn by_rows<D: Dot, const G: usize>(&self, group: usize, (left, count): (usize, usize), to: *mut u32) {
        let width = NV * D::LANES;
        let zero = SIGN;
        // SAFETY: the panel has the group.
        let to = unsafe { std::slice::from_raw_parts_mut(to, width) };
        if self.from.cols == 1 {
            let whole = count == width && (group + 1) * G <= self.k;
            let lines: [&[u8]; G] = std::array::from_fn(|i| group * G + i).map(|row| {
                match row < self.k {
                    // SAFETY: the rows have the columns.
                    true => unsafe { std::slice::from_raw_parts(self.from.at(row, left), count) },
                    false => &[],
                }
            });
            if whole {
                return interleave(lines, Bytes::Signed, to);
            }
            let mut padded = [[zero; WIDEST]; G];
            padded
                .iter_mut()
                .zip(lines)
                .for_each(|(to, line)| to[..line.len()].copy_from_slice(line));
            return interleave(padded.each_ref().map(|line| &line[..width]), Bytes::Signed, to);
        }
        for (column, word) in to.iter_mut().enumerate() {
            *word = Bytes::Signed.word::<G>(std::array::from_fn(|i| {
                let row = group * G + i;
                match column < count && row < self.k {
                    // SAFETY: as above.
                    true => unsafe { self.from.at(row, left + column).read() },
                    false => zero,
                }
            }));
        }
    }

    /// Packs a group of a panel, column by column, for contiguous columns.
    ///
    /// # Safety
    /// As for [`PackPanels::by_rows`].
    #[inline(always)]
    unsafe fn by_columns<D: Dot, const G: usize>(&self, group: usize, (left, count): (usize, usize), to: *mut u32) {
        if (group + 1) * G > self.k {
            // SAFETY: passed on.
            return unsafe { self.by_rows::<D, G>(group, (left, count), to) };
        }
        let zero = SIGN;
        for column in 0..NV * D::LANES {
            let numbers = match column < count {
                // SAFETY: the column has the rows.
                true => unsafe { self.from.at(group * G, left + column).cast::<[u8; G]>().read() },
                false => [zero; G],
            };
            // SAFETY: the panel has the group and the column.
            unsafe { to.add(column).write(Bytes::Signed.word(numbers)) };
        }
    }

    /// # Safety
    /// The panel at `from` must be packed, and `to` have room.
    #[inline(always)]
    unsafe fn sum<D: Dot>(&self, d: D, from: *const u32, to: *mut i32) {
        let ones = d.splat(if D::GROUP == 4 { 0x0101_0101 } else { 0x0001_0001 });
        let mut sums = [d.splat(0); NV];
        for group in 0..self.k.div_ceil(D::GROUP) {
            for (v, sum) in sums.iter_mut().enumerate() {
                // SAFETY: the panel has the group.
                let words = unsafe { d.load(from.add((group * NV + v) * D::LANES)) };
                *sum = d.dot(*sum, ones, words);
            }
        }
        for (v, sum) in sums.into_iter().enumerate() {
            // SAFETY: by the caller.
            unsafe { d.store_part(to.add(v * D::LANES), D::LANES, sum) };
        }
    }
}

/// The words of lines of equal length, in loops that the compiler vectorizes.
#[inline(always)]
pub(super) fn interleave<const G: usize>(lines: [&[u8]; G], bytes: Bytes, to: &mut [u32]) {
    let offset = bytes.offset();
    if let [a, b, c, d] = lines[..] {
        let sign = if bytes == Bytes::Signed { 0x8080_8080 } else { 0 };
        for ((((word, &a), &b), &c), &d) in to.iter_mut().zip(a).zip(b).zip(c).zip(d) {
            *word = (u32::from(a) | u32::from(b) << 8 | u32::from(c) << 16 | u32::from(d) << 24) ^ sign;
        }
    } else if let [a, b] = lines[..] {
        for ((word, &a), &b) in to.iter_mut().zip(a).zip(b) {
            let [a, b] = [a, b].map(|x| i32::from(x) - offset);
            *word = (a & 0xffff | b << 16).cast_unsigned();
        }
    }
}

/// Packs a tile of rows of a matrix of `k` columns: for each group of columns one word per row.
pub(super) struct PackTile {
    pub(super) from: Mat<u8>,
    pub(super) k: usize,
    /// The first row, and the number of rows.
    pub(super) rows: (usize, usize),
    /// Words from one group to the next.
    pub(super) step: usize,
    pub(super) bytes: Bytes,
    pub(super) to: *mut u32,
}

impl Work for PackTile {
    type Out = ();

    #[inline(always)]
    fn run<D: Dot>(self, _: D) {
        // SAFETY: the creator of the work guarantees that the matrix is readable, and that `to` has room.
        unsafe {
            if D::GROUP == 4 {
                self.pack::<4>();
            } else {
                self.pack::<2>();
            }
        }
    }
}

impl PackTile {
    /// # Safety
    /// The matrix must have the rows, `to` room for their words.
    #[inline(always)]
    unsafe fn pack<const G: usize>(&self) {
        let zero = self.bytes.offset() as u8;
        let (first, rows) = self.rows;
        let whole = if self.from.cols == 1 { self.k / G } else { 0 };
        for i in 0..rows {
            let (from, to) = (self.from.at(first + i, 0), self.to.wrapping_add(i));
            for group in 0..whole {
                // SAFETY: the row has the columns, and `to` the word.
                unsafe {
                    let numbers = from.add(group * G).cast::<[u8; G]>().read();
                    to.add(group * self.step).write(self.bytes.word(numbers));
                }
            }
            for group in whole..self.k.div_ceil(G) {
                let numbers: [u8; G] = std::array::from_fn(|part| match group * G + part < self.k {
                    // SAFETY: as above.
                    true => unsafe { self.from.at(first + i, group * G + part).read() },
                    false => zero,
                });
                // SAFETY: as above.
                unsafe { to.add(group * self.step).write(self.bytes.word(numbers)) };
            }
        }
    }
}

/// The sum of a row's numbers as they are packed.
pub(super) fn row_sum(from: Mat<u8>, row: usize, k: usize, bytes: Bytes) -> i32 {
    let mut sum = 0i32;
    if from.cols == 1 {
        // SAFETY: the caller guarantees that the matrix has the row.
        let row = unsafe { std::slice::from_raw_parts(from.at(row, 0), k) };
        // 256 bytes at a time, since their sum fits 16 bits.
        for part in row.chunks(256) {
            sum = sum.wrapping_add(part.iter().map(|&x| u16::from(x)).sum::<u16>().into());
        }
    } else {
        for column in 0..k {
            // SAFETY: as above.
            sum = sum.wrapping_add(unsafe { from.at(row, column).read() }.into());
        }
    }
    sum.wrapping_sub((k as i32).wrapping_mul(bytes.offset()))
}
