//! Selection by a mask.

use polygrad_core::{Backend, DType, Error, Result};

use super::context;
use super::indexing::row_major;
use crate::Tensor;

impl<B: Backend> Tensor<B> {
    /// The positions of all nonzero elements, in row-major order: i64 `[count, rank]`. Waits for the values.
    ///
    /// # Errors
    /// When the device fails.
    pub fn nonzero(&self) -> Result<Self> {
        let fail = |e| context(e, "nonzero", &[self]);
        let mask = self.ne(0).map_err(fail)?.to_vec::<bool>()?;
        let strides = row_major(&self.dims());
        let dims = self.dims();
        let mut positions = Vec::new();
        for (i, _) in mask.iter().enumerate().filter(|&(_, &is)| is) {
            positions.extend(
                strides
                    .iter()
                    .zip(&dims)
                    .map(|(&stride, &dim)| i as i64 / stride % dim as i64),
            );
        }
        let count = mask.iter().filter(|&&is| is).count();
        Self::from_vec(positions, [count, self.rank()], &self.device()).map_err(fail)
    }

    /// The elements where a bool mask is true, as a vector; tensor and mask broadcast.
    ///
    /// # Errors
    /// When the mask is not bool, or the shapes do not fit.
    pub fn masked_select(&self, mask: &Self) -> Result<Self> {
        let fail = |e| context(e, "masked_select", &[self, mask]);
        if mask.dtype() != DType::Bool {
            let error = Error::dtype(format!("a mask is bool, not {}", mask.dtype()));
            return Err(fail(error.with_hint("compare, as in x.gt(0.0)")));
        }
        let shape = self.shape().broadcast(&mask.shape()).map_err(fail)?;
        self.expand(shape)?
            .indexed(vec![mask.expand(shape)?.into()])
            .map_err(fail)
    }
}
