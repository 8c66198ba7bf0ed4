//! The tensor, and its conversion from and to host tensors.

use std::cmp::Ordering;
use std::sync::Arc;

use polygrad_core::{DType, Element, Error, HostTensor, Result, Scalar, Shape, dispatch_dtype, room};

use crate::{number, positions};

/// A contiguous row-major tensor in host memory. Cloning shares the values, which never change.
#[derive(Clone, Debug)]
pub struct ReferenceTensor {
    shape: Shape,
    dtype: DType,
    values: Arc<Values>,
}

/// The elements: f64 for float dtypes, i64 for all others (bool as 0 and 1).
#[derive(Debug)]
pub(crate) enum Values {
    Real(Vec<f64>),
    Int(Vec<i64>),
}

impl Values {
    /// The order of two elements; NaN is larger than all others and equal to itself.
    pub(crate) fn compare(&self, i: usize, j: usize) -> Ordering {
        match self {
            Self::Real(x) => x[i]
                .partial_cmp(&x[j])
                .unwrap_or_else(|| x[i].is_nan().cmp(&x[j].is_nan())),
            Self::Int(x) => x[i].cmp(&x[j]),
        }
    }

    pub(crate) fn is_nan(&self, i: usize) -> bool {
        matches!(self, Self::Real(x) if x[i].is_nan())
    }
}

/// `count` values, or an error if memory runs out.
pub(crate) fn collect<T>(count: usize, mut value: impl FnMut(usize) -> Result<T>) -> Result<Vec<T>> {
    let mut out = room(count)?;
    for i in 0..count {
        out.push(value(i)?);
    }
    Ok(out)
}

impl ReferenceTensor {
    /// A tensor of a float dtype, to which each value is rounded.
    pub(crate) fn real(shape: Shape, dtype: DType, mut values: Vec<f64>) -> Self {
        debug_assert!(dtype.is_float() && values.len() == shape.numel());
        for value in &mut values {
            *value = number::round(*value, dtype);
        }
        Self {
            shape,
            dtype,
            values: Arc::new(Values::Real(values)),
        }
    }

    /// A tensor of an integer dtype or bool, to which each value is wrapped.
    pub(crate) fn int(shape: Shape, dtype: DType, mut values: Vec<i64>) -> Self {
        debug_assert!(!dtype.is_float() && values.len() == shape.numel());
        for value in &mut values {
            *value = number::wrap(*value, dtype);
        }
        Self {
            shape,
            dtype,
            values: Arc::new(Values::Int(values)),
        }
    }

    /// A tensor of any dtype from scalars.
    pub(crate) fn from_scalars(shape: Shape, dtype: DType, value: impl Fn(usize) -> Scalar) -> Result<Self> {
        let count = shape.numel();
        Ok(if dtype.is_float() {
            Self::real(shape, dtype, collect(count, |i| Ok(number::real(value(i), dtype)))?)
        } else {
            Self::int(shape, dtype, collect(count, |i| Ok(number::int(value(i), dtype)))?)
        })
    }

    pub(crate) fn from_host(host: &HostTensor) -> Result<Self> {
        let (shape, dtype) = (*host.shape(), host.dtype());
        dispatch_dtype!(dtype, T => {
            let values = host.as_slice::<T>()?;
            Self::from_scalars(shape, dtype, |i| values[i].to_scalar())
        })
    }

    pub(crate) fn to_host(&self) -> Result<HostTensor> {
        let count = self.shape.numel();
        dispatch_dtype!(self.dtype, T => HostTensor::new(self.shape, match self.values() {
            Values::Real(x) => collect(count, |i| Ok(<T as Element>::from_f64(x[i])))?,
            Values::Int(x) => collect(count, |i| Ok(T::from_i64(x[i])))?,
        }))
    }

    /// A tensor of `shape` with elements of this one: `source` returns the position of each, given its coordinates in
    /// `shape`.
    pub(crate) fn pick(&self, shape: Shape, source: impl Fn(&[usize]) -> Result<usize>) -> Result<Self> {
        let at = |i| source(&positions::coordinates(i, &shape)[..shape.rank()]);
        let count = shape.numel();
        let values = match self.values() {
            Values::Real(x) => Values::Real(collect(count, |i| element(x, at(i)?))?),
            Values::Int(x) => Values::Int(collect(count, |i| element(x, at(i)?))?),
        };
        Ok(Self {
            shape,
            dtype: self.dtype,
            values: Arc::new(values),
        })
    }

    /// The same elements under another shape with as many elements.
    pub(crate) fn reshape(&self, shape: Shape) -> Result<Self> {
        if shape.numel() != self.shape.numel() {
            return Err(Error::shape(format!("{} cannot be reshaped to {shape}", self.shape)).with_op("reshape"));
        }
        Ok(Self { shape, ..self.clone() })
    }

    pub(crate) fn shape(&self) -> &Shape {
        &self.shape
    }

    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    pub(crate) fn values(&self) -> &Values {
        &self.values
    }
}

fn element<T: Copy>(values: &[T], at: usize) -> Result<T> {
    values
        .get(at)
        .copied()
        .ok_or_else(|| Error::out_of_range(format!("element {at} of a tensor of {}", values.len())))
}
