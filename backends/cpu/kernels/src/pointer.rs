//! Pointers that threads share.

/// A pointer that tasks on several threads write through, each to a part of its own.
#[derive(Clone, Copy)]
pub struct Pointer<T>(pub *mut T);

// SAFETY: whoever makes one sees to it that threads keep to their parts.
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
