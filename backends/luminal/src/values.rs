//! Values in host memory: operands and results of a graph's nodes, and the values that are kept.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

use luminal::tensor::{Data, Tensor};
use polygrad_core::{DType, Element, Error, HostTensor, Layout, Result, Shape, collect};

use crate::support::typed;

/// The elements of a tensor, which never change. Cloning shares them.
#[derive(Clone, Debug)]
pub(crate) enum Values {
    F32(Arc<Vec<f32>>),
    I64(Arc<Vec<i64>>),
    Bool(Arc<Vec<bool>>),
}

/// The elements of a tensor in the form that kernels read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Slice<'a> {
    F32(&'a [f32]),
    I64(&'a [i64]),
    Bool(&'a [bool]),
}

/// luminal's own data is `Vec<f32>`; these two are for other dtypes.
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

/// The Rust types of the supported dtypes.
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

    /// The result of a graph, moved out of it.
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

    /// A host tensor's values: the same memory if it is a vector, else a copy.
    pub(crate) fn from_host(host: &HostTensor) -> Result<Self> {
        typed!("from_host", host.dtype(), T => {
            let shared: Arc<dyn Any + Send + Sync> = Arc::clone(host.shared()) as _;
            Ok(match shared.downcast::<Vec<T>>() {
                Ok(values) => T::keep(values),
                Err(_) => Self::new(collect(host.as_slice::<T>()?.iter().copied())?),
            })
        })
    }

    /// A host tensor that shares the memory of the values.
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

/// Elements, and a tensor's layout over them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub(crate) data: Slice<'a>,
    pub(crate) layout: Layout,
}

impl<'a> View<'a> {
    pub(crate) fn shape(&self) -> &Shape {
        self.layout.shape()
    }

    /// The whole memory.
    pub(crate) fn memory<T: Item>(&self) -> Result<&'a [T]> {
        T::slice(self.data).ok_or_else(|| Error::dtype(format!("{} is needed here", T::DTYPE)))
    }

    /// The elements in row-major order: in place if they are in that order, else a copy.
    pub(crate) fn values<T: Item>(&self) -> Result<Cow<'a, [T]>> {
        self.layout.values(self.memory()?)
    }
}
