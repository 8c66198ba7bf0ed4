//! Conversions between arrays of the crate `ndarray` and tensors.

use ndarray::{Array, ArrayD, Dimension};
use polygrad_core::{Backend, Element, HostTensor, Result};

use crate::{Device, Tensor};

impl<B: Backend> Tensor<B> {
    /// An array's values on a device. Does not copy if the array is in row-major order and the backend shares host
    /// memory. Needs the cargo feature `ndarray`.
    ///
    /// # Errors
    /// When the array has more than eight axes, the device lacks the dtype, or memory runs out.
    pub fn from_ndarray<T: Element, D: Dimension>(array: Array<T, D>, device: &Device<B>) -> Result<Self> {
        let host = HostTensor::try_from(array).map_err(|e| e.with_op("from_ndarray"))?;
        Self::from_host(host, device)
    }

    /// A copy of the values as an array. [`HostTensor::as_ndarray`] does not copy. Needs the cargo feature `ndarray`.
    ///
    /// # Errors
    /// When `T` is not the tensor's dtype, or the device fails.
    pub fn to_ndarray<T: Element>(&self) -> Result<ArrayD<T>> {
        let host = self.to_host()?;
        let view = host.as_ndarray::<T>().map_err(|e| e.with_op("to_ndarray"))?;
        Ok(view.to_owned())
    }
}
