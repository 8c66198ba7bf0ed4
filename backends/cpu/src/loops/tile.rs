//! Small buffers into which operands are gathered.

use std::mem::MaybeUninit;

use super::Nest;

/// Elements in a tile: with eight bytes each, three of them fit the first-level cache of any CPU.
pub(super) const TILE: usize = 512;

/// Room for [`TILE`] elements of up to eight bytes.
#[repr(align(64))]
pub(super) struct Scratch(#[expect(dead_code, reason = "used by its address alone")] [u8; TILE * 8]);

/// The buffer into which one operand is gathered.
pub(super) struct Tile<'a> {
    /// Separate from the fields about it, so that it need not be initialized before use.
    room: &'a mut MaybeUninit<Scratch>,
    /// If the tile is filled with one value: its address, and the number of copies.
    filled: (*const u8, usize),
}

impl<'a> Tile<'a> {
    pub(super) fn new(room: &'a mut MaybeUninit<Scratch>) -> Self {
        Self {
            room,
            filled: (std::ptr::null(), 0),
        }
    }

    /// Elements `column..column + n` of a row: in place if they are contiguous, else gathered. If they are gathered,
    /// `n` is at most [`TILE`].
    ///
    /// # Safety
    /// The elements must be readable.
    pub(super) unsafe fn segment<const N: usize>(
        &mut self,
        nest: &Nest<N>,
        k: usize,
        row: usize,
        column: usize,
        n: usize,
    ) -> *const u8 {
        let step = nest.step(k);
        let from = nest.row(k, row).wrapping_offset(column.cast_signed() * step);
        if nest.is_direct(k) {
            return from;
        }
        debug_assert!(n <= TILE);
        let to: *mut u8 = self.room.as_mut_ptr().cast();
        let known = step == 0 && self.filled.0 == from && self.filled.1 >= n;
        if !known {
            // SAFETY: the source by the caller; the tile has room for `n` elements.
            unsafe { gather(from, step, nest.size(k), n, to) };
            self.filled = if step == 0 { (from, n) } else { (std::ptr::null(), 0) };
        }
        to
    }

    /// `n` elements, at most [`TILE`], from number `first` on in row-major order, from as many rows as needed: in place
    /// if they are contiguous, else gathered.
    ///
    /// # Safety
    /// The elements must be readable.
    pub(super) unsafe fn fill<const N: usize>(
        &mut self,
        nest: &Nest<N>,
        k: usize,
        first: usize,
        n: usize,
    ) -> *const u8 {
        if nest.is_run(k) {
            return nest.base(k).wrapping_add(first * nest.size(k));
        }
        let to = self.room.as_mut_ptr();
        // SAFETY: the source by the caller; the tile has room for `n` elements.
        unsafe {
            match nest.size(k) {
                1 => gather_rows::<u8, N>(nest, k, first, n, to.cast()),
                2 => gather_rows::<u16, N>(nest, k, first, n, to.cast()),
                4 => gather_rows::<u32, N>(nest, k, first, n, to.cast()),
                _ => gather_rows::<u64, N>(nest, k, first, n, to.cast()),
            }
        }
        to.cast()
    }

    /// `n` copies of an element, at most [`TILE`].
    ///
    /// # Safety
    /// The element must be readable, and its size be 1, 2, 4 or 8.
    pub(super) unsafe fn repeat(&mut self, from: *const u8, size: usize, n: usize) -> *const u8 {
        let to: *mut u8 = self.room.as_mut_ptr().cast();
        // SAFETY: the source by the caller; the tile has room for `n` elements.
        unsafe { gather(from, 0, size, n, to) };
        to
    }
}

/// Copies `n` elements from number `first` on to contiguous memory.
///
/// # Safety
/// As for [`Tile::fill`]; the target must be writable.
unsafe fn gather_rows<T: Copy, const N: usize>(nest: &Nest<N>, k: usize, first: usize, n: usize, to: *mut T) {
    let (width, step) = (nest.width(), nest.step(k));
    let (mut row, mut column, mut done) = (first / width, first % width, 0);
    let mut from = nest.row(k, row);
    while done < n {
        let count = (width - column).min(n - done);
        for i in 0..count {
            let from = from.wrapping_offset((column + i).cast_signed() * step);
            // SAFETY: by the caller.
            unsafe { to.add(done + i).write(from.cast::<T>().read()) };
        }
        done += count;
        row += 1;
        column = 0;
        from = match nest.rank() {
            2 => from.wrapping_offset(nest.stride(k, 1)),
            _ => nest.row(k, row),
        };
    }
}

/// Copies `n` elements of `size` bytes, `step` bytes apart, to contiguous memory.
///
/// # Safety
/// The elements must be readable, and the target writable and apart from them. `size` is 1, 2, 4 or 8, and both sides
/// are aligned to it.
unsafe fn gather(from: *const u8, step: isize, size: usize, n: usize, to: *mut u8) {
    // SAFETY: by the caller.
    unsafe {
        match size {
            1 => gather_as::<u8>(from, step, n, to),
            2 => gather_as::<u16>(from, step, n, to),
            4 => gather_as::<u32>(from, step, n, to),
            _ => gather_as::<u64>(from, step, n, to),
        }
    }
}

/// # Safety
/// As for [`gather`].
#[inline]
unsafe fn gather_as<T: Copy>(from: *const u8, step: isize, n: usize, to: *mut u8) {
    let to: *mut T = to.cast();
    // SAFETY: by the caller.
    unsafe {
        if step == size_of::<T>().cast_signed() {
            std::ptr::copy_nonoverlapping(from.cast::<T>(), to, n);
        } else if step == 0 {
            let value = from.cast::<T>().read();
            for i in 0..n {
                to.add(i).write(value);
            }
        } else {
            for i in 0..n {
                to.add(i).write(from.offset(i.cast_signed() * step).cast::<T>().read());
            }
        }
    }
}
