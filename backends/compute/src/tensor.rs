//! The tensor, with the driver in its type.

use std::fmt;
use std::marker::PhantomData;

use polygrad_core::{DType, Shape};

use crate::array::Array;

/// A tensor on a driver's device: memory, or the recorded ops that will fill it, and a layout. Cloning shares it.
pub struct ComputeTensor<D> {
    pub(crate) array: Array,
    driver: PhantomData<fn() -> D>,
}

impl<D> ComputeTensor<D> {
    pub(crate) const fn new(array: Array) -> Self {
        Self {
            array,
            driver: PhantomData,
        }
    }

    /// Its shape.
    pub fn shape(&self) -> &Shape {
        self.array.shape()
    }

    /// Its dtype.
    pub fn dtype(&self) -> DType {
        self.array.dtype()
    }
}

impl<D> Clone for ComputeTensor<D> {
    fn clone(&self) -> Self {
        Self::new(self.array.clone())
    }
}

impl<D> fmt::Debug for ComputeTensor<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ComputeTensor({}{})", self.dtype(), self.shape())
    }
}
