//! Lines along one axis.

use polygrad_core::{Layout, MAX_RANK, Shape};

use super::{Nest, Operand};

/// The lines along one axis of tensors whose other axes have the same extents.
pub(crate) struct Lines<const N: usize> {
    nest: Nest<N>,
    /// Bytes between neighbouring elements of a line.
    steps: [isize; N],
}

impl<const N: usize> Lines<N> {
    /// Each tensor is given by its first element, the size of an element in bytes, and its layout, whose offset is
    /// ignored. `axis` is one of their axes; the others have the extents of `shape`.
    pub(crate) fn new(shape: &Shape, axis: usize, tensors: [(*const u8, usize, &Layout); N]) -> Self {
        let mut steps = [0; N];
        let others = shape.with_dim(axis, 1);
        let operands = std::array::from_fn(|k| {
            let (ptr, size, layout) = tensors[k];
            steps[k] = layout.strides()[axis] * size.cast_signed();
            let mut strides = [0; MAX_RANK];
            strides[..shape.rank()].copy_from_slice(layout.strides());
            let layout = Layout::strided(others, &strides[..shape.rank()], 0);
            Operand::strided(ptr, size, &layout)
        });
        Self {
            nest: Nest::new(&others, operands),
            steps,
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.nest.numel()
    }

    /// The first element of line `i` in each tensor.
    pub(crate) fn starts(&self, i: usize) -> [*const u8; N] {
        let width = self.nest.width();
        let mut starts = [std::ptr::null(); N];
        for (k, start) in starts.iter_mut().enumerate() {
            let row = self.nest.row(k, i / width);
            *start = row.wrapping_offset((i % width).cast_signed() * self.nest.step(k));
        }
        starts
    }

    pub(crate) fn step(&self, k: usize) -> isize {
        self.steps[k]
    }
}
