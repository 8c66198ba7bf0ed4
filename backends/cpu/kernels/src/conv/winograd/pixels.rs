//! Images with interleaved channels, a register of channels per pixel, as the transforms take them.

use std::ops::Range;

use crate::simd::Simd;

/// Planes of some channels, at most as many as a register has lanes.
#[derive(Clone, Copy)]
pub(super) struct Planes {
    /// The first channel in the first image.
    pub(super) from: *const f32,
    pub(super) channels: usize,
    pub(super) height: usize,
    pub(super) width: usize,
    /// Elements from one image to the next.
    pub(super) image: usize,
}

/// Rows of pixels, with a border around the image.
#[derive(Clone, Copy)]
pub(super) struct Frame {
    /// Pixels of the border above and on the left.
    pub(super) border: [usize; 2],
    /// Pixels of a row, including the border.
    pub(super) columns: usize,
}

impl Planes {
    /// Elements of a plane.
    pub(super) fn plane(&self) -> usize {
        self.height * self.width
    }

    /// Reads rows of an image, counted with the border, as pixels of one register each. Lanes of the border and of
    /// missing channels are 0.
    ///
    /// # Safety
    /// The planes must have the image, and `to` room for the rows, whose borders on the left and right are 0 already.
    #[inline(always)]
    pub(super) unsafe fn read<S: Simd>(&self, s: S, image: usize, frame: Frame, rows: Range<usize>, to: *mut f32) {
        let (row, step) = (frame.columns * S::N, self.plane());
        let [above, left] = frame.border;
        let inside = rows.start.max(above)..rows.end.min(above + self.height);
        // SAFETY: by the caller; squares are inside the planes, and pixels inside the rows.
        unsafe {
            for y in rows.clone().filter(|y| !inside.contains(y)) {
                to.add((y - rows.start) * row).write_bytes(0, row);
            }
            if inside.is_empty() {
                return;
            }
            let from = self.from.add(image * self.image);
            let place = |pixel: usize| {
                let (y, x) = (pixel / self.width + above - rows.start, pixel % self.width + left);
                to.add(y * row + x * S::N)
            };
            let pixels = (inside.start - above) * self.width..(inside.end - above) * self.width;
            if self.channels < S::N || pixels.len() < S::N {
                for pixel in pixels {
                    for channel in 0..S::N {
                        let value = if channel < self.channels {
                            from.add(channel * step + pixel).read()
                        } else {
                            0.0
                        };
                        place(pixel).add(channel).write(value);
                    }
                }
                return;
            }
            if self.width.is_multiple_of(S::N) {
                for pixel in pixels.step_by(S::N) {
                    s.transpose(from.add(pixel), step.cast_signed(), place(pixel), S::N);
                }
                return;
            }
            // Registers have at most 16 lanes.
            let mut square = [0f32; 16 * 16];
            for first in pixels.clone().step_by(S::N) {
                // The last square overlaps the one before.
                let first = first.min(pixels.end - S::N);
                s.transpose(from.add(first), step.cast_signed(), square.as_mut_ptr(), S::N);
                for i in 0..S::N {
                    s.store(place(first + i), s.load(square.as_ptr().add(i * S::N)));
                }
            }
        }
    }
}

/// Writes pixels of one register each into planes that are `step` elements apart.
///
/// # Safety
/// The pixels must be readable, and the planes have room for them.
#[inline(always)]
pub(super) unsafe fn write<S: Simd>(s: S, from: *const f32, pixels: usize, to: *mut f32, channels: usize, step: usize) {
    // SAFETY: by the caller; squares are inside the planes.
    unsafe {
        if channels < S::N || pixels < S::N {
            for channel in 0..channels {
                for pixel in 0..pixels {
                    let value = from.add(pixel * S::N + channel).read();
                    to.add(channel * step + pixel).write(value);
                }
            }
            return;
        }
        for first in (0..pixels).step_by(S::N) {
            // The last square overlaps the one before.
            let first = first.min(pixels - S::N);
            s.transpose(from.add(first * S::N), S::N.cast_signed(), to.add(first), step);
        }
    }
}
