//! Makes words of the bytes of an image.

use super::super::dot::{Dot, Work};
use super::super::pack::{Bytes, interleave};
use super::layout::{Layout, SURPLUS};
use crate::conv::geometry::{Extents, Geometry};

/// Words that are made at a time.
const WORDS: usize = 16;

/// Bytes after a line, which may be read.
const SLACK: usize = 3 * WORDS;

/// Writes the words that a box of output positions reads, border included.
pub(super) struct Fill<'a> {
    pub(super) g: &'a Geometry,
    pub(super) layout: &'a Layout,
    /// The channels of a group.
    pub(super) image: &'a [u8],
    pub(super) border: u8,
    /// The first output position.
    pub(super) first: Extents,
    /// Room for [`Layout::words`].
    pub(super) to: *mut u32,
    /// Room for [`lines`].
    pub(super) lines: *mut u8,
}

/// Bytes of a line, for one number of a word.
fn line(g: &Geometry, layout: &Layout) -> usize {
    let axis = &layout.axes[2];
    let last = axis.starts.iter().max().unwrap_or(&0) + (axis.extent - 1) * g.stride[2];
    last + (layout.numbers.across - 1) * g.dilation[2] + 1
}

/// Bytes of all lines of a word.
pub(super) fn lines(g: &Geometry, layout: &Layout) -> usize {
    (line(g, layout) + SLACK) * layout.numbers.group
}

impl Work for Fill<'_> {
    type Out = ();

    #[inline(always)]
    fn run<D: Dot>(self, _: D) {
        // SAFETY: the creator of the work guarantees that there is room.
        unsafe {
            match D::GROUP {
                4 => self.fill::<4>(),
                _ => self.fill::<2>(),
            }
        }
    }
}

impl Fill<'_> {
    /// # Safety
    /// There must be room for lines and words.
    #[inline(always)]
    unsafe fn fill<const G: usize>(&self) {
        let Self { g, layout, .. } = *self;
        let (axes, numbers) = (&layout.axes, layout.numbers);
        let width = axes[2].extent;
        let planes = axes[2].starts.len();
        // The part of a line that is inside the image, whose border is written once.
        let (need, start) = (line(g, layout), self.first[2] * g.stride[2]);
        let left = g.padding[2].saturating_sub(start).min(need);
        let from = (start + left).saturating_sub(g.padding[2]);
        let count = g.input[2].saturating_sub(from).min(need - left);
        let step = need + SLACK;
        let border = u32::from_ne_bytes([self.border; 4]);
        let border = if G == 4 { border } else { border & 0x00ff_00ff };
        let mut to = self.to;
        // SAFETY: there is room by the caller; positions are checked to be inside the image, whose channels the
        // creator of the work guarantees.
        unsafe {
            self.lines.write_bytes(self.border, G * step);
            for word in 0..numbers.words() {
                let places: [(usize, usize); G] = std::array::from_fn(|i| {
                    // The last number again after the last, where filters are 0.
                    numbers.place((word * G + i).min(numbers.count() - 1))
                });
                for &depths in &axes[0].starts {
                    for &heights in &axes[1].starts {
                        for plane in 0..planes {
                            let end = to.add((plane + 1) * layout.plane - SURPLUS);
                            end.cast::<[u32; SURPLUS]>().write_unaligned([0; SURPLUS]);
                        }
                        for at in 0..axes[0].extent * axes[1].extent {
                            let (z, y) = (at / axes[1].extent, at % axes[1].extent);
                            let row = inside(g, 0, self.first[0] + z, depths)
                                .zip(inside(g, 1, self.first[1] + y, heights))
                                .map(|(z, y)| (z * g.input[1] + y) * g.input[2] + from);
                            let to = to.add(at * width);
                            let Some(row) = row.filter(|_| count > 0) else {
                                for plane in 0..planes {
                                    let to = to.add(plane * layout.plane);
                                    std::slice::from_raw_parts_mut(to, width).fill(border);
                                }
                                continue;
                            };
                            for (i, (channel, _)) in places.into_iter().enumerate() {
                                let from = self.image.as_ptr().add(channel * g.plane() + row);
                                copy(from, self.lines.add(i * step + left), count);
                            }
                            for (plane, &start) in axes[2].starts.iter().enumerate() {
                                let lines = std::array::from_fn(|i| {
                                    self.lines
                                        .add(i * step + start + places[i].1 * g.dilation[2])
                                        .cast_const()
                                });
                                let to = to.add(plane * layout.plane);
                                match g.stride[2] {
                                    1 => join::<G, 1>(lines, 1, to, width),
                                    2 => join::<G, 2>(lines, 2, to, width),
                                    stride => join::<G, 0>(lines, stride, to, width),
                                }
                            }
                        }
                        to = to.add(planes * layout.plane);
                    }
                }
            }
        }
    }
}

/// Position in the image along an axis of a plane's element, or `None` if it is in the border.
#[inline(always)]
fn inside(g: &Geometry, axis: usize, element: usize, start: usize) -> Option<usize> {
    let place = (element * g.stride[axis] + start).checked_sub(g.padding[axis])?;
    Some(place).filter(|&place| place < g.input[axis])
}

/// Words of bytes of several lines that are `stride` apart, which is `STRIDE` if that is not 0. Writes up to 15 words
/// more.
///
/// # Safety
/// Lines must have the bytes and [`SLACK`] more, `to` the room.
#[inline(always)]
unsafe fn join<const G: usize, const STRIDE: usize>(lines: [*const u8; G], stride: usize, to: *mut u32, count: usize) {
    for first in (0..count).step_by(WORDS) {
        // SAFETY: by the caller.
        unsafe {
            let bytes = lines.map(|line| match STRIDE {
                1 => line.add(first).cast::<[u8; WORDS]>().read(),
                2 => {
                    let pairs = line.add(2 * first).cast::<[[u8; 2]; WORDS]>().read();
                    pairs.map(|pair| pair[0])
                }
                _ => std::array::from_fn(|i| line.add((first + i).min(count - 1) * stride).read()),
            });
            let mut words = [0; WORDS];
            interleave(bytes.each_ref().map(|line| &line[..]), Bytes::Unsigned, &mut words);
            to.add(first).cast::<[u32; WORDS]>().write_unaligned(words);
        }
    }
}

/// Copies few bytes without a call: the last whole part may overlap the one before it.
///
/// # Safety
/// `from` must be readable, `to` writable and apart from it.
#[inline(always)]
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, count: usize) {
    macro_rules! parts {
        ($size:literal) => {
            if count >= $size {
                // SAFETY: by the caller.
                unsafe {
                    let part = |at: usize| {
                        let part = from.add(at).cast::<[u8; $size]>().read();
                        to.add(at).cast::<[u8; $size]>().write(part);
                    };
                    (0..count - $size).step_by($size).for_each(part);
                    part(count - $size);
                }
                return;
            }
        };
    }
    parts!(16);
    parts!(8);
    parts!(4);
    parts!(1);
}
