//! Values of thread-locals for a while.

use std::cell::Cell;
use std::thread::LocalKey;

/// Runs `f` while a thread-local has this value. The previous one returns afterwards, even if `f` panics.
#[doc(hidden)]
#[inline]
pub fn with_local<T, R>(key: &'static LocalKey<Cell<T>>, value: T, f: impl FnOnce() -> R) -> R {
    struct Restore<T: 'static>(&'static LocalKey<Cell<T>>, Option<T>);
    impl<T> Drop for Restore<T> {
        fn drop(&mut self) {
            if let Some(before) = self.1.take() {
                self.0.set(before);
            }
        }
    }
    let _restore = Restore(key, Some(key.replace(value)));
    f()
}
