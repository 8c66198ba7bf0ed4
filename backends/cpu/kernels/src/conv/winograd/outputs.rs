//! Computes tiles of outputs from the products.

use std::ops::Range;

use super::pixels::write;
use super::{Geometry, Tiles};
use crate::conv::Epilogue;
use crate::simd::{Kernel, Simd};

/// The tiles of some lines in some channels.
pub(super) struct Outputs<'a> {
    pub(super) g: &'a Geometry,
    pub(super) tiles: Tiles,
    /// Line numbers, counted over the batch.
    pub(super) lines: Range<usize>,
    /// The first channel, counted over all groups, and the number of channels.
    pub(super) first: usize,
    pub(super) channels: usize,
    /// Registers of channels for each patch element and tile: patch elements are `place` elements apart, tiles `step`
    /// elements.
    pub(super) from: *const f32,
    pub(super) step: usize,
    pub(super) place: usize,
    /// Scratch memory: a register for each pixel of the lines.
    pub(super) scratch: *mut f32,
    pub(super) epilogue: Option<&'a Epilogue<'a>>,
    /// The whole output.
    pub(super) to: *mut f32,
}

impl Kernel for Outputs<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let [_, height, width] = self.g.output;
        let plane = height * width;
        for channel in (0..self.channels).step_by(S::N) {
            let mut from = self.from.wrapping_add(channel);
            for (image, lines) in self.tiles.images(self.lines.clone()) {
                // SAFETY: the products have these tiles, the output these rows, columns and channels, the scratch
                // room for the pixels.
                unsafe {
                    for line in lines.clone() {
                        for tile in 0..self.tiles.width {
                            let pixels = transform(s, from, self.place);
                            from = from.wrapping_add(self.step);
                            for (i, v) in pixels.into_iter().enumerate() {
                                let (y, x) = (2 * line + i / 2, 2 * tile + i % 2);
                                if y < height && x < width {
                                    s.store(self.scratch.add(((y - 2 * lines.start) * width + x) * S::N), v);
                                }
                            }
                        }
                    }
                    let start = 2 * lines.start * width;
                    let pixels = (2 * lines.end).min(height) * width - start;
                    let first = self.first + channel;
                    let place = (image * self.g.groups * self.g.outputs + first) * plane + start;
                    let channels = S::N.min(self.channels - channel);
                    let size = (pixels, S::N);
                    if let Some(epilogue) = self.epilogue {
                        let bias = &epilogue.bias[first..first + channels];
                        epilogue.run_rows(s, bias, self.scratch, size);
                    }
                    write(s, self.scratch, pixels, self.to.add(place), channels, plane);
                    if let Some(epilogue) = self.epilogue.filter(|with| !with.ends_in_rows(channels, size)) {
                        for i in 0..channels {
                            epilogue.run(0.0, self.to, place + i * plane, pixels);
                        }
                    }
                }
            }
        }
    }
}

/// `Aᵀ M A`, row by row.
///
/// # Safety
/// There must be a register for each patch element, `place` elements apart.
#[inline(always)]
unsafe fn transform<S: Simd>(s: S, from: *const f32, place: usize) -> [S::V; 4] {
    let mut columns = [[s.splat(0.0); 2]; 4];
    for (x, column) in columns.iter_mut().enumerate() {
        // SAFETY: by the caller.
        let at = |y: usize| unsafe { s.load(from.add((y * 4 + x) * place)) };
        *column = two(s, at(0), at(1), at(2), at(3));
    }
    let [p, q, r, t] = columns;
    let ([a, b], [c, d]) = (two(s, p[0], q[0], r[0], t[0]), two(s, p[1], q[1], r[1], t[1]));
    [a, b, c, d]
}

/// `Aᵀ m`.
#[inline(always)]
fn two<S: Simd>(s: S, a: S::V, b: S::V, c: S::V, d: S::V) -> [S::V; 2] {
    [s.add(s.add(a, b), c), s.sub(s.sub(b, c), d)]
}
