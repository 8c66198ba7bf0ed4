//! Sorting, and selection by order.

use polygrad_core::{Backend, Error, Op, Result};

use super::context;
use super::reduce::with_and_without_axes;
use crate::Tensor;
use crate::graph::{cut, record_first};

with_and_without_axes! {
    /// Median along an axis and its position (i64): the lower of the two middle elements if their number is even, and
    /// NaN if there is one. The selected element gets the whole gradient.
    ///
    /// # Errors
    /// When the axis is out of range or empty.
    median, median_keepdim = median_with(axis: isize) -> (Self, Self);
}

impl<B: Backend> Tensor<B> {
    /// Median of all elements, rank 0, as along an axis by [`Tensor::median`].
    ///
    /// # Errors
    /// When there are none.
    pub fn median_all(&self) -> Result<Self> {
        Ok(self.reshape([self.numel()])?.median(0)?.0)
    }

    fn median_with(&self, axis: isize, keepdims: bool) -> Result<(Self, Self)> {
        if let Some(vector) = self.vector_of_scalar()? {
            return vector.median_with(axis, false);
        }
        let fail = |e| context(e, "median", &[self]);
        let shape = self.shape();
        let extent = shape[shape.axis(axis).map_err(fail)?];
        let Some(last) = extent.checked_sub(1) else {
            return Err(fail(Error::shape(format!(
                "axis {axis} has no elements to choose from"
            ))));
        };
        let order = self.argsort(axis, false)?;
        let mut index = order.narrow(axis, last / 2, 1)?;
        if self.dtype().is_float() {
            // NaN sorts last: if there is any, the first of them is the median.
            let nans = self.detach().isnan()?.sum_keepdim(axis)?;
            let first = (extent as i64 - &nans)?.masked_fill(&nans.eq(0)?, (last / 2) as i64)?;
            index = order.gather(axis, &first)?;
        }
        self.picked(index, axis, keepdims)
    }

    /// Sorted values along an axis, and the original position of each (i64). Stable; NaN counts as the largest.
    ///
    /// # Errors
    /// When the axis is out of range.
    pub fn sort(&self, axis: isize, descending: bool) -> Result<(Self, Self)> {
        if let Some(vector) = self.vector_of_scalar()? {
            let (values, indices) = vector.sort(axis, descending)?;
            return Ok((values.reshape(())?, indices.reshape(())?));
        }
        let fail = |e| context(e, "sort", &[self]);
        let axis = self.shape().axis(axis).map_err(fail)?;
        let (values, indices) = B::sort(&self.value, axis, descending).map_err(fail)?;
        let sorted = record_first(values, &[&indices], &[self], || Op::Sort { axis, descending });
        Ok((sorted, cut(indices, &[self], "sort")))
    }

    /// The original positions (i64) of the sorted values, as [`Tensor::sort`] returns them.
    ///
    /// # Errors
    /// When the axis is out of range.
    pub fn argsort(&self, axis: isize, descending: bool) -> Result<Self> {
        Ok(self.detach().sort(axis, descending)?.1)
    }

    /// The `k` largest (or smallest) values along an axis, in order, and the original position of each (i64).
    ///
    /// # Errors
    /// When the axis is out of range, or has fewer than `k` elements.
    pub fn topk(&self, k: usize, axis: isize, largest: bool) -> Result<(Self, Self)> {
        if let Some(vector) = self.vector_of_scalar()? {
            let (values, indices) = vector.topk(k, axis, largest)?;
            return Ok((values.squeeze_all()?, indices.squeeze_all()?));
        }
        let fail = |e| context(e, "topk", &[self]);
        let shape = self.shape();
        let dim = shape[shape.axis(axis).map_err(fail)?];
        if k > dim {
            return Err(fail(Error::out_of_range(format!(
                "{k} of {dim} elements were asked for"
            ))));
        }
        let (values, indices) = self.sort(axis, largest)?;
        Ok((values.narrow(axis, 0, k)?, indices.narrow(axis, 0, k)?))
    }
}
