//! What the windows of some output positions meet of an image, so that each tap finds what it needs of an output line
//! in one piece: border included, and the places of a line sorted by what is left of them by the stride.

use polygrad_core::Result;

use super::geometry::{Extents, Geometry};
use crate::buffers::Buffer;

/// Bytes are copied so many at a time, over the end of what is wanted.
pub(super) const AT_ONCE: usize = 16;

pub(super) struct Region<'g> {
    g: &'g Geometry,
    bytes: Buffer,
    /// Depths and lines.
    extents: [usize; 2],
    /// Bytes of the places of a line that leave the same by the stride.
    run: usize,
    lines: Vec<Line>,
}

/// A stretch of an output line.
struct Line {
    /// Where the first tap of the first channel finds it in the region.
    from: usize,
    /// Where it is among the output positions.
    to: usize,
    len: usize,
}

impl<'g> Region<'g> {
    /// Copies what output positions from `first` to before `last` meet; `border` is what lies around the image.
    ///
    /// # Errors
    /// When memory runs out.
    pub(super) fn new(g: &'g Geometry, image: &[u8], border: u8, (first, last): (usize, usize)) -> Result<Self> {
        let (low, past) = positions(g, first, last);
        let extents: Extents = std::array::from_fn(|axis| {
            (past[axis] - low[axis] - 1) * g.stride[axis] + (g.kernel[axis] - 1) * g.dilation[axis] + 1
        });
        let run = extents[2].div_ceil(g.stride[2]);
        let line = run * g.stride[2];
        let len = g.inputs * extents[0] * extents[1] * line;
        let bytes = Buffer::alloc(len + AT_ONCE)?;
        // SAFETY: the buffer has room for as many, and is written before it is read.
        let all = unsafe {
            bytes.as_ptr().write_bytes(border, len + AT_ONCE);
            std::slice::from_raw_parts_mut(bytes.as_ptr(), len)
        };
        for (at, to) in all.chunks_exact_mut(line).enumerate() {
            let (depth, height) = (at / extents[1] % extents[0], at % extents[1]);
            let inside = |axis: usize, place: usize| {
                let place = (low[axis] * g.stride[axis] + place).checked_sub(g.padding[axis])?;
                Some(place).filter(|&place| place < g.input[axis])
            };
            let meets = meets(g, 0, depth) && meets(g, 1, height);
            let (Some(depth), Some(height), true) = (inside(0, depth), inside(1, height), meets) else {
                continue;
            };
            let channel = at / (extents[0] * extents[1]);
            let from = ((channel * g.input[0] + depth) * g.input[1] + height) * g.input[2];
            sort(g, low[2], &image[from..][..g.input[2]], run, to);
        }
        let mut region = Self {
            g,
            bytes,
            extents: [extents[0], extents[1]],
            run,
            lines: Vec::new(),
        };
        region.lines = region.lines_of((first, last), low);
        Ok(region)
    }

    fn lines_of(&self, (first, last): (usize, usize), low: Extents) -> Vec<Line> {
        let ([_, height, width], g) = (self.g.output, self.g);
        let stretch = |line: usize| {
            let (at, end) = (first.max(line * width), last.min((line + 1) * width));
            let depth = (line / height - low[0]) * g.stride[0];
            let line = (line % height - low[1]) * g.stride[1];
            Line {
                from: (depth * self.extents[1] + line) * self.run * g.stride[2] + at % width - low[2],
                to: at - first,
                len: end - at,
            }
        };
        (first / width..last.div_ceil(width)).map(stretch).collect()
    }

    /// Writes what a tap of a channel meets, up to [`AT_ONCE`] bytes more than there are output positions.
    ///
    /// # Safety
    /// `to` must have room for them.
    pub(super) unsafe fn row(&self, channel: usize, tap: Extents, to: *mut u8) {
        let g = self.g;
        let [depth, line, place] = std::array::from_fn(|axis| tap[axis] * g.dilation[axis]);
        let line = (channel * self.extents[0] + depth) * self.extents[1] + line;
        let (left, steps) = (place % g.stride[2], place / g.stride[2]);
        let first = (line * g.stride[2] + left) * self.run + steps;
        for line in &self.lines {
            // SAFETY: the region has all that windows meet, and AT_ONCE bytes more; `to` by the caller.
            unsafe {
                let (from, to) = (self.bytes.as_ptr().add(first + line.from), to.add(line.to));
                for at in (0..line.len).step_by(AT_ONCE) {
                    std::ptr::copy_nonoverlapping(from.add(at), to.add(at), AT_ONCE);
                }
            }
        }
    }
}

/// The first output position along each axis, and one past the last, of those from `first` to before `last`.
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

/// Whether any tap meets a place along an axis.
fn meets(g: &Geometry, axis: usize, place: usize) -> bool {
    let stride = g.stride[axis];
    (0..g.kernel[axis]).any(|tap| tap * g.dilation[axis] % stride == place % stride)
}

/// Lays a line of an image out: first what is at multiples of the stride, seen from the window at output position
/// `low`, then what is behind these, and so on.
fn sort(g: &Geometry, low: usize, line: &[u8], run: usize, to: &mut [u8]) {
    let (stride, begin) = (g.stride[2], low * g.stride[2]);
    for (left, to) in to.chunks_exact_mut(run).enumerate() {
        let border = g.padding[2].saturating_sub(begin + left).div_ceil(stride);
        let from = begin + left + border * stride - g.padding[2];
        if from < line.len() && border < run && meets(g, 2, left) {
            let to = &mut to[border..];
            let count = to.len().min((line.len() - from).div_ceil(stride));
            take(&line[from..], stride, &mut to[..count]);
        }
    }
}

/// Every `stride`th byte.
#[inline(always)]
fn take(from: &[u8], stride: usize, to: &mut [u8]) {
    match (stride, to) {
        (1, to) => to.copy_from_slice(&from[..to.len()]),
        (2, [to @ .., last]) => {
            *last = from[2 * to.len()];
            // Whole pairs, which the compiler takes several of at a time.
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

    /// What a tap meets at an output position, by definition.
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
            let (input, kernel, stride, dilation) = (axes(1, 7), axes(1, 2), axes(1, 1), axes(1, 1));
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
            for row in 0..g.inputs * g.taps() {
                let (channel, tap) = (row / g.taps(), row % g.taps());
                let tap = [
                    tap / (kernel[1] * kernel[2]),
                    tap / kernel[2] % kernel[1],
                    tap % kernel[2],
                ];
                let mut found = vec![0; last - first + AT_ONCE];
                // SAFETY: there is room.
                unsafe { region.row(channel, tap, found.as_mut_ptr()) };
                let wanted: Vec<u8> = (first..last).map(|at| met(&g, &image, 0, channel, tap, at)).collect();
                assert_eq!(&found[..last - first], wanted, "{g:?}, {first}..{last}, {tap:?}");
            }
        }
    }
}
