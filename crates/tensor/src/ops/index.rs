//! Picking and placing elements by index.

use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo};

use polygrad_core::{Axes, Backend, DType, Error, Op, Result, Shape, SliceRange};

use super::context;
use crate::Tensor;
use crate::graph::record;

/// What to take of one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Index {
    /// One position; the axis goes away. Negative ones count from the back.
    At(isize),
    /// From start (default: the beginning) to end (default: the end), in steps of a positive number; negative bounds count from the
    /// back, and bounds beyond the axis are moved to its ends, as in Python.
    Range(Option<isize>, Option<isize>, usize),
}

macro_rules! from_range {
    ($($type:ty => |$range:ident| $start:expr, $end:expr;)*) => {$(
        impl From<$type> for Index {
            fn from($range: $type) -> Self {
                Self::Range($start, $end, 1)
            }
        }
    )*};
}

from_range! {
    RangeFull => |_range| None, None;
    Range<isize> => |range| Some(range.start), Some(range.end);
    RangeFrom<isize> => |range| Some(range.start), None;
    RangeTo<isize> => |range| None, Some(range.end);
    RangeInclusive<isize> => |range| Some(*range.start()), range.end().checked_add(1).filter(|&end| end != 0);
}

impl From<isize> for Index {
    fn from(at: isize) -> Self {
        Self::At(at)
    }
}

impl Index {
    /// Every `step`-th element of a range.
    #[must_use]
    pub fn step_by(self, step: usize) -> Self {
        match self {
            Self::Range(start, end, _) => Self::Range(start, end, step),
            at => at,
        }
    }

    fn resolve(self, axis: usize, dim: usize) -> Result<SliceRange> {
        let extent = dim as isize;
        match self {
            Self::At(at) => {
                let from_front = if at < 0 { at + extent } else { at };
                if (0..extent).contains(&from_front) {
                    return Ok(SliceRange::new(from_front as usize, 1, 1));
                }
                Err(Error::out_of_range(format!(
                    "index {at} is outside axis {axis} of extent {dim}"
                )))
            }
            Self::Range(_, _, 0) => Err(Error::invalid(format!("a step of 0 on axis {axis}"))),
            Self::Range(start, end, step) => {
                let bound = |bound: isize| if bound < 0 { bound + extent } else { bound }.clamp(0, extent) as usize;
                let (start, end) = (start.map_or(0, bound), end.map_or(dim, bound));
                let len = end.saturating_sub(start).div_ceil(step);
                let step = isize::try_from(step).unwrap_or(isize::MAX);
                Ok(SliceRange::new(start, len, step))
            }
        }
    }
}

/// One to eight of what converts to [`Index`]: `x.i(1)`, `x.i((0, 2..5))`, `x.i((.., -1))`.
pub trait IntoIndex {
    /// One entry for each leading axis.
    fn into_index(self) -> Vec<Index>;
}

impl<I: Into<Index>> IntoIndex for I {
    fn into_index(self) -> Vec<Index> {
        vec![self.into()]
    }
}

impl IntoIndex for &[Index] {
    fn into_index(self) -> Vec<Index> {
        self.to_vec()
    }
}

macro_rules! tuple_index {
    ($(($($name:ident)*))*) => {$(
        #[allow(non_snake_case, reason = "a type parameter names its value")]
        impl<$($name: Into<Index>),*> IntoIndex for ($($name,)*) {
            fn into_index(self) -> Vec<Index> {
                let ($($name,)*) = self;
                vec![$($name.into()),*]
            }
        }
    )*};
}

tuple_index! { (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) (A B C D E F G) (A B C D E F G H) }

impl<B: Backend> Tensor<B> {
    /// Indexes the leading axes by positions and ranges, as Python's `x[0, 2:5]`. A view.
    ///
    /// # Errors
    /// When there are more entries than axes, a position is out of range, or a step is 0.
    pub fn i(&self, index: impl IntoIndex) -> Result<Self> {
        let fail = |e| context(e, "index", &[self]);
        let index = index.into_index();
        let shape = self.shape();
        if index.len() > shape.rank() {
            return Err(fail(Error::out_of_range(format!(
                "{} indices for {} axes",
                index.len(),
                shape.rank()
            ))));
        }
        let mut ranges: Vec<_> = shape.iter().map(|&dim| SliceRange::full(dim)).collect();
        let mut gone = Vec::new();
        for (axis, &entry) in index.iter().enumerate() {
            ranges[axis] = entry.resolve(axis, shape[axis]).map_err(fail)?;
            if matches!(entry, Index::At(_)) {
                gone.push(axis);
            }
        }
        let cut = self.slice(&ranges)?;
        if gone.is_empty() {
            return Ok(cut);
        }
        let shape = cut.shape();
        cut.reshape(shape.reduced(Axes::new(gone)?, false))
    }

    /// `out[i][j][k] = x[i][index[i][j][k]][k]` for axis 1, and likewise for others. The index has the same rank and is no larger than
    /// this tensor on the other axes, or is empty.
    ///
    /// # Errors
    /// When shapes do not fit, the index is no integer tensor, or an index is out of range.
    pub fn gather(&self, axis: isize, index: &Self) -> Result<Self> {
        if let Some(vector) = self.vector_of_scalar()? {
            return vector.gather(axis, &index.flatten(0, -1)?)?.reshape(index.shape());
        }
        let fail = |e| context(e, "gather", &[self, index]);
        let axis = self.shape().axis(axis).map_err(fail)?;
        let index = index.checked_index(self).map_err(fail)?;
        if index.numel() == 0 {
            // Whatever its shape, as PyTorch has it: nothing is picked.
            return self.flatten(0, -1)?.narrow(0, 0, 0)?.reshape(index.shape());
        }
        index.shape().check_within(&self.shape(), Some(axis)).map_err(fail)?;
        let value = B::gather(&self.value, axis, &index.value).map_err(fail)?;
        Ok(record(value, &[self, &index], || Op::Gather { axis }))
    }

    /// This tensor with `out[i][index[i][j][k]][k] = src[i][j][k]` for axis 1, and likewise for others; `src` is at least as large as the
    /// index. Where several are written to one place, any may win, and gradients are then undefined.
    ///
    /// # Errors
    /// When shapes or dtypes do not fit, the index is no integer tensor, or an index is out of range.
    pub fn scatter(&self, axis: isize, index: &Self, src: &Self) -> Result<Self> {
        if let Some(vector) = self.vector_of_scalar()? {
            return vector
                .scatter(axis, &index.flatten(0, -1)?, &src.flatten(0, -1)?)?
                .reshape(());
        }
        let fail = |e| context(e, "scatter", &[self, index, src]);
        let (axis, index) = self.checked_scatter(axis, index, src).map_err(fail)?;
        let value = B::scatter(&self.value, axis, &index.value, &src.value).map_err(fail)?;
        Ok(record(value, &[self, &index, src], || Op::Scatter { axis }))
    }

    /// Like [`Tensor::scatter`], but adds to what is there; of several writes to one place, each counts.
    ///
    /// # Errors
    /// As [`Tensor::scatter`].
    pub fn scatter_add(&self, axis: isize, index: &Self, src: &Self) -> Result<Self> {
        if let Some(vector) = self.vector_of_scalar()? {
            return vector
                .scatter_add(axis, &index.flatten(0, -1)?, &src.flatten(0, -1)?)?
                .reshape(());
        }
        let fail = |e| context(e, "scatter_add", &[self, index, src]);
        let (axis, index) = self.checked_scatter(axis, index, src).map_err(fail)?;
        let value = B::scatter_add(&self.value, axis, &index.value, &src.value).map_err(fail)?;
        Ok(record(value, &[self, &index, src], || Op::ScatterAdd { axis }))
    }

    /// Like [`Tensor::scatter`], but multiplies what is there; of several writes to one place, each counts.
    ///
    /// # Errors
    /// As [`Tensor::scatter`].
    pub fn scatter_mul(&self, axis: isize, index: &Self, src: &Self) -> Result<Self> {
        if let Some(vector) = self.vector_of_scalar()? {
            return vector
                .scatter_mul(axis, &index.flatten(0, -1)?, &src.flatten(0, -1)?)?
                .reshape(());
        }
        let fail = |e| context(e, "scatter_mul", &[self, index, src]);
        let (at, index) = self.checked_scatter(axis, index, src).map_err(fail)?;
        let mut out = self.clone();
        // The slices of the index along the axis, one after the other: within one, no two writes meet.
        for i in 0..index.shape()[at] {
            let index = index.narrow(axis, i, 1)?;
            let ranges: Vec<_> = (index.shape().iter().enumerate())
                .map(|(j, &dim)| SliceRange::new(if j == at { i } else { 0 }, dim, 1))
                .collect();
            let product = out.gather(axis, &index)?.mul(&src.slice(&ranges)?)?;
            out = out.scatter(axis, &index, &product).map_err(fail)?;
        }
        Ok(out)
    }

    /// Whole slices along an axis, in the order of an index of rank 1.
    ///
    /// # Errors
    /// When the axis is out of range, the index has another rank or is no integer tensor, or an index is out of range.
    pub fn index_select(&self, axis: isize, index: &Self) -> Result<Self> {
        if let Some(vector) = self.vector_of_scalar()? {
            return vector.index_select(axis, index)?.reshape(());
        }
        let fail = |e| context(e, "index_select", &[self, index]);
        let axis = self.shape().axis(axis).map_err(fail)?;
        let index = index.checked_list(self).map_err(fail)?;
        let value = B::index_select(&self.value, axis, &index.value).map_err(fail)?;
        Ok(record(value, &[self, &index], || Op::IndexSelect { axis }))
    }

    /// Adds slices of `src` along an axis to those that an index of rank 1 names.
    ///
    /// # Errors
    /// When shapes or dtypes do not fit, or an index is out of range.
    pub fn index_add(&self, axis: isize, index: &Self, src: &Self) -> Result<Self> {
        let fail = |e| context(e, "index_add", &[self, index, src]);
        let axis = self.shape().axis(axis).map_err(fail)?;
        let index = index.checked_list(self).map_err(fail)?;
        let expected = self.shape().with_dim(axis, index.numel());
        if src.shape() != expected || src.dtype() != self.dtype() {
            let error = Error::shape(format!("the source must be {}{expected}", self.dtype()));
            return Err(fail(error));
        }
        let value = B::index_add(&self.value, axis, &index.value, &src.value).map_err(fail)?;
        Ok(record(value, &[self, &index, src], || Op::IndexAdd { axis }))
    }

    /// Rows of `weight [num, dim]` for this index tensor of any shape: `[…, dim]`. The row `padding_idx` gets no gradient.
    ///
    /// # Errors
    /// When the weight is no matrix, or an index is out of range.
    pub fn embedding(&self, weight: &Self, padding_idx: Option<usize>) -> Result<Self> {
        let fail = |e| context(e, "embedding", &[self, weight]);
        let shape = weight.shape();
        if shape.rank() != 2 {
            return Err(fail(Error::shape(format!(
                "the weight must be [num, dim], not {shape}"
            ))));
        }
        if let Some(row) = padding_idx.filter(|&row| row >= shape[0]) {
            return Err(fail(Error::out_of_range(format!(
                "padding_idx {row} is outside {} rows",
                shape[0]
            ))));
        }
        let index = self.checked_index(weight).map_err(fail)?;
        let value = B::embedding(&weight.value, &index.value, padding_idx).map_err(fail)?;
        Ok(record(value, &[weight, &index], || Op::Embedding { padding_idx }))
    }

    /// 1 at the position that each index names along a new last axis of extent `num_classes`, 0 elsewhere; i64.
    ///
    /// # Errors
    /// When this is no integer tensor, or an index is out of range.
    pub fn one_hot(&self, num_classes: usize) -> Result<Self> {
        let fail = |e| context(e, "one_hot", &[self]);
        let index = self.checked_index(self).map_err(fail)?.unsqueeze(-1)?;
        let shape = self.shape();
        let shape = Shape::new(&[shape.dims(), &[num_classes]].concat()).map_err(fail)?;
        let zeros = Self::full(shape, 0i64, (&self.device(), DType::I64)).map_err(fail)?;
        let ones = index.ones_like()?;
        zeros.scatter(-1, &index, &ones).map_err(|e| e.with_op("one_hot"))
    }

    /// Repeats each slice along an axis `count` times.
    ///
    /// # Errors
    /// When the axis is out of range, or the shape gets too large.
    pub fn repeat_interleave(&self, count: usize, axis: isize) -> Result<Self> {
        let fail = |e| context(e, "repeat_interleave", &[self]);
        let shape = self.shape();
        let axis = shape.axis(axis).map_err(fail)?;
        let outer = shape[..axis].iter().product();
        let inner = shape[axis + 1..].iter().product();
        let dim = shape[axis];
        let repeated = Shape::new(&shape.with_dim(axis, dim.saturating_mul(count))).map_err(fail)?;
        self.reshape([outer, dim, 1, inner])?
            .expand([outer, dim, count, inner])?
            .reshape(repeated)
    }

    /// Repeats each slice along an axis as many times as the count at its position says.
    ///
    /// # Errors
    /// When the axis is out of range, there is not one count for each slice, or the shape gets too large.
    pub fn repeat_interleave_each(&self, counts: &[usize], axis: isize) -> Result<Self> {
        let fail = |e| context(e, "repeat_interleave", &[self]);
        let shape = self.shape();
        let axis = shape.axis(axis).map_err(fail)?;
        if counts.len() != shape[axis] {
            let error = Error::shape(format!("{} counts for {} slices", counts.len(), shape[axis]));
            return Err(fail(error));
        }
        let total = counts.iter().fold(0usize, |sum, &count| sum.saturating_add(count));
        Shape::new(&shape.with_dim(axis, total)).map_err(fail)?;
        let slices = counts.iter().enumerate();
        let index: Vec<i64> = slices
            .flat_map(|(i, &count)| std::iter::repeat_n(i as i64, count))
            .collect();
        self.index_select(axis as isize, &Self::from_vec(index, [total], &self.device())?)
    }

    /// An index tensor as i64, on the same device as the tensor that it indexes.
    fn checked_index(&self, indexed: &Self) -> Result<Self> {
        indexed.check_device(self)?;
        match self.dtype() {
            DType::I64 => Ok(self.clone()),
            DType::I32 | DType::U8 => self.to_dtype(DType::I64),
            dtype => Err(Error::dtype(format!("an index must be i64, i32 or u8, not {dtype}"))
                .with_hint("convert it with to_dtype(DType::I64)")),
        }
    }

    fn checked_list(&self, indexed: &Self) -> Result<Self> {
        if self.rank() != 1 {
            return Err(Error::shape(format!(
                "the index must have rank 1, not shape {}",
                self.shape()
            )));
        }
        self.checked_index(indexed)
    }

    fn checked_scatter(&self, axis: isize, index: &Self, src: &Self) -> Result<(usize, Self)> {
        let axis = self.shape().axis(axis)?;
        let index = index.checked_index(self)?;
        self.check_device(src)?;
        if src.dtype() != self.dtype() {
            return Err(Error::dtype(format!(
                "the source is {}, the tensor {}",
                src.dtype(),
                self.dtype()
            )));
        }
        index.shape().check_within(&self.shape(), Some(axis))?;
        index.shape().check_within(&src.shape(), None)?;
        Ok((axis, index))
    }
}

/// For index shapes.
trait CheckWithin {
    /// Fails unless no extent, but for the one of `free_axis`, is larger than the other's.
    fn check_within(&self, other: &Shape, free_axis: Option<usize>) -> Result<()>;
}

impl CheckWithin for Shape {
    fn check_within(&self, other: &Shape, free_axis: Option<usize>) -> Result<()> {
        let fits = self.rank() == other.rank()
            && self
                .iter()
                .zip(other.dims())
                .enumerate()
                .all(|(axis, (a, b))| Some(axis) == free_axis || a <= b);
        if fits {
            return Ok(());
        }
        Err(Error::shape(format!(
            "an index of shape {self} does not fit into shape {other}"
        )))
    }
}
