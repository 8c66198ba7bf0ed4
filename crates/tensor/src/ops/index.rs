//! Gathering and scattering along an axis.

use polygrad_core::{Backend, DType, Error, Op, Result, Shape, SliceRange};

use super::context;
use crate::Tensor;
use crate::graph::record;

impl<B: Backend> Tensor<B> {
    /// `out[i][j][k] = x[i][index[i][j][k]][k]` for axis 1, and likewise for others. The index has the same rank and is
    /// no larger than this tensor on the other axes, or is empty.
    ///
    /// # Errors
    /// When shapes do not fit, the index is not an integer tensor, or an index is out of range.
    pub fn gather(&self, axis: isize, index: &Self) -> Result<Self> {
        if let Some(vector) = self.vector_of_scalar()? {
            return vector.gather(axis, &index.flatten(0, -1)?)?.reshape(index.shape());
        }
        let fail = |e| context(e, "gather", &[self, index]);
        let axis = self.shape().axis(axis).map_err(fail)?;
        let index = index.checked_index(self).map_err(fail)?;
        if index.numel() == 0 {
            // An empty index may have any shape, as in PyTorch: nothing is picked.
            return self.flatten(0, -1)?.narrow(0, 0, 0)?.reshape(index.shape());
        }
        index.shape().check_within(&self.shape(), Some(axis)).map_err(fail)?;
        let value = B::gather(&self.value, axis, &index.value).map_err(fail)?;
        Ok(record(value, &[self, &index], || Op::Gather { axis }))
    }

    /// This tensor with `out[i][index[i][j][k]][k] = src[i][j][k]` for axis 1, and likewise for others; `src` is at
    /// least as large as the index. If several write to the same element, any may win, and gradients are then
    /// undefined.
    ///
    /// # Errors
    /// When shapes or dtypes do not fit, the index is not an integer tensor, or an index is out of range.
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

    /// Like [`Tensor::scatter`], but adds to the elements. If several add to the same element, all count.
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

    /// Like [`Tensor::scatter`], but multiplies the elements. If several multiply the same element, all count.
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
        // One slice of the index along the axis at a time, since no two entries of one slice name the same element.
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
    /// When the axis is out of range, the index has another rank or is not an integer tensor, or an index is out of
    /// range.
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

    /// Rows of `weight [num, dim]` for this index tensor of any shape: `[…, dim]`. The row
    /// `padding_idx` gets no gradient.
    ///
    /// # Errors
    /// When the weight is not a matrix, or an index is out of range.
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

    /// Adds a last axis of extent `num_classes` that is 1 at the position of each index and 0 elsewhere; i64.
    ///
    /// # Errors
    /// When this is not an integer tensor, or an index is out of range.
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

    /// Repeats each slice along an axis as many times as `counts` says for it.
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
    pub(super) fn checked_index(&self, indexed: &Self) -> Result<Self> {
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

/// Checks of index shapes.
trait CheckWithin {
    /// Fails if any extent, except that of `free_axis`, is larger than the other shape's.
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
