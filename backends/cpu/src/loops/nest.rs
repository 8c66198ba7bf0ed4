//! Loop nests over broadcast operands, with as few loops as the strides allow.

use polygrad_core::{Layout, MAX_RANK, Shape};

use crate::CpuTensor;

/// An input of a kernel, broadcast to the output's shape.
#[derive(Clone, Copy)]
pub(crate) struct Operand {
    pub(super) ptr: *const u8,
    pub(super) size: usize,
    pub(super) form: Form,
}

/// How an operand's elements lie in memory.
#[derive(Clone, Copy)]
pub(super) enum Form {
    /// One after another, in the order of the output's.
    Run,
    /// One element, repeated everywhere.
    One,
    /// Bytes from element to element along each axis.
    Strided([isize; MAX_RANK]),
}

impl Operand {
    /// A tensor broadcast to `shape`, which its own shape must allow.
    #[inline]
    pub(crate) fn new(x: &CpuTensor, shape: &Shape) -> Self {
        let (ptr, size) = (x.ptr(), x.dtype().size());
        let form = if x.shape() == shape && x.is_contiguous() {
            Form::Run
        } else if x.numel() == 1 {
            Form::One
        } else {
            return Self::strided(ptr, size, &x.layout().expand(*shape));
        };
        Self { ptr, size, form }
    }

    /// Memory of the given layout with its first element at `ptr`; the layout's own offset is ignored.
    pub(crate) fn strided(ptr: *const u8, size: usize, layout: &Layout) -> Self {
        let mut strides = [0; MAX_RANK];
        for (to, from) in strides.iter_mut().zip(layout.strides()) {
            *to = from * size.cast_signed();
        }
        let form = Form::Strided(strides);
        Self { ptr, size, form }
    }

    /// One value, repeated everywhere. It must outlive the operand.
    pub(crate) fn scalar<T>(value: &T) -> Self {
        Self {
            ptr: std::ptr::from_ref(value).cast(),
            size: size_of::<T>(),
            form: Form::One,
        }
    }

    fn strides(&self, shape: &Shape) -> [isize; MAX_RANK] {
        match self.form {
            Form::Strided(strides) => strides,
            Form::One => [0; MAX_RANK],
            Form::Run => {
                let (mut strides, mut step) = ([0; MAX_RANK], self.size.cast_signed());
                for (stride, dim) in strides[..shape.rank()].iter_mut().zip(shape.iter()).rev() {
                    *stride = step;
                    step *= dim.cast_signed();
                }
                strides
            }
        }
    }
}

/// A loop nest, the innermost loop first. Strides are in bytes.
pub(crate) struct Nest<const N: usize> {
    rank: usize,
    numel: usize,
    dims: [usize; MAX_RANK],
    strides: [[isize; MAX_RANK]; N],
    sizes: [usize; N],
    bases: [*const u8; N],
}

// SAFETY: the pointers are only dereferenced by code whose callers guarantee that they are valid.
unsafe impl<const N: usize> Sync for Nest<N> {}

impl<const N: usize> Nest<N> {
    /// Drops axes of extent 1, and merges neighbouring axes if every operand steps through both evenly.
    pub(crate) fn new(shape: &Shape, operands: [Operand; N]) -> Self {
        let mut nest = Self {
            rank: 0,
            numel: shape.numel(),
            dims: [1; MAX_RANK],
            strides: [[0; MAX_RANK]; N],
            sizes: operands.map(|x| x.size),
            bases: operands.map(|x| x.ptr),
        };
        let strides = operands.map(|x| x.strides(shape));
        for axis in (0..shape.rank()).rev() {
            let dim = shape[axis];
            if dim == 1 {
                continue;
            }
            let inner = nest.rank.wrapping_sub(1);
            let mergeable = nest.rank > 0
                && (0..N).all(|k| strides[k][axis] == nest.strides[k][inner] * nest.dims[inner].cast_signed());
            if mergeable {
                nest.dims[inner] *= dim;
                continue;
            }
            nest.dims[nest.rank] = dim;
            for (to, from) in nest.strides.iter_mut().zip(&strides) {
                to[nest.rank] = from[axis];
            }
            nest.rank += 1;
        }
        if nest.rank == 0 {
            // A single element is a contiguous run of one.
            nest.strides
                .iter_mut()
                .zip(nest.sizes)
                .for_each(|(s, size)| s[0] = size.cast_signed());
        }
        nest
    }

    pub(crate) fn numel(&self) -> usize {
        self.numel
    }

    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    /// Iterations of loop `level`, 0 being the innermost; 1 beyond the last.
    pub(crate) fn extent(&self, level: usize) -> usize {
        self.dims[level]
    }

    /// Bytes that a loop advances in operand `k` per iteration.
    pub(crate) fn stride(&self, k: usize, level: usize) -> isize {
        self.strides[k][level]
    }

    /// Iterations of the innermost loop.
    pub(crate) fn width(&self) -> usize {
        self.dims[0]
    }

    pub(crate) fn size(&self, k: usize) -> usize {
        self.sizes[k]
    }

    pub(crate) fn base(&self, k: usize) -> *const u8 {
        self.bases[k]
    }

    /// Distance in bytes between neighbours in the innermost loop.
    pub(crate) fn step(&self, k: usize) -> isize {
        self.strides[k][0]
    }

    /// Whether the innermost loop is contiguous.
    pub(crate) fn is_direct(&self, k: usize) -> bool {
        self.step(k) == self.sizes[k].cast_signed()
    }

    /// Whether each operand is one contiguous run.
    pub(crate) fn is_one_run(&self) -> bool {
        self.rank <= 1 && (0..N).all(|k| self.is_direct(k))
    }

    /// Whether operand `k` is one contiguous run.
    pub(crate) fn is_run(&self, k: usize) -> bool {
        let (dims, strides) = (&self.dims, &self.strides[k]);
        let follows = |level: usize| strides[level] == strides[level - 1] * dims[level - 1].cast_signed();
        self.is_direct(k) && (1..self.rank).all(follows)
    }

    /// The first element of operand `k` in a row; rows are counted over all loops except the innermost.
    pub(crate) fn row(&self, k: usize, mut row: usize) -> *const u8 {
        let mut ptr = self.bases[k];
        for level in 1..self.rank {
            let at = if level + 1 == self.rank {
                row
            } else {
                row % self.dims[level]
            };
            ptr = ptr.wrapping_offset(at.cast_signed() * self.strides[k][level]);
            row /= self.dims[level];
        }
        ptr
    }
}
