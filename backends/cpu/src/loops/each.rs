//! Loops that the compiler vectorizes by itself.

use std::mem::MaybeUninit;

use crate::simd::{Kernel, Simd};

/// Bytes of a cache line.
const LINE: usize = 64;

/// A result whose elements are computed independently.
pub(crate) trait Each {
    type T: Copy;

    /// Element `i`. Must be `#[inline(always)]`.
    ///
    /// # Safety
    /// The element must exist.
    unsafe fn at(&self, i: usize) -> Self::T;
}

/// Writes the first `n` elements.
pub(crate) struct Fill<E: Each> {
    pub(crate) each: E,
    pub(crate) to: *mut E::T,
    pub(crate) n: usize,
}

#[repr(align(64))]
struct Line(#[expect(dead_code, reason = "used by its address alone")] [u8; LINE]);

impl<E: Each> Kernel for Fill<E> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { each, to, n } = self;
        let mut done = 0;
        // SAFETY: all elements are among the first `n`; the creator of the `Fill` guarantees valid pointers.
        unsafe {
            // Not for bytes: they rarely fill enough memory to bypass the caches, and each op would get more code.
            if size_of::<E::T>() > 1 && s.past() {
                let most = LINE / size_of::<E::T>();
                let head = (to.addr().wrapping_neg() % LINE / size_of::<E::T>()).min(n);
                for i in 0..head {
                    to.add(i).write(each.at(i));
                }
                done = head;
                while done + most <= n {
                    let mut line = MaybeUninit::<Line>::uninit();
                    let elements: *mut E::T = line.as_mut_ptr().cast();
                    for i in 0..most {
                        elements.add(i).write(each.at(done + i));
                    }
                    let (from, to) = (line.as_ptr().cast::<f32>(), to.add(done).cast::<f32>());
                    for i in (0..LINE / size_of::<f32>()).step_by(S::N) {
                        s.stream(to.add(i), s.load(from.add(i)));
                    }
                    done += most;
                }
            }
            for i in done..n {
                to.add(i).write(each.at(i));
            }
        }
    }
}
