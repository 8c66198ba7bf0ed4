//! Joining and splitting tensors.

use std::borrow::{Borrow, Cow};

use polygrad_core::{Backend, Error, Op, Result};
use smallvec::SmallVec;

use super::context;
use crate::Tensor;
use crate::graph::record;

/// Up to this many tensors are joined without allocating lists for them.
const FEW: usize = 4;

pub(super) fn borrowed<B: Backend, T: Borrow<Tensor<B>>>(tensors: &[T]) -> SmallVec<[&Tensor<B>; FEW]> {
    tensors.iter().map(T::borrow).collect()
}

impl<B: Backend> Tensor<B> {
    /// Joins tensors, or references to them, along an axis: `Tensor::cat(&[&a, &b], 0)`. The other extents must be
    /// equal, dtypes promote. An operand of shape `[0]` is ignored, whatever the others' rank, as in PyTorch.
    ///
    /// # Errors
    /// When there are none, the axis is out of range, or shapes or devices do not fit.
    pub fn cat<T: Borrow<Self>>(tensors: &[T], axis: isize) -> Result<Self> {
        Self::concat(&borrowed(tensors), axis)
    }

    fn concat(tensors: &[&Self], axis: isize) -> Result<Self> {
        let fail = |e| context(e, "cat", tensors);
        let Some(&first) = tensors.first() else {
            return Err(fail(Error::invalid("there are no tensors to join")));
        };
        let is_nothing = |x: &Self| x.shape().dims() == [0];
        let shape = tensors.iter().find(|x| !is_nothing(x)).unwrap_or(&first).shape();
        let axis = shape.axis(axis).map_err(fail)?;
        let mut dtype = first.dtype();
        for other in tensors {
            first.check_device(other).map_err(fail)?;
            dtype = dtype.promote(other.dtype());
            let dims = other.shape();
            if !is_nothing(other) && (dims.rank() != shape.rank() || dims.with_dim(axis, shape[axis]) != shape) {
                return Err(fail(Error::shape(format!(
                    "{shape} and {dims} differ outside axis {axis}"
                ))));
            }
        }
        let mut cast: SmallVec<[Cow<'_, Self>; FEW]> = SmallVec::with_capacity(tensors.len());
        for &x in tensors {
            let x = x.cast_cow(dtype)?;
            cast.push(if is_nothing(&x) && shape.rank() != 1 {
                Cow::Owned(x.reshape(shape.with_dim(axis, 0))?)
            } else {
                x
            });
        }
        let parts: SmallVec<[&Self; FEW]> = cast.iter().map(|x| &**x).collect();
        let values: SmallVec<[_; FEW]> = parts.iter().map(|x| &x.value).collect();
        let value = B::concat(&values, axis).map_err(fail)?;
        Ok(record(value, &parts, || Op::Concat { axis }))
    }

    /// Joins tensors of one shape, or references to them, along a new axis.
    ///
    /// # Errors
    /// When there are none, the axis is out of range, or shapes or devices do not fit.
    pub fn stack<T: Borrow<Self>>(tensors: &[T], axis: isize) -> Result<Self> {
        let tensors = &*borrowed(tensors);
        let apart = tensors.iter().map(|x| x.unsqueeze(axis));
        let apart = apart.collect::<Result<SmallVec<[Self; FEW]>>>()?;
        let Some(first) = apart.first() else {
            return Err(Error::invalid("there are no tensors to join").with_op("stack"));
        };
        let axis = if axis < 0 { axis + first.rank() as isize } else { axis };
        if let Some(other) = tensors.iter().find(|x| x.shape() != tensors[0].shape()) {
            let error = Error::shape(format!("{} and {} differ", tensors[0].shape(), other.shape()));
            return Err(context(error, "stack", tensors));
        }
        Self::concat(&borrowed(&apart), axis)
    }

    /// Parts of `size` along an axis; the last one is smaller if `size` does not divide the extent.
    ///
    /// # Errors
    /// When the axis is out of range, or the size is 0.
    pub fn split(&self, size: usize, axis: isize) -> Result<Vec<Self>> {
        let fail = |e| context(e, "split", &[self]);
        let shape = self.shape();
        let dim = shape[shape.axis(axis).map_err(fail)?];
        if size == 0 {
            return Err(fail(Error::invalid("parts of size 0 never end")));
        }
        if dim == 0 {
            return Ok(vec![self.clone()]);
        }
        (0..dim)
            .step_by(size)
            .map(|start| self.narrow(axis, start, size.min(dim - start)))
            .collect()
    }

    /// All slices along an axis, which is removed. Views.
    ///
    /// # Errors
    /// When the axis is out of range.
    pub fn unbind(&self, axis: isize) -> Result<Vec<Self>> {
        let fail = |e| context(e, "unbind", &[self]);
        let axis = self.shape().axis(axis).map_err(fail)?;
        let mut slices = Vec::new();
        self.halve(axis, &mut slices).map_err(fail)?;
        Ok(slices)
    }

    /// Splits recursively in halves. The gradient of a slice is as large as the tensor that it was cut from, so cutting
    /// off one slice after the other would make the backward pass quadratic in the extent.
    fn halve(&self, axis: usize, slices: &mut Vec<Self>) -> Result<()> {
        match self.shape()[axis] {
            0 => {}
            1 => slices.push(self.squeeze(axis as isize)?),
            len => {
                let half = len / 2;
                self.narrow(axis as isize, 0, half)?.halve(axis, slices)?;
                self.narrow(axis as isize, half, len - half)?.halve(axis, slices)?;
            }
        }
        Ok(())
    }

    /// Parts of the given sizes along an axis.
    ///
    /// # Errors
    /// When the axis is out of range, or the sizes do not add up to its extent.
    pub fn split_with_sizes(&self, sizes: &[usize], axis: isize) -> Result<Vec<Self>> {
        let fail = |e| context(e, "split", &[self]);
        let shape = self.shape();
        let dim = shape[shape.axis(axis).map_err(fail)?];
        let total = sizes.iter().try_fold(0usize, |sum, &size| sum.checked_add(size));
        if total != Some(dim) {
            return Err(fail(Error::shape(format!("sizes {sizes:?} do not add up to {dim}"))));
        }
        let mut start = 0;
        let mut parts = Vec::with_capacity(sizes.len());
        for &size in sizes {
            parts.push(self.narrow(axis, start, size)?);
            start += size;
        }
        Ok(parts)
    }

    /// At most `chunks` parts of equal size along an axis; the last one may be smaller.
    ///
    /// # Errors
    /// When the axis is out of range, or `chunks` is 0.
    pub fn chunk(&self, chunks: usize, axis: isize) -> Result<Vec<Self>> {
        let fail = |e| context(e, "chunk", &[self]);
        if chunks == 0 {
            return Err(fail(Error::invalid("at least one part must be asked for")));
        }
        let shape = self.shape();
        let dim = shape[shape.axis(axis).map_err(fail)?];
        self.split(dim.div_ceil(chunks).max(1), axis)
    }
}
