//! The tensor: values that are shared, and a layout that says which of them it shows in which order.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

use polygrad::backend::{DType, Element, Error, ErrorKind, HostTensor, Layout, Result, Scalar, Shape};

use crate::support::typed;

/// A tensor in host memory. Cloning it or taking a view of it shares the values, which never change.
#[derive(Clone, Debug)]
pub struct ToyTensor {
    /// A `Vec` of the dtype's Rust type.
    values: Arc<dyn Any + Send + Sync>,
    dtype: DType,
    layout: Layout,
}

impl ToyTensor {
    /// As many values as the shape has elements, in row-major order.
    pub(crate) fn new<T: Element>(shape: Shape, values: Vec<T>) -> Self {
        debug_assert_eq!(values.len(), shape.numel());
        Self {
            values: Arc::new(values),
            dtype: T::DTYPE,
            layout: Layout::contiguous(shape),
        }
    }

    /// One value for each element.
    pub(crate) fn full(shape: Shape, value: Scalar, dtype: DType) -> Result<Self> {
        typed!("full", dtype, [f32 f64 i64 bool], T => {
            // One value is enough: the others are views of it.
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

    /// The same values under another layout, which must not reach beyond them.
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

    /// The elements in row-major order: the values themselves if they lie so, else a copy.
    ///
    /// # Errors
    /// When `T` is not the tensor's dtype, or there is no memory for the copy.
    pub(crate) fn values<T: Element>(&self) -> Result<Cow<'_, [T]>> {
        let Some(values) = self.values.downcast_ref::<Vec<T>>() else {
            return Err(Error::dtype(format!("{} is needed here, got {}", T::DTYPE, self.dtype)));
        };
        let (start, count) = (self.layout.offset(), self.shape().numel());
        if self.layout.is_contiguous() {
            return Ok(Cow::Borrowed(if count == 0 {
                &[]
            } else {
                &values[start..start + count]
            }));
        }
        let mut out = room(count)?;
        rows(&self.layout, |start, count, step| match step {
            0 => out.resize(out.len() + count, values[start]),
            1 => out.extend_from_slice(&values[start..start + count]),
            _ => out.extend((0..count).map(|i| values[start.wrapping_add_signed(i as isize * step)])),
        });
        Ok(Cow::Owned(out))
    }
}

/// Walks over a layout's elements in row-major order, a row of the last axis at a time: where it starts, how many
/// elements it has and how far apart they are.
pub(crate) fn rows(layout: &Layout, mut row: impl FnMut(usize, usize, isize)) {
    fn walk(dims: &[usize], strides: &[isize], at: isize, row: &mut dyn FnMut(usize, usize, isize)) {
        match (dims, strides) {
            ([dim, dims @ ..], [stride, strides @ ..]) if !dims.is_empty() => {
                for i in 0..*dim as isize {
                    walk(dims, strides, at + i * stride, row);
                }
            }
            ([dim], [stride]) => row(at as usize, *dim, *stride),
            _ => row(at as usize, 1, 1),
        }
    }
    if layout.shape().numel() > 0 {
        let (dims, strides) = (layout.shape().dims(), layout.strides());
        walk(dims, strides, layout.offset() as isize, &mut row);
    }
}

/// An empty vector with room for `count` values. Too little memory is an error, where `Vec` would end the process.
pub(crate) fn room<T>(count: usize) -> Result<Vec<T>> {
    let mut out = Vec::new();
    out.try_reserve_exact(count)
        .map_err(|e| Error::new(ErrorKind::OutOfMemory, format!("no memory for {count} elements")).with_source(e))?;
    Ok(out)
}

/// The items of an iterator that knows how many there are.
pub(crate) fn collect<T>(items: impl ExactSizeIterator<Item = T>) -> Result<Vec<T>> {
    let mut out = room(items.len())?;
    out.extend(items);
    Ok(out)
}
