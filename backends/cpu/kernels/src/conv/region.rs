//! A copy of the part of an image that the windows of some output positions cover, border included. The elements of a
//! line are sorted by their column modulo the stride, so that the elements that a tap needs for an output line are
//! contiguous.

use polygrad_core::Result;

use super::geometry::{Extents, Geometry};
use crate::buffers::Buffer;

/// Bytes of each copy, so the last copy of a stretch may run past its end.
pub const AT_ONCE: usize = 16;

pub struct Region {
    bytes: Buffer,
    /// Bytes of a channel.
    channel: usize,
    channels: usize,
    /// Offset of each tap in a channel.
    taps: Vec<usize>,
    lines: Vec<Line>,
}

/// A part of an output line.
struct Line {
    /// Offset in a channel of the first tap's elements for it.
    from: usize,
    /// Its start among the output positions.
    to: usize,
    len: usize,
}

/// Positions along an axis of the region: tap `t` of the `o`th output position reads `o * stride + t * step`.
#[derive(Clone, Copy)]
struct Axis {
    stride: usize,
    step: usize,
    extent: usize,
}

impl Axis {
    /// As in the image, if windows overlap enough. Otherwise each tap has elements of its own, so that neither large
    /// strides nor dilation make a region larger than the columns.
    fn new(stride: usize, dilation: usize, taps: usize, positions: usize) -> Self {
        let shared = (positions - 1) * stride + (taps - 1) * dilation + 1;
        let apart = taps * positions;
        match shared <= apart {
            true => Self {
                stride,
                step: dilation,
                extent: shared,
            },
            false => Self {
                stride: 1,
                step: positions,
                extent: apart,
            },
        }
    }
}

/// Elements of a line of the image, a stride of the convolution apart, that become contiguous.
struct Run {
    /// Column of the first of them in the image's line, and how many are inside it.
    from: usize,
    count: usize,
    /// Their target.
    to: usize,
}

impl Region {
    /// Copies the elements that output positions from `first` to before `last` read; `border` is the value around the
    /// image.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn new(g: &Geometry, image: &[u8], border: u8, (first, last): (usize, usize)) -> Result<Self> {
        let (low, past) = positions(g, first, last);
        let axes: [Axis; 3] = std::array::from_fn(|axis| {
            let positions = past[axis] - low[axis];
            Axis::new(g.stride[axis], g.dilation[axis], g.kernel[axis], positions)
        });
        let room = axes[2].extent.div_ceil(axes[2].stride);
        let line = room * axes[2].stride;
        let channel = axes[0].extent * axes[1].extent * line;
        let bytes = Buffer::alloc(g.inputs * channel + AT_ONCE)?;
        // SAFETY: the buffer has room for as many, and is written before it is read.
        let all = unsafe {
            bytes.as_ptr().write_bytes(border, g.inputs * channel + AT_ONCE);
            std::slice::from_raw_parts_mut(bytes.as_ptr(), g.inputs * channel)
        };
        let runs = runs(g, low[2], past[2] - low[2], axes[2]);
        let [depths, heights] = [0, 1].map(|axis| inside(g, axis, (low[axis], past[axis]), axes[axis]));
        for (to, image) in all.chunks_exact_mut(channel).zip(image.chunks_exact(g.plane())) {
            for &(place, depth) in &depths {
                for &(height, from) in &heights {
                    let to = &mut to[(place * axes[1].extent + height) * line..][..line];
                    let from = &image[(depth * g.input[1] + from) * g.input[2]..][..g.input[2]];
                    for run in &runs {
                        take(&from[run.from..], g.stride[2], &mut to[run.to..][..run.count]);
                    }
                }
            }
        }
        let place = |[depth, height, width]: Extents| {
            let stride = axes[2].stride;
            ((depth * axes[1].extent + height) * stride + width % stride) * room + width / stride
        };
        let [_, high, wide] = g.kernel;
        let tap = |tap: usize| {
            let tap = [tap / (high * wide), tap / wide % high, tap % wide];
            place(std::array::from_fn(|axis| tap[axis] * axes[axis].step))
        };
        let [_, height, width] = g.output;
        let stretch = |line: usize| {
            let (at, end) = (first.max(line * width), last.min((line + 1) * width));
            let of = [line / height, line % height, at % width];
            Line {
                from: place(std::array::from_fn(|axis| (of[axis] - low[axis]) * axes[axis].stride)),
                to: at - first,
                len: end - at,
            }
        };
        Ok(Self {
            bytes,
            channel,
            channels: g.inputs,
            taps: (0..g.taps()).map(tap).collect(),
            lines: (first / width..last.div_ceil(width)).map(stretch).collect(),
        })
    }

    /// Writes the elements that each tap of each channel reads, `count` bytes each, and up to [`AT_ONCE`] surplus bytes
    /// at the end.
    ///
    /// # Safety
    /// `to` must have room for them, and `count` be the number of output positions.
    pub unsafe fn columns(&self, mut to: *mut u8, count: usize) {
        for channel in 0..self.channels {
            for tap in &self.taps {
                for line in &self.lines {
                    // SAFETY: the region has all elements that windows read, and AT_ONCE bytes more; `to` by the
                    // caller. The next stretch overwrites the surplus bytes.
                    unsafe {
                        let from = self.bytes.as_ptr().add(channel * self.channel + tap + line.from);
                        let to = to.add(line.to);
                        let mut at = 0;
                        while at < line.len {
                            std::ptr::copy_nonoverlapping(from.add(at), to.add(at), AT_ONCE);
                            at += AT_ONCE;
                        }
                    }
                }
                to = to.wrapping_add(count);
            }
        }
    }
}

/// The first position along each axis, and one past the last, of the output positions from `first` to before `last`.
fn positions(g: &Geometry, first: usize, last: usize) -> (Extents, Extents) {
    let [_, height, width] = g.output;
    let place = |at: usize| [at / (height * width), at / width % height, at % width];
    let (first, last) = (place(first), place(last - 1));
    let (mut low, mut past) = ([0; 3], g.output);
    for axis in 0..3 {
        (low[axis], past[axis]) = (first[axis], last[axis] + 1);
        if first[axis] < last[axis] {
            break;
        }
    }
    (low, past)
}

/// Position in the image along an axis that a tap of an output position reads, or `None` if it is outside.
fn in_image(g: &Geometry, axis: usize, position: usize, tap: usize) -> Option<usize> {
    let place = (position * g.stride[axis] + tap * g.dilation[axis]).checked_sub(g.padding[axis])?;
    Some(place).filter(|&place| place < g.input[axis])
}

/// Along one of the first axes: the positions of a region that lie inside the image, each with its position in the
/// image.
fn inside(g: &Geometry, axis: usize, (low, past): (usize, usize), of: Axis) -> Vec<(usize, usize)> {
    let mut places = Vec::new();
    for position in low..past {
        for tap in 0..g.kernel[axis] {
            let place = (position - low) * of.stride + tap * of.step;
            places.extend(in_image(g, axis, position, tap).map(|at| (place, at)));
        }
    }
    places.sort_unstable();
    places.dedup();
    places
}

/// How a line of an image is copied for `positions` output positions from `low` on.
fn runs(g: &Geometry, low: usize, positions: usize, of: Axis) -> Vec<Run> {
    let (stride, taps) = (g.stride[2], g.kernel[2]);
    let room = of.extent.div_ceil(of.stride);
    // If windows share elements, those with the same column modulo the stride become contiguous, else those of one tap.
    let shared = of.step == g.dilation[2] && of.stride == stride;
    let starts: Vec<(usize, usize, usize)> = match shared {
        true => (0..stride).map(|left| (left, left * room, room)).collect(),
        false => (0..taps)
            .map(|tap| (tap * g.dilation[2], tap * positions, positions))
            .collect(),
    };
    let run = |(offset, to, room): (usize, usize, usize)| {
        let begin = low * stride + offset;
        let border = g.padding[2].saturating_sub(begin).div_ceil(stride);
        let from = begin + border * stride - g.padding[2];
        let inside = g.input[2].saturating_sub(from).div_ceil(stride);
        Run {
            from,
            count: room.saturating_sub(border).min(inside),
            to: to + border,
        }
    };
    starts.into_iter().map(run).filter(|run| run.count > 0).collect()
}

/// Copies every `stride`th byte.
#[inline(always)]
fn take(from: &[u8], stride: usize, to: &mut [u8]) {
    match (stride, to) {
        (1, to) => to.copy_from_slice(&from[..to.len()]),
        (2, [to @ .., last]) => {
            *last = from[2 * to.len()];
            // Whole pairs, several of which the compiler handles at a time.
            to.iter_mut()
                .zip(from.chunks_exact(2))
                .for_each(|(to, pair)| *to = pair[0]);
        }
        (_, to) => to
            .iter_mut()
            .zip(from.iter().step_by(stride))
            .for_each(|(to, x)| *to = *x),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The byte that a tap reads at an output position, by definition.
    fn met(g: &Geometry, image: &[u8], border: u8, channel: usize, tap: Extents, at: usize) -> u8 {
        let [_, height, width] = g.output;
        let output = [at / (height * width), at / width % height, at % width];
        let mut from = channel;
        for axis in 0..3 {
            let place = output[axis] * g.stride[axis] + tap[axis] * g.dilation[axis];
            match place.checked_sub(g.padding[axis]).filter(|&x| x < g.input[axis]) {
                Some(place) => from = from * g.input[axis] + place,
                None => return border,
            }
        }
        image[from]
    }

    #[test]
    fn taps_find_what_they_meet() {
        let mut seed = 7u64;
        let mut draw = |low: usize, high: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            low + (seed >> 33) as usize % (high - low + 1)
        };
        let mut tried = 0;
        while tried < 300 {
            let mut axes = |low, high| -> Extents { std::array::from_fn(|axis| draw(low, high * (axis + 1))) };
            let (input, kernel, stride, dilation) = (axes(1, 7), axes(1, 2), axes(1, 2), axes(1, 2));
            let padding = kernel.map(|extent| draw(0, extent - 1));
            let reach: Extents = std::array::from_fn(|axis| (kernel[axis] - 1) * dilation[axis] + 1);
            if (0..3).any(|axis| input[axis] + 2 * padding[axis] < reach[axis]) {
                continue;
            }
            tried += 1;
            let g = Geometry {
                batch: 1,
                groups: 1,
                inputs: draw(1, 3),
                outputs: 1,
                input,
                output: std::array::from_fn(|axis| (input[axis] + 2 * padding[axis] - reach[axis]) / stride[axis] + 1),
                kernel,
                stride,
                padding,
                dilation,
            };
            let image: Vec<u8> = (0..g.inputs * g.plane()).map(|_| draw(1, 255) as u8).collect();
            let first = draw(0, g.out_plane() - 1);
            let last = draw(first + 1, g.out_plane());
            let region = Region::new(&g, &image, 0, (first, last)).unwrap();
            let count = last - first;
            let mut found = vec![0; g.inputs * g.taps() * count + AT_ONCE];
            // SAFETY: there is room.
            unsafe { region.columns(found.as_mut_ptr(), count) };
            for (row, found) in found.chunks_exact(count).take(g.inputs * g.taps()).enumerate() {
                let (channel, tap) = (row / g.taps(), row % g.taps());
                let tap = [
                    tap / (kernel[1] * kernel[2]),
                    tap / kernel[2] % kernel[1],
                    tap % kernel[2],
                ];
                let wanted: Vec<u8> = (first..last).map(|at| met(&g, &image, 0, channel, tap, at)).collect();
                assert_eq!(found, wanted, "{g:?}, {first}..{last}, {tap:?}");
            }
        }
    }
}
