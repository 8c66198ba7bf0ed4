//! How backends compute: what they decompose, and what they do on the host. This is observed rather than declared, so
//! that no declaration can be wrong.

use std::cell::{Cell, RefCell};

/// The result of [`observe`]: what it has seen on its thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The ops that were decomposed, by [`Op::variant`](crate::Op::variant).
    pub decomposed: Vec<&'static str>,
    /// Whether an op ran on the host because the device has no kernel for it.
    pub on_host: bool,
}

thread_local! {
    static ON: Cell<bool> = const { Cell::new(false) };
    static SEEN: RefCell<Seen> = RefCell::default();
    static COPIED: Cell<u64> = const { Cell::new(0) };
}

/// Runs `f`, and returns its result together with how this thread computed it. An outer observation
/// includes the inner ones.
pub fn observe<R>(f: impl FnOnce() -> R) -> (R, Seen) {
    /// The state of the observation around this one, restored even if `f` panics.
    struct Outer(bool, Seen);
    impl Drop for Outer {
        fn drop(&mut self) {
            ON.set(self.0);
            SEEN.set(std::mem::take(&mut self.1));
        }
    }
    let outer = Outer(ON.replace(true), SEEN.take());
    let result = f();
    let seen = SEEN.take();
    drop(outer);
    if ON.get() {
        SEEN.with_borrow_mut(|outer| {
            outer.decomposed.extend(&seen.decomposed);
            outer.on_host |= seen.on_host;
        });
    }
    (result, seen)
}

/// Records that an op is decomposed.
#[inline]
pub(crate) fn decomposed(variant: &'static str) {
    if ON.get() {
        SEEN.with_borrow_mut(|seen| seen.decomposed.push(variant));
    }
}

/// Records that the host computes an op for which the device has no kernel. Called by backends.
#[inline]
pub fn on_host() {
    if ON.get() {
        SEEN.with_borrow_mut(|seen| seen.on_host = true);
    }
}

/// Records that an update in place first had to copy a tensor of this many bytes, since its memory was shared. Called
/// by backends.
#[inline]
pub fn copied_to_update(bytes: usize) {
    COPIED.set(COPIED.get().wrapping_add(bytes as u64));
}

/// The bytes that updates in place have copied on this thread since it began.
#[inline]
pub fn bytes_copied_to_update() -> u64 {
    COPIED.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outer_observation_includes_the_inner_one() {
        let (inner, outer) = observe(|| {
            decomposed("Before");
            let ((), inner) = observe(|| {
                decomposed("Within");
                on_host();
            });
            decomposed("After");
            inner
        });
        assert_eq!((inner.decomposed, inner.on_host), (vec!["Within"], true));
        assert_eq!(
            (outer.decomposed, outer.on_host),
            (vec!["Before", "Within", "After"], true)
        );
        decomposed("Unobserved");
        assert_eq!(observe(|| ()).1, Seen::default());
    }
}
