//! Runs of elements of any layout.

use polygrad_core::{Layout, Shape};

use crate::loops::{Nest, Operand};

/// Elements in memory of any layout, counted in row-major order.
pub(super) struct Strided {
    nest: Nest<1>,
    /// Whether they are contiguous.
    is_run: bool,
}

// SAFETY: the pointers are only dereferenced by `read` and `write`, whose callers guarantee that they are valid.
unsafe impl Send for Strided {}

impl Strided {
    /// The first element is at `first`; the layout's own offset is ignored.
    pub(super) fn new(first: *const u8, size: usize, layout: &Layout) -> Self {
        let nest = Nest::new(layout.shape(), [Operand::strided(first, size, layout)]);
        Self {
            is_run: layout.is_contiguous(),
            nest,
        }
    }

    /// One value, repeated any number of times.
    pub(super) fn everywhere(value: *const u8, size: usize) -> Self {
        let many = Shape::from([isize::MAX.cast_unsigned() / 8]);
        Self::new(value, size, &Layout::strided(many, &[0], 0))
    }

    /// Whether all elements are the same memory.
    pub(super) fn is_one_value(&self) -> bool {
        self.nest.rank() == 1 && self.nest.step(0) == 0
    }

    /// The address of element `n`, if the elements are contiguous.
    pub(super) fn nth(&self, n: usize) -> *mut u8 {
        self.nest.base(0).wrapping_add(n * self.nest.size(0)).cast_mut()
    }

    /// Calls `each` for each run of evenly spaced elements, with its address, the bytes from one element to the next,
    /// the number of elements, and the number of elements before the run.
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

    /// Copies `n` elements from number `first` on to contiguous memory.
    ///
    /// # Safety
    /// The elements must be readable, the target writable, and the two must not overlap.
    pub(super) unsafe fn read(&self, first: usize, n: usize, to: *mut u8) {
        let size = self.nest.size(0);
        self.runs(first, n, |from, step, count, done| {
            // SAFETY: by the caller.
            unsafe { copy(from, step, to.add(done * size), size.cast_signed(), size, count) };
        });
    }

    /// Copies `n` contiguous elements to number `first` and those after it.
    ///
    /// # Safety
    /// The elements must be readable, and the target writable.
    pub(super) unsafe fn write(&self, first: usize, n: usize, from: *const u8) {
        let size = self.nest.size(0);
        if self.is_run {
            // SAFETY: by the caller; source and target may be the same elements.
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
    // SAFETY: by the caller.
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
