//! Values in host memory: what nodes of a graph take and give, and what is kept of them.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

use luminal::tensor::{Data, Tensor};
use polygrad_core::{DType, Element, Error, ErrorKind, HostTensor, Layout, Result, Shape};

use crate::support::typed;

/// The elements of a tensor, which never change. Cloning shares them.
#[derive(Clone, Debug)]
pub(crate) enum Values {
    F32(Arc<Vec<f32>>),
    I64(Arc<Vec<i64>>),
    Bool(Arc<Vec<bool>>),
}

/// The elements of a tensor as a kernel sees them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Slice<'a> {
    F32(&'a [f32]),
    I64(&'a [i64]),
    Bool(&'a [bool]),
}

/// luminal's own data is `Vec<f32>`; these two are ours.
#[derive(Clone, Debug)]
struct Ints(Vec<i64>);

#[derive(Clone, Debug)]
struct Bools(Vec<bool>);

macro_rules! data {
    ($($type:ident)*) => {$(
        impl Data for $type {
            fn as_any(&self) -> &dyn Any {
                self
            }

            fn as_any_mut(&mut self) -> &mut dyn Any {
                self
            }
        }
    )*};
}

data!(Ints Bools);

/// The Rust types of our dtypes.
pub(crate) trait Item: Element + Default {
    fn slice(slice: Slice<'_>) -> Option<&[Self]>;
    fn borrow(values: &[Self]) -> Slice<'_>;
    fn tensor(values: Vec<Self>) -> Tensor;
    fn keep(values: Arc<Vec<Self>>) -> Values;
}

macro_rules! item {
    ($($type:ident $variant:ident $wrap:expr;)*) => {$(
        impl Item for $type {
            fn slice(slice: Slice<'_>) -> Option<&[Self]> {
                match slice {
                    Slice::$variant(values) => Some(values),
                    _ => None,
                }
            }

            fn borrow(values: &[Self]) -> Slice<'_> {
                Slice::$variant(values)
            }

            fn tensor(values: Vec<Self>) -> Tensor {
                Tensor::new($wrap(values))
            }

            fn keep(values: Arc<Vec<Self>>) -> Values {
                Values::$variant(values)
            }
        }
    )*};
}

item! {
    f32 F32 std::convert::identity;
    i64 I64 Ints;
    bool Bool Bools;
}

impl Values {
    pub(crate) fn new<T: Item>(values: Vec<T>) -> Self {
        T::keep(Arc::new(values))
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::I64(values) => values.len(),
            Self::Bool(values) => values.len(),
        }
    }

    pub(crate) fn as_slice(&self) -> Slice<'_> {
        match self {
            Self::F32(values) => Slice::F32(values),
            Self::I64(values) => Slice::I64(values),
            Self::Bool(values) => Slice::Bool(values),
        }
    }

    /// What a graph computed, moved out of it.
    pub(crate) fn from_graph(mut tensor: Tensor) -> Option<Self> {
        let data = tensor.data.as_any_mut();
        if let Some(values) = data.downcast_mut::<Vec<f32>>() {
            return Some(Self::new(std::mem::take(values)));
        }
        if let Some(Ints(values)) = data.downcast_mut() {
            return Some(Self::new(std::mem::take(values)));
        }
        let Bools(values) = data.downcast_mut()?;
        Some(Self::new(std::mem::take(values)))
    }

    /// A host tensor's values: the same memory where it is a vector, else a copy.
    pub(crate) fn from_host(host: &HostTensor) -> Result<Self> {
        typed!("from_host", host.dtype(), T => {
            let shared: Arc<dyn Any + Send + Sync> = Arc::clone(host.shared()) as _;
            Ok(match shared.downcast::<Vec<T>>() {
                Ok(values) => T::keep(values),
                Err(_) => Self::new(collect(host.as_slice::<T>()?.iter().copied())?),
            })
        })
    }

    /// The values in memory that a host tensor shares.
    pub(crate) fn share(&self, shape: Shape) -> Result<HostTensor> {
        match self {
            Self::F32(values) => HostTensor::from_shared(DType::F32, shape, Arc::clone(values) as _),
            Self::I64(values) => HostTensor::from_shared(DType::I64, shape, Arc::clone(values) as _),
            Self::Bool(values) => HostTensor::from_shared(DType::Bool, shape, Arc::clone(values) as _),
        }
    }
}

/// A node's output in a running graph.
pub(crate) fn slice_of(tensor: &Tensor) -> Option<Slice<'_>> {
    let data = tensor.data.as_any();
    if let Some(values) = data.downcast_ref::<Vec<f32>>() {
        return Some(Slice::F32(values));
    }
    if let Some(Ints(values)) = data.downcast_ref() {
        return Some(Slice::I64(values));
    }
    let Bools(values) = data.downcast_ref()?;
    Some(Slice::Bool(values))
}

/// Elements, and which of them a tensor shows in which order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub(crate) data: Slice<'a>,
    pub(crate) layout: Layout,
}

impl<'a> View<'a> {
    pub(crate) fn shape(&self) -> &Shape {
        self.layout.shape()
    }

    /// The memory that it looks into, all of it.
    pub(crate) fn memory<T: Item>(&self) -> Result<&'a [T]> {
        T::slice(self.data).ok_or_else(|| Error::dtype(format!("{} is needed here", T::DTYPE)))
    }

    /// The elements in row-major order: where they lie if they lie so, else a copy.
    pub(crate) fn values<T: Item>(&self) -> Result<Cow<'a, [T]>> {
        let values = self.memory::<T>()?;
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
