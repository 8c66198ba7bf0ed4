//! The innermost kernel: a tile of C that stays in registers during one pass through `k`.
#![allow(
    clippy::needless_range_loop,
    reason = "rows and registers of a tile are named by their indices"
)]

use super::{Real, Update};
use crate::simd::Lanes;

/// Registers in a row of a tile.
pub const NV: usize = 2;

/// Rows of the largest tile that fits the registers: 24 of 32 for C, or 12 of 16, beside 2 for B and 1 for A.
#[inline(always)]
pub const fn most_rows<L: Lanes>() -> usize {
    match L::REGISTERS {
        32 => 12,
        16 => 6,
        _ => 4,
    }
}

/// Size of the next tile for each number of remaining rows, so that no single row is left over. Each size is separate
/// code, so only some exist, and the others are made of two.
const STEPS: [usize; 12] = [1, 2, 3, 4, 3, 6, 4, 8, 6, 6, 8, 12];

/// `tile` for any number of rows up to [`most_rows`] and columns up to [`NV`] registers.
///
/// # Safety
/// As for `tile`.
#[inline(always)]
pub unsafe fn any_tile<L: Lanes, A: Left<L::T>>(
    l: L,
    mut rows: usize,
    mut input: Input<L::T, A>,
    mut out: Out<L::T>,
    update: Update<L::T>,
) where
    L::T: Real,
{
    macro_rules! tiles_of {
        ($($rows:literal)*) => {
            while rows > 0 {
                let step = STEPS[rows - 1].min(most_rows::<L>());
                match (step, out.n > L::N) {
                    $(
                        // SAFETY: passed on.
                        ($rows, false) => unsafe { tile::<L, A, $rows, 1>(l, input, out, update) },
                        // SAFETY: passed on.
                        ($rows, true) => unsafe { tile::<L, A, $rows, 2>(l, input, out, update) },
                    )*
                    _ => unreachable!("a tile has at most {} rows", most_rows::<L>()),
                }
                rows -= step;
                input.a = input.a.below(step);
                out.ptr = out.ptr.wrapping_offset(step.cast_signed() * out.rows);
            }
        };
    }
    match L::REGISTERS {
        32 => tiles_of!(1 2 3 4 6 8 12),
        16 => tiles_of!(1 2 3 4 6),
        _ => tiles_of!(1 2 3 4),
    }
}

/// A tile of C: its start, the stride of its rows, and its number of columns, which are contiguous and at most `NV`
/// registers.
#[derive(Clone, Copy)]
pub struct Out<T> {
    pub ptr: *mut T,
    pub rows: isize,
    pub n: usize,
}

/// The layout of A's elements: an iterator over columns, and the offset of each row from the first.
pub trait Left<T>: Copy {
    /// The first row's element in the next column.
    ///
    /// # Safety
    /// There must be another column.
    unsafe fn next(&mut self) -> *const T;

    /// Offset of a row's elements from those of the first.
    ///
    /// # Safety
    /// The row must exist.
    unsafe fn row(&self, row: usize) -> isize;

    /// The part that begins `rows` rows further down.
    fn below(self, rows: usize) -> Self;
}

/// A matrix with strides.
#[derive(Clone, Copy)]
pub(super) struct Even<T> {
    pub(super) ptr: *const T,
    pub(super) rows: isize,
    pub(super) cols: isize,
}

impl<T: Copy> Left<T> for Even<T> {
    #[inline(always)]
    unsafe fn next(&mut self) -> *const T {
        let now = self.ptr;
        self.ptr = now.wrapping_offset(self.cols);
        now
    }

    #[inline(always)]
    unsafe fn row(&self, row: usize) -> isize {
        hidden(row.cast_signed() * self.rows)
    }

    #[inline(always)]
    fn below(self, rows: usize) -> Self {
        Self {
            ptr: self.ptr.wrapping_offset(rows.cast_signed() * self.rows),
            ..self
        }
    }
}

/// Hides a number's value from the compiler. If the compiler knew that row offsets are multiples of each other, it
/// would compute each row's address from the one before, a dependency chain that takes longer than the multiplications.
#[inline(always)]
fn hidden(x: isize) -> isize {
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
    let x = {
        let hidden;
        // SAFETY: it does nothing.
        unsafe {
            std::arch::asm!("/* {} */", inout(reg) x => hidden, options(pure, nomem, nostack, preserves_flags));
        }
        hidden
    };
    x
}

/// Windows of an image: the columns are the elements of a window, with a table of their offsets from `base`; the rows
/// are neighbouring windows, `STEP` elements apart.
#[derive(Clone, Copy)]
pub struct Windows<T, const STEP: usize> {
    pub base: *const T,
    pub places: *const isize,
}

impl<T: Copy, const STEP: usize> Left<T> for Windows<T, STEP> {
    #[inline(always)]
    unsafe fn next(&mut self) -> *const T {
        // SAFETY: the table has an entry for each column.
        let place = unsafe { self.places.read() };
        self.places = self.places.wrapping_add(1);
        self.base.wrapping_offset(place)
    }

    #[inline(always)]
    unsafe fn row(&self, row: usize) -> isize {
        (row * STEP).cast_signed()
    }

    #[inline(always)]
    fn below(self, rows: usize) -> Self {
        Self {
            base: self.base.wrapping_add(rows * STEP),
            ..self
        }
    }
}

/// Transposed windows: the rows are elements of a window, the columns are windows anywhere in the image. Groups of
/// `SIDE` rows are adjacent in memory, so fewer addresses are needed than there are rows.
#[derive(Clone, Copy)]
pub struct Turned<T, const SIDE: usize> {
    pub base: *const T,
    pub windows: *const isize,
    pub places: *const isize,
}

impl<T: Copy, const SIDE: usize> Left<T> for Turned<T, SIDE> {
    #[inline(always)]
    unsafe fn next(&mut self) -> *const T {
        // SAFETY: the table has an entry for each column.
        let window = unsafe { self.windows.read() };
        self.windows = self.windows.wrapping_add(1);
        self.base.wrapping_offset(window)
    }

    #[inline(always)]
    unsafe fn row(&self, row: usize) -> isize {
        // SAFETY: the table has an entry for each row.
        let first = unsafe { self.places.add(row / SIDE * SIDE).read() };
        first + (row % SIDE).cast_signed()
    }

    #[inline(always)]
    fn below(self, rows: usize) -> Self {
        Self {
            places: self.places.wrapping_add(rows),
            ..self
        }
    }
}

/// The rows of A and of B that a tile multiplies. B's columns are contiguous within a row.
#[derive(Clone, Copy)]
pub struct Input<T, A> {
    pub k: usize,
    pub a: A,
    pub b: *const T,
    pub b_rows: isize,
}

/// Multiplies `MR` rows.
///
/// # Safety
/// The rows of A must be readable, those of B to the end of the last register, whatever `n` is, and the tile of C
/// writable. `update.bias`, unless null, points at the tile's first column.
#[inline(always)]
unsafe fn tile<L: Lanes, A: Left<L::T>, const MR: usize, const NV: usize>(
    l: L,
    input: Input<L::T, A>,
    out: Out<L::T>,
    update: Update<L::T>,
) where
    L::T: Real,
{
    /// Repeats the body for each row, whose index is a constant: if the compiler does not unroll a tile's loops, the
    /// tile ends up in memory.
    macro_rules! each_row {
        (|$i:ident| $body:block) => {
            each_row!($i, $body, 0 1 2 3 4 5 6 7 8 9 10 11)
        };
        ($i:ident, $body:block, $($row:literal)*) => {$(
            if const { $row < MR } {
                const $i: usize = $row;
                $body
            }
        )*};
    }
    let Input { k, a, b, b_rows } = input;
    let last = out.n - (NV - 1) * L::N;
    // SAFETY: all addresses are within the rows and the tile, by the caller.
    unsafe {
        let zero = l.splat(L::T::ZERO);
        let mut acc = [[zero; NV]; MR];
        if !update.bias.is_null() {
            let mut bias = [zero; NV];
            for v in 0..NV {
                let from = update.bias.add(v * L::N);
                bias[v] = if v + 1 == NV {
                    l.load_part(from, last)
                } else {
                    l.load(from)
                };
            }
            each_row!(|I| { acc[I] = bias });
        }
        let mut a = a;
        let mut b = b;
        for _ in 0..k {
            let mut row = [zero; NV];
            for v in 0..NV {
                row[v] = l.load(b.add(v * L::N));
            }
            let column = a.next();
            each_row!(|I| {
                let x = l.splat(column.offset(a.row(I)).read());
                for v in 0..NV {
                    acc[I][v] = l.mul_add(x, row[v], acc[I][v]);
                }
            });
            b = b.wrapping_offset(b_rows);
        }
        let whole = last == L::N;
        if update.alpha == L::T::ONE && update.beta == L::T::ZERO && whole {
            each_row!(|I| {
                let to = out.ptr.offset(I as isize * out.rows);
                for v in 0..NV {
                    l.store(to.add(v * L::N), acc[I][v]);
                }
            });
            return;
        }
        // A loop over sums in memory: unrolled, this would be most of a tile's code, though it runs only once.
        let mut done = [[zero; NV]; MR];
        each_row!(|I| { done[I] = acc[I] });
        for row in 0..hidden(MR as isize) as usize {
            let to = out.ptr.offset(row as isize * out.rows);
            for v in 0..NV {
                let to = to.add(v * L::N);
                let n = if v + 1 < NV { L::N } else { last };
                let old = match (update.beta == L::T::ZERO, whole) {
                    (true, _) => zero,
                    (false, true) => l.load(to),
                    (false, false) => l.load_part(to, n),
                };
                let y = combine(l, done[row][v], old, update);
                match whole {
                    true => l.store(to, y),
                    false => l.store_part(to, n, y),
                }
            }
        }
    }
}

/// `α acc + β old`. If `β` is 0, `old` is ignored, even if it is NaN.
#[inline(always)]
fn combine<L: Lanes>(l: L, acc: L::V, old: L::V, update: Update<L::T>) -> L::V
where
    L::T: Real,
{
    let scaled = if update.alpha == L::T::ONE {
        acc
    } else {
        l.mul(acc, l.splat(update.alpha))
    };
    if update.beta == L::T::ZERO {
        scaled
    } else if update.beta == L::T::ONE {
        l.add(scaled, old)
    } else {
        l.mul_add(old, l.splat(update.beta), scaled)
    }
}
