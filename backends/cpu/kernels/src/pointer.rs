//! Pointers shared by threads.

/// A pointer through which tasks on several threads write, each to a part of its own.
#[derive(Clone, Copy)]
pub struct Pointer<T>(pub *mut T);

// SAFETY: only an address is sent; the code that writes through it guarantees that threads write to separate parts.
unsafe impl<T> Send for Pointer<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Pointer<T> {}

impl<T> Pointer<T> {
    /// The address `n` elements further on.
    #[inline(always)]
    pub fn at(&self, n: usize) -> *mut T {
        self.0.wrapping_add(n)
    }
}
