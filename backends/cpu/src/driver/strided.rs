//! Runs of elements of any layout.

use polygrad_core::{Layout, Shape};

use crate::loops::{Nest, Operand};

/// Elements somewhere in memory, counted in row-major order.
pub(super) struct Strided {
    nest: Nest<1>,
    /// Whether they lie one after another.
    is_run: bool,
}

// SAFETY: the pointers are only followed by `read` and `write`, whose callers answer for that.
unsafe impl Send for Strided {}

impl Strided {
    /// The first element at `first`, which the layout's own offset does not move.
    pub(super) fn new(first: *const u8, size: usize, layout: &Layout) -> Self {
        let nest = Nest::new(layout.shape(), [Operand::strided(first, size, layout)]);
        Self {
            is_run: layout.is_contiguous(),
            nest,
        }
    }

    /// One value as any number of elements.
    pub(super) fn everywhere(value: *const u8, size: usize) -> Self {
        let many = Shape::from([isize::MAX.cast_unsigned() / 8]);
        Self::new(value, size, &Layout::strided(many, &[0], 0))
    }

    /// Whether all are the same memory.
    pub(super) fn is_one_value(&self) -> bool {
        self.nest.rank() == 1 && self.nest.step(0) == 0
    }

    /// The address of an element of those that lie one after another.
    pub(super) fn nth(&self, n: usize) -> *mut u8 {
        self.nest.base(0).wrapping_add(n * self.nest.size(0)).cast_mut()
    }

    /// Runs of elements at an even pace: for each its address, how many bytes are from one to the next, how many they
    /// are, and how many were before.
    fn runs(&self, first: usize, n: usize, mut each: impl FnMut(*const u8, isize, usize, usize)) {
        let (width, step) = (self.nest.width(), self.nest.step(0));
        let (mut row, mut column, mut done) = (first / width, first % width, 0);
        while done < n {
            let count = (width - column).min(n - done);
            let at = self.nest.row(0, row).wrapping_offset(column.cast_signed() * step);
            each(at, step, count, done);
            done += count;
            row += 1;
            column = 0;
        }
    }

    /// Copies `n` elements from number `first` on to where they lie in a row.
    ///
    /// # Safety
    /// They must be readable, the target writable and apart from them.
    pub(super) unsafe fn read(&self, first: usize, n: usize, to: *mut u8) {
        let size = self.nest.size(0);
        self.runs(first, n, |from, step, count, done| {
            // SAFETY: by the caller.
            unsafe { copy(from, step, to.add(done * size), size.cast_signed(), size, count) };
        });
    }

    /// Copies `n` elements that lie in a row to number `first` and those after it.
    ///
    /// # Safety
    /// They must be readable, and the places writable.
    pub(super) unsafe fn write(&self, first: usize, n: usize, from: *const u8) {
        let size = self.nest.size(0);
        if self.is_run {
            // SAFETY: by the caller; the same elements may have been asked for twice.
            unsafe { std::ptr::copy(from, self.nth(first), n * size) };
            return;
        }
        self.runs(first, n, |to, step, count, done| {
            // SAFETY: by the caller.
            unsafe {
                copy(
                    from.add(done * size),
                    size.cast_signed(),
                    to.cast_mut(),
                    step,
                    size,
                    count,
                )
            };
        });
    }
}

/// # Safety
/// `n` elements must be readable and writable at the steps given, in bytes, aligned to `size`, which is 1, 2, 4 or 8.
unsafe fn copy(from: *const u8, step: isize, to: *mut u8, to_step: isize, size: usize, n: usize) {
    let both = size.cast_signed();
    if step == both && to_step == both {
        // SAFETY: by the caller.
        unsafe { std::ptr::copy(from, to, n * size) };
        return;
    }
    // SAFETY: passed on.
    unsafe {
        match size {
            1 => copy_as::<u8>(from, step, to, to_step, n),
            2 => copy_as::<u16>(from, step, to, to_step, n),
            4 => copy_as::<u32>(from, step, to, to_step, n),
            _ => copy_as::<u64>(from, step, to, to_step, n),
        }
    }
}

/// # Safety
/// As for [`copy`].
unsafe fn copy_as<T: Copy>(from: *const u8, step: isize, to: *mut u8, to_step: isize, n: usize) {
    for i in 0..n.cast_signed() {
        // SAFETY: by the caller.
        unsafe {
            let value = from.offset(i * step).cast::<T>().read();
            to.offset(i * to_step).cast::<T>().write(value);
        }
    }
}
