//! Order.

use polygrad_core::{Backend, Error, Op, Result};

use super::context;
use crate::Tensor;
use crate::graph::{cut, record_first};

impl<B: Backend> Tensor<B> {
    /// Sorted values along an axis, and where each came from (i64). Stable; NaN counts as the largest.
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

    /// The positions (i64) in which [`Tensor::sort`] puts the values.
    ///
    /// # Errors
    /// When the axis is out of range.
    pub fn argsort(&self, axis: isize, descending: bool) -> Result<Self> {
        Ok(self.detach().sort(axis, descending)?.1)
    }

    /// The `k` largest (or smallest) values along an axis, in order, and where each came from (i64).
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
