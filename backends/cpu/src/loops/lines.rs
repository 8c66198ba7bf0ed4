//! Lines along one axis.

use polygrad_core::{Layout, Shape};

use super::{Nest, Operand};
use crate::CpuTensor;

/// The lines along one axis of tensors whose other axes have the same extents.
pub(crate) struct Lines<const N: usize> {
    starts: Starts<N>,
    /// Bytes between neighbouring elements of a line.
    steps: [isize; N],
}

/// Where lines start.
enum Starts<const N: usize> {
    /// Line after line: the first element of each tensor, the bytes of a line, and the number of lines. A nest would
    /// take longer than all else about a few short lines.
    Rows([*const u8; N], [usize; N], usize),
    Nest(Nest<N>),
}

// SAFETY: the pointers are only dereferenced by code whose callers guarantee that they are valid.
unsafe impl<const N: usize> Sync for Starts<N> {}

impl<const N: usize> Lines<N> {
    /// `axis` is one of the tensors' axes; of the others each tensor has at least the extents of `shape`.
    pub(crate) fn new(shape: &Shape, axis: usize, tensors: [&CpuTensor; N]) -> Self {
        let lead = &shape[..axis];
        let is_rows = |x: &&CpuTensor| x.is_contiguous() && x.shape()[..axis] == *lead;
        if axis + 1 == shape.rank() && tensors.iter().all(is_rows) {
            let sizes = tensors.map(|x| x.dtype().size());
            return Self {
                starts: Starts::Rows(
                    tensors.map(CpuTensor::ptr),
                    std::array::from_fn(|k| tensors[k].shape()[axis] * sizes[k]),
                    lead.iter().product(),
                ),
                steps: sizes.map(usize::cast_signed),
            };
        }
        let mut steps = [0; N];
        let others = shape.with_dim(axis, 1);
        let operands = std::array::from_fn(|k| {
            let (layout, size) = (tensors[k].layout(), tensors[k].dtype().size());
            steps[k] = layout.strides()[axis] * size.cast_signed();
            let layout = Layout::strided(others, layout.strides(), 0);
            Operand::strided(tensors[k].ptr(), size, &layout)
        });
        Self {
            starts: Starts::Nest(Nest::new(&others, operands)),
            steps,
        }
    }

    pub(crate) fn count(&self) -> usize {
        match &self.starts {
            Starts::Rows(_, _, count) => *count,
            Starts::Nest(nest) => nest.numel(),
        }
    }

    /// The first element of line `i` in each tensor.
    pub(crate) fn starts(&self, i: usize) -> [*const u8; N] {
        let nest = match &self.starts {
            Starts::Rows(first, bytes, _) => return std::array::from_fn(|k| first[k].wrapping_add(i * bytes[k])),
            Starts::Nest(nest) => nest,
        };
        let width = nest.width();
        let mut starts = [std::ptr::null(); N];
        for (k, start) in starts.iter_mut().enumerate() {
            let row = nest.row(k, i / width);
            *start = row.wrapping_offset((i % width).cast_signed() * nest.step(k));
        }
        starts
    }

    pub(crate) fn step(&self, k: usize) -> isize {
        self.steps[k]
    }
}
