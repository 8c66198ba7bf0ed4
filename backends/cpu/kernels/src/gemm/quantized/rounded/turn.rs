//! Transposes rows of a weight to columns.

use polygrad_core::Result;

use super::times::{Numbers, Registers};
use super::{Factors, Weight, Words};
use crate::simd::{Kernel, Simd};

/// Transposed rows of a weight, one per lane: lane `i` of each register belongs to row `i`.
pub(super) struct Columns {
    pub(super) lanes: usize,
    /// A register for each word of a row.
    words: Words,
    /// A register for each block, as f32.
    scales: Words,
    /// The same for zero points, unless there is a single integer one.
    zeros: Option<Words>,
    /// Factors of the rows, before the transposition.
    room: Words,
}

impl Columns {
    /// Room for any rows of a weight, one per lane.
    ///
    /// # Errors
    /// If memory runs out.
    pub(super) fn new(weight: &Weight, lanes: usize) -> Result<Self> {
        let (words, blocks) = (weight.words(), weight.blocks());
        let factors = || Words::new(blocks * lanes);
        // SAFETY: by the caller of the product.
        let each = unsafe { weight.whole_zero() }.is_none();
        Ok(Self {
            lanes,
            words: Words::new(words * lanes)?,
            scales: factors()?,
            zeros: each.then(factors).transpose()?,
            room: Words::new(blocks * lanes)?,
        })
    }

    /// The columns as registers.
    pub(super) fn registers(&self) -> Registers {
        Registers {
            words: self.words.ptr(),
            scales: Numbers::Floats(self.scales.ptr()),
            zeros: self.zeros.as_ref().map(|zeros| Numbers::Floats(zeros.ptr())),
            step: self.lanes,
            ahead: 0,
        }
    }
}

/// Fills columns; lanes without a row are 0.
pub(super) struct Turn<'a> {
    pub(super) weight: &'a Weight,
    /// The first row and the number of rows.
    pub(super) rows: (usize, usize),
    pub(super) to: &'a Columns,
}

impl Kernel for Turn<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (weight, to) = (self.weight, self.to);
        let ((first, count), words, blocks) = (self.rows, weight.words(), weight.blocks());
        let lanes = to.lanes;
        let from = weight.bytes.cast::<f32>().wrapping_add(first * words);
        // SAFETY: the rows are inside the weight, and there is room for one row per lane.
        unsafe {
            turn(s, (from, words, count), to.words.ptr(), lanes);
            self.factors(s, weight.scales, &to.scales);
            match (&to.zeros, weight.zeros.single()) {
                (Some(zeros), Some(zero)) => (0..blocks * lanes).for_each(|i| zeros.ptr::<f32>().add(i).write(zero)),
                (Some(zeros), None) => self.factors(s, weight.zeros, zeros),
                (None, _) => {}
            }
        }
    }
}

impl Turn<'_> {
    /// Transposes the factors of the rows' blocks.
    ///
    /// # Safety
    /// Each block must have its own factor.
    #[inline(always)]
    unsafe fn factors<S: Simd>(&self, s: S, of: Factors, turned: &Words) {
        let ((first, count), blocks, room) = (self.rows, self.weight.blocks(), self.to.room.ptr::<f32>());
        // SAFETY: the rows are inside the weight, and there is room for one row per lane.
        unsafe {
            let from = match of.floats(first * blocks) {
                Some(floats) => floats,
                None => {
                    of.read(first * blocks, count * blocks, room);
                    room
                }
            };
            turn(s, (from, blocks, count), turned.ptr(), self.to.lanes);
        }
    }
}

/// Transposes `count` rows of `words` numbers, in squares if they fit; the last square starts early enough to fit, and
/// may overlap the one before.
///
/// # Safety
/// The rows must be readable, and `to` must have room for one row per lane.
#[inline(always)]
unsafe fn turn<S: Simd>(s: S, (from, words, count): (*const f32, usize, usize), to: *mut f32, lanes: usize) {
    // SAFETY: by the caller.
    unsafe {
        if S::N != lanes || count < lanes || words < lanes {
            return turn_slowly((from, words, count), to, lanes);
        }
        for at in (0..words).step_by(S::N) {
            let at = at.min(words - S::N);
            // Prefetches the rows after these.
            for row in 0..S::N {
                s.prefetch(from.wrapping_add((lanes + row) * words + at).cast());
            }
            s.transpose(from.add(at), words.cast_signed(), to.add(at * lanes), lanes);
        }
    }
}

/// # Safety
/// As for [`turn`].
#[inline(always)]
unsafe fn turn_slowly((from, words, count): (*const f32, usize, usize), to: *mut f32, lanes: usize) {
    for at in 0..words {
        for row in 0..lanes {
            // Copies bits, since they may be any number. SAFETY: by the caller.
            unsafe {
                let word = if row < count {
                    from.cast::<u32>().add(row * words + at).read()
                } else {
                    0
                };
                to.cast::<u32>().add(at * lanes + row).write(word);
            }
        }
    }
}
