//! Where the words of an image lie, which of them each group of numbers reads, and which output positions a register
//! covers.

use super::super::dot::Way;
use crate::conv::geometry::{Extents, Geometry};

/// Words after each plane, which registers may read, and which the last line of a plane may overwrite.
pub(super) const SURPLUS: usize = 16;

/// Registers of output positions whose sums are kept at a time.
pub(super) const AT_ONCE: usize = 16;

/// How numbers become words: those that a word holds are adjacent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grouping {
    /// Channels of a group.
    pub(super) channels: usize,
    /// Taps along the last axis that count as channels: 1 or all.
    pub(super) across: usize,
    /// Grouping in a word.
    pub(super) group: usize,
}

impl Grouping {
    /// The form with the fewest words for each output: with few channels, neighbouring taps share a word.
    pub(super) fn of(channels: usize, kernel: Extents, group: usize) -> Self {
        let of = |across| Self {
            channels,
            across,
            group,
        };
        let words = |numbers: Self| numbers.words() * kernel[2] / numbers.across;
        let (apart, joined) = (of(1), of(kernel[2].max(1)));
        if words(joined) < words(apart) { joined } else { apart }
    }

    pub(super) fn count(self) -> usize {
        self.channels * self.across
    }

    /// The number of words that hold all numbers.
    pub(super) fn words(self) -> usize {
        self.count().div_ceil(self.group)
    }

    /// Channel and tap of a number.
    pub(super) fn place(self, number: usize) -> (usize, usize) {
        (number / self.across, number % self.across)
    }

    /// Whether the taps that count as channels are those of this kernel.
    pub(super) fn fits(self, kernel: Extents) -> bool {
        self.across == 1 || self.across == kernel[2]
    }

    /// Taps along each axis that have words of their own.
    pub(super) fn taps(self, kernel: Extents) -> Extents {
        [kernel[0], kernel[1], kernel[2] / self.across]
    }
}

/// One axis of the planes into which the positions of an image are sorted.
pub(super) struct Axis {
    /// For each plane, the first position that it holds, counted from the border's first; the others follow at
    /// distances of the stride.
    pub(super) starts: Vec<usize>,
    /// For each tap, its plane, and its element there for the first output position.
    taps: Vec<(usize, usize)>,
    /// Elements of a plane.
    pub(super) extent: usize,
}

impl Axis {
    /// Planes of positions with the same remainder by the stride. One for each tap if that is wanted, or if windows
    /// hardly overlap, so that neither large strides nor dilation give more elements than windows have.
    fn new(stride: usize, dilation: usize, taps: usize, outputs: usize, apart: bool) -> Self {
        let mut starts: Vec<usize> = (0..taps.min(stride)).map(|tap| tap * dilation % stride).collect();
        starts.sort_unstable();
        starts.dedup();
        let extent = outputs + (taps - 1) * dilation / stride;
        if apart || starts.len() * extent > taps * outputs {
            return Self {
                starts: (0..taps).map(|tap| tap * dilation).collect(),
                taps: (0..taps).map(|tap| (tap, 0)).collect(),
                extent: outputs,
            };
        }
        let place = |tap: usize| {
            let at = tap * dilation;
            let plane = starts.iter().position(|&start| start == at % stride);
            (plane.unwrap_or(0), at / stride)
        };
        Self {
            taps: (0..taps).map(place).collect(),
            starts,
            extent,
        }
    }
}

/// The words that a box of output positions reads.
pub(super) struct Layout {
    pub(super) numbers: Grouping,
    pub(super) axes: [Axis; 3],
    /// Words of a plane.
    pub(super) plane: usize,
    /// For each word of a filter, where the image's word for the first output position is.
    pub(super) offsets: Vec<usize>,
    pub(super) chunks: Vec<Chunk>,
}

/// Output positions whose sums are kept at a time.
#[derive(Default)]
pub(super) struct Chunk {
    /// The first word of each register's positions, from that of the first output position.
    pub(super) places: Vec<usize>,
    pub(super) runs: Vec<Run>,
}

/// Neighbouring output positions whose sums are neighbours.
pub(super) struct Run {
    /// Their place among the sums of a chunk.
    pub(super) from: usize,
    /// Their place in the output, from that of the first output position.
    pub(super) to: usize,
    pub(super) len: usize,
}

impl Layout {
    pub(super) fn new(g: &Geometry, numbers: Grouping, way: Way, extents: Extents) -> Self {
        let axes = axes(g, numbers, way, extents);
        let [depth, height, width] = [0, 1, 2].map(|axis| axes[axis].extent);
        let plane = depth * height * width + SURPLUS;
        let [_, rows, columns] = [0, 1, 2].map(|axis| axes[axis].starts.len());
        let planes: usize = axes.iter().map(|axis| axis.starts.len()).product();
        let mut offsets = Vec::with_capacity(numbers.words() * g.taps());
        for word in 0..numbers.words() {
            for &(p, z) in &axes[0].taps {
                for &(q, y) in &axes[1].taps {
                    for &(r, x) in &axes[2].taps {
                        let at = ((word * planes) + (p * rows + q) * columns + r) * plane;
                        offsets.push(at + (z * height + y) * width + x);
                    }
                }
            }
        }
        let chunks = chunks(g, extents, [height, width], way.lanes());
        Self {
            numbers,
            axes,
            plane,
            offsets,
            chunks,
        }
    }

    /// Words of the image.
    pub(super) fn words(&self) -> usize {
        let planes: usize = self.axes.iter().map(|axis| axis.starts.len()).product();
        planes * self.numbers.words() * self.plane
    }
}

/// The axes of the planes. If lines have a plane for each tap, outputs of neighbouring lines are neighbours there,
/// which fills the registers of narrow images, and takes more words.
fn axes(g: &Geometry, numbers: Grouping, way: Way, extents: Extents) -> [Axis; 3] {
    let taps = numbers.taps(g.kernel);
    let [shared, apart] = [false, true].map(|apart| -> [Axis; 3] {
        std::array::from_fn(|axis| {
            let apart = apart && axis == 2;
            Axis::new(g.stride[axis], g.dilation[axis], taps[axis], extents[axis], apart)
        })
    });
    let cost = |axes: &[Axis; 3]| {
        let registers = registers(extents, [axes[1].extent, axes[2].extent], way.lanes());
        registers * taps.iter().product::<usize>() * g.outputs + elements(axes)
    };
    if cost(&apart) < cost(&shared) { apart } else { shared }
}

/// Elements of all planes.
fn elements(axes: &[Axis; 3]) -> usize {
    axes.iter().map(|axis| axis.starts.len() * axis.extent).product()
}

/// Approximate number of words of the image for a box.
pub(super) fn words(g: &Geometry, numbers: Grouping, way: Way, extents: Extents) -> usize {
    elements(&axes(g, numbers, way, extents)) * numbers.words()
}

/// The number of registers that [`chunks`] gives.
fn registers([depths, rows, columns]: Extents, [height, width]: [usize; 2], lanes: usize) -> usize {
    let (mut count, mut past) = (0, 0);
    for line in 0..depths * rows {
        let start = (line / rows * height + line % rows) * width;
        let at = start.max(past);
        let more = (start + columns).saturating_sub(at).div_ceil(lanes);
        (count, past) = (count + more, past.max(at + more * lanes));
    }
    count
}

/// The registers that cover all output positions. A register may hold the end of a line and the beginning of the next,
/// with what lies between them.
fn chunks(g: &Geometry, [depths, rows, columns]: Extents, [height, width]: [usize; 2], lanes: usize) -> Vec<Chunk> {
    let mut chunks = vec![Chunk::default()];
    // Past the last register.
    let mut past = 0;
    for line in 0..depths * rows {
        let (depth, row) = (line / rows, line % rows);
        let start = (depth * height + row) * width;
        let mut column = 0;
        while column < columns {
            let at = start + column;
            if at >= past {
                if chunks.last().is_some_and(|chunk| chunk.places.len() == AT_ONCE) {
                    chunks.push(Chunk::default());
                }
                past = at + lanes;
                chunks.last_mut().into_iter().for_each(|chunk| chunk.places.push(at));
            }
            let len = (past - at).min(columns - column);
            if let Some(chunk) = chunks.last_mut() {
                let to = (depth * g.output[1] + row) * g.output[2] + column;
                chunk.add(chunk.places.len() * lanes + at - past, to, len);
            }
            column += len;
        }
    }
    chunks
}

impl Chunk {
    fn add(&mut self, from: usize, to: usize, len: usize) {
        match self.runs.last_mut() {
            Some(run) if (run.from + run.len, run.to + run.len) == (from, to) => run.len += len,
            _ => self.runs.push(Run { from, to, len }),
        }
    }
}
