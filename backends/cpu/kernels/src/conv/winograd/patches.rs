//! Transforms patches of inputs and tiles of the output's gradient.

use std::ops::Range;

use super::pixels::{Frame, Planes};
use super::{PLACES, Tiles};
use crate::simd::{Kernel, Simd};

/// The kind of tile that is transformed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Patches of 4 × 4 inputs: `Bᵀ d B`.
    Inputs,
    /// Tiles of 2 × 2 outputs: `A e Aᵀ`.
    Outputs,
}

impl Form {
    /// Side of a tile in pixels.
    fn side(self) -> usize {
        match self {
            Self::Inputs => 4,
            Self::Outputs => 2,
        }
    }
}

/// Some lines of tiles, for a register of channels.
pub(super) struct Patches {
    pub(super) form: Form,
    pub(super) tiles: Tiles,
    pub(super) planes: Planes,
    pub(super) frame: Frame,
    /// Line numbers, counted over the batch.
    pub(super) lines: Range<usize>,
    /// Scratch memory of [`room`] elements, all 0.
    pub(super) scratch: *mut f32,
    /// A register of channels for each patch element and tile: patch elements are `place` elements apart, tiles `step`
    /// elements.
    pub(super) to: *mut f32,
    pub(super) step: usize,
    pub(super) place: usize,
}

/// Number of elements of the pixels that `lines` lines need.
pub(super) fn room(form: Form, frame: Frame, lines: usize, lanes: usize) -> usize {
    (2 * lines + form.side()) * frame.columns * lanes
}

impl Kernel for Patches {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { tiles, frame, .. } = self;
        let row = frame.columns * S::N;
        let mut to = self.to;
        for (image, lines) in tiles.images(self.lines.clone()) {
            // SAFETY: the lines are in the batch; there is room for their pixels and tiles.
            unsafe {
                let rows = 2 * lines.start..2 * (lines.end - 1) + self.form.side();
                self.planes.read(s, image, frame, rows, self.scratch);
                for line in 0..lines.len() {
                    for tile in 0..tiles.width {
                        let from = self.scratch.add(2 * line * row + 2 * tile * S::N);
                        let values = match self.form {
                            Form::Inputs => inputs(s, from, row),
                            Form::Outputs => outputs(s, from, row),
                        };
                        for (place, v) in values.into_iter().enumerate() {
                            s.store(to.add(place * self.place), v);
                        }
                        to = to.wrapping_add(self.step);
                    }
                }
            }
        }
    }
}

/// `Bᵀ d B`.
///
/// # Safety
/// There must be four rows of four pixels, `row` elements apart.
#[inline(always)]
unsafe fn inputs<S: Simd>(s: S, from: *const f32, row: usize) -> [S::V; PLACES] {
    let mut columns = [[s.splat(0.0); 4]; 4];
    for (x, column) in columns.iter_mut().enumerate() {
        // SAFETY: by the caller.
        let at = |y: usize| unsafe { s.load(from.add(y * row + x * S::N)) };
        *column = four(s, at(0), at(1), at(2), at(3));
    }
    let mut places = [s.splat(0.0); PLACES];
    let [a, b, c, d] = columns;
    for y in 0..4 {
        [places[4 * y], places[4 * y + 1], places[4 * y + 2], places[4 * y + 3]] = four(s, a[y], b[y], c[y], d[y]);
    }
    places
}

/// `Bᵀ d`.
#[inline(always)]
fn four<S: Simd>(s: S, a: S::V, b: S::V, c: S::V, d: S::V) -> [S::V; 4] {
    [s.sub(a, c), s.add(b, c), s.sub(c, b), s.sub(b, d)]
}

/// `A e Aᵀ`.
///
/// # Safety
/// There must be two rows of two pixels, `row` elements apart.
#[inline(always)]
unsafe fn outputs<S: Simd>(s: S, from: *const f32, row: usize) -> [S::V; PLACES] {
    // SAFETY: by the caller.
    let at = |y: usize, x: usize| unsafe { s.load(from.add(y * row + x * S::N)) };
    let (even, odd) = (spread(s, at(0, 0), at(1, 0)), spread(s, at(0, 1), at(1, 1)));
    let mut places = [s.splat(0.0); PLACES];
    for y in 0..4 {
        [places[4 * y], places[4 * y + 1], places[4 * y + 2], places[4 * y + 3]] = spread(s, even[y], odd[y]);
    }
    places
}

/// `A e`.
#[inline(always)]
fn spread<S: Simd>(s: S, a: S::V, b: S::V) -> [S::V; 4] {
    [a, s.add(a, b), s.sub(a, b), s.neg(b)]
}
