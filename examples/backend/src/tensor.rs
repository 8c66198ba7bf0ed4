//! The tensor: shared values, and a layout that says which of them it contains in which order.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

use polygrad::backend::{DType, Element, Error, HostTensor, Layout, Result, Scalar, Shape, collect};

use crate::support::typed;

/// A tensor in host memory. Clones and views share the values, which never change.
#[derive(Clone, Debug)]
pub struct ToyTensor {
    /// A `Vec` of the dtype's Rust type.
    values: Arc<dyn Any + Send + Sync>,
    dtype: DType,
    layout: Layout,
}

impl ToyTensor {
    /// A tensor with one value for each element, in row-major order.
    pub(crate) fn new<T: Element>(shape: Shape, values: Vec<T>) -> Self {
        debug_assert_eq!(values.len(), shape.numel());
        Self {
            values: Arc::new(values),
            dtype: T::DTYPE,
            layout: Layout::contiguous(shape),
        }
    }

    /// A tensor with the same value everywhere.
    pub(crate) fn full(shape: Shape, value: Scalar, dtype: DType) -> Result<Self> {
        typed!("full", dtype, [f32 f64 i64 bool], T => {
            // One value is enough: all elements are views of it.
            let one = Self::new(Shape::SCALAR, vec![T::from_scalar(value)]);
            Ok(one.view(one.layout.expand(shape)))
        })
    }

    pub(crate) fn from_host(host: &HostTensor) -> Result<Self> {
        typed!("from_host", host.dtype(), [f32 f64 i64 bool], T => {
            let values = host.as_slice::<T>()?;
            Ok(Self::new(*host.shape(), collect(values.iter().copied())?))
        })
    }

    pub(crate) fn to_host(&self) -> Result<HostTensor> {
        typed!("to_host", self.dtype, [f32 f64 i64 bool], T => {
            HostTensor::new(*self.shape(), self.values::<T>()?.into_owned())
        })
    }

    /// The same values with another layout, which must stay within them.
    pub(crate) fn view(&self, layout: Layout) -> Self {
        Self { layout, ..self.clone() }
    }

    pub(crate) fn shape(&self) -> &Shape {
        self.layout.shape()
    }

    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The elements in row-major order: the values themselves if they have this order, else a copy.
    ///
    /// # Errors
    /// When `T` is not the tensor's dtype, or there is not enough memory for the copy.
    pub(crate) fn values<T: Element>(&self) -> Result<Cow<'_, [T]>> {
        let Some(values) = self.values.downcast_ref::<Vec<T>>() else {
            return Err(Error::dtype(format!("{} is needed here, got {}", T::DTYPE, self.dtype)));
        };
        self.layout.values(values)
    }
}
