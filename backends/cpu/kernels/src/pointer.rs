//! Pointers that threads share.

/// A pointer that tasks on several threads write through, each to a part of its own.
#[derive(Clone, Copy)]
pub struct Pointer<T>(pub *mut T);

// SAFETY: only an address is sent; those who write through it answer for threads that write to parts of their own.
unsafe impl<T> Send for Pointer<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Pointer<T> {}

impl<T> Pointer<T> {
    /// The address `n` elements on.
    #[inline(always)]
    pub fn at(&self, n: usize) -> *mut T {
        self.0.wrapping_add(n)
    }
}
