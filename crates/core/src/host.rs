//! Tensors in host memory: how values enter and leave every backend.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::{DType, Element, Error, ErrorKind, Result, Shape, dispatch_dtype};

/// Memory that a [`HostTensor`] can share without a copy: a vector, or a backend's own host buffer.
pub trait HostBytes: Any + Send + Sync {
    /// The bytes, aligned for their dtype. They must not change while the owner lives.
    fn bytes(&self) -> &[u8];
}

impl<T: Element> HostBytes for Vec<T> {
    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(self)
    }
}

/// A contiguous row-major tensor in host memory. Cloning shares the memory.
#[derive(Clone)]
pub struct HostTensor {
    dtype: DType,
    shape: Shape,
    data: Arc<dyn HostBytes>,
}

impl HostTensor {
    /// Takes over a vector, without a copy.
    ///
    /// # Errors
    /// When the vector's length is not the shape's number of elements.
    pub fn new<T: Element>(shape: Shape, values: Vec<T>) -> Result<Self> {
        if values.len() != shape.numel() {
            return Err(Error::shape(format!(
                "{} values do not fill shape {shape}, which has {} elements",
                values.len(),
                shape.numel()
            )));
        }
        Ok(Self {
            dtype: T::DTYPE,
            shape,
            data: Arc::new(values),
        })
    }

    /// Shares memory that already holds the elements.
    ///
    /// # Errors
    /// When its size or alignment does not fit shape and dtype, or a bool is neither 0 nor 1.
    pub fn from_shared(dtype: DType, shape: Shape, data: Arc<dyn HostBytes>) -> Result<Self> {
        let needed = shape.numel() * dtype.size();
        let tensor = Self { dtype, shape, data };
        let found = tensor.data.bytes().len();
        if found != needed {
            return Err(Error::shape(format!(
                "{dtype}{shape} takes {needed} bytes, the memory holds {found}"
            )));
        }
        dispatch_dtype!(dtype, T => tensor.as_slice::<T>().map(|_| ()))?;
        Ok(tensor)
    }

    /// Copies raw bytes in native byte order, whatever their alignment.
    ///
    /// # Errors
    /// When the number of bytes does not fit shape and dtype, or a bool is neither 0 nor 1.
    pub fn from_bytes(dtype: DType, shape: Shape, bytes: &[u8]) -> Result<Self> {
        let needed = shape.numel() * dtype.size();
        if bytes.len() != needed {
            return Err(Error::shape(format!(
                "{dtype}{shape} takes {needed} bytes, got {}",
                bytes.len()
            )));
        }
        dispatch_dtype!(dtype, T => {
            let mut values: Vec<T> = Vec::new();
            values.try_reserve_exact(shape.numel()).map_err(|_| {
                Error::new(ErrorKind::OutOfMemory, format!("{needed} bytes of memory could not be had"))
            })?;
            for chunk in bytes.chunks_exact(size_of::<T>()) {
                let value = bytemuck::checked::try_pod_read_unaligned::<T>(chunk)
                    .map_err(|_| Error::invalid(format!("bytes that are no {dtype}: {chunk:?}")))?;
                values.push(value);
            }
            Self::new(shape, values)
        })
    }

    /// Rank 0 from one value.
    pub fn scalar<T: Element>(value: T) -> Self {
        Self {
            dtype: T::DTYPE,
            shape: Shape::SCALAR,
            data: Arc::new(vec![value]),
        }
    }

    /// The dtype.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The raw bytes in native byte order.
    pub fn bytes(&self) -> &[u8] {
        self.data.bytes()
    }

    /// The memory itself, by which a backend recognises its own.
    pub fn shared(&self) -> &Arc<dyn HostBytes> {
        &self.data
    }

    /// The elements in row-major order.
    ///
    /// # Errors
    /// When `T` is not the tensor's dtype.
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        if T::DTYPE != self.dtype {
            return Err(
                Error::dtype(format!("a tensor of {} was read as {}", self.dtype, T::DTYPE))
                    .with_hint("cast it first with to_dtype"),
            );
        }
        if self.shape.numel() == 0 {
            return Ok(&[]);
        }
        bytemuck::checked::try_cast_slice(self.data.bytes()).map_err(|e| match self.dtype {
            DType::Bool => Error::invalid("a byte of bools is neither 0 nor 1"),
            dtype => Error::invalid(format!("memory that does not hold {dtype}: {e}")),
        })
    }

    /// A copy of the elements in row-major order.
    ///
    /// # Errors
    /// When `T` is not the tensor's dtype.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        self.as_slice().map(<[T]>::to_vec)
    }

    /// The elements as real numbers, whatever the dtype. An i64 beyond ±2⁵³ is rounded.
    pub fn to_f64_vec(&self) -> Vec<f64> {
        dispatch_dtype!(self.dtype, T => self.elements::<T>().iter().map(|&value| value.to_f64()).collect())
    }

    /// [`HostTensor::to_f64_vec`] for tensors of untrusted size.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] when there is no room for 8 bytes for each element.
    pub fn try_to_f64_vec(&self) -> Result<Vec<f64>> {
        let mut values = room(self.shape.numel())?;
        self.each_f64(|value| values.push(value));
        Ok(values)
    }

    /// Calls `visit` with each element as a real number, in row-major order, without copying the tensor.
    pub fn each_f64(&self, visit: impl FnMut(f64)) {
        dispatch_dtype!(self.dtype, T => self.elements::<T>().iter().map(|&value| value.to_f64()).for_each(visit));
    }

    /// The elements. `T` must be the type of the dtype.
    fn elements<T: Element>(&self) -> &[T] {
        match self.as_slice::<T>() {
            Ok(values) => values,
            Err(_) => unreachable!("the dtype was checked when the tensor was made"),
        }
    }

    /// A copy in another dtype, by [`Element::from_scalar`]'s conversions.
    #[must_use]
    pub fn cast(&self, dtype: DType) -> Self {
        if dtype == self.dtype {
            return self.clone();
        }
        let data: Arc<dyn HostBytes> = dispatch_dtype!(self.dtype, S => {
            dispatch_dtype!(dtype, D => Arc::new(self.converted::<S, D>(Vec::with_capacity(self.shape.numel()))))
        });
        Self {
            dtype,
            shape: self.shape,
            data,
        }
    }

    /// [`HostTensor::cast`] for tensors of untrusted size.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] when there is no room for the copy.
    pub fn try_cast(&self, dtype: DType) -> Result<Self> {
        if dtype == self.dtype {
            return Ok(self.clone());
        }
        let data: Arc<dyn HostBytes> = dispatch_dtype!(self.dtype, S => {
            dispatch_dtype!(dtype, D => Arc::new(self.converted::<S, D>(room(self.shape.numel())?)))
        });
        Ok(Self {
            dtype,
            shape: self.shape,
            data,
        })
    }

    /// Counts the elements that were lost in `cast`, which is this tensor in another dtype: finite elements that became
    /// infinite, and nonzero elements that became 0.
    pub fn lost_in(&self, cast: &Self) -> (u64, u64) {
        let count = |host: &Self| {
            let (mut infinite, mut zero) = (0_u64, 0_u64);
            host.each_f64(|value| {
                infinite += u64::from(value.is_infinite());
                zero += u64::from(value == 0.0);
            });
            (infinite, zero)
        };
        let (before, after) = (count(self), count(cast));
        (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1))
    }

    /// Converts the elements to another dtype, into memory that is already allocated.
    fn converted<S: Element, D: Element>(&self, mut memory: Vec<D>) -> Vec<D> {
        let values = self.elements::<S>().iter();
        memory.extend(values.map(|&value| D::from_scalar(value.to_scalar())));
        memory
    }

    /// The same elements under another shape.
    ///
    /// # Errors
    /// When the number of elements differs.
    pub fn reshape(&self, shape: Shape) -> Result<Self> {
        if shape.numel() != self.shape.numel() {
            return Err(Error::shape(format!("{} cannot be reshaped to {shape}", self.shape)));
        }
        Ok(Self { shape, ..self.clone() })
    }
}

/// An empty vector with capacity for `count` elements. Too little memory is an error, where `Vec` would abort the
/// process.
///
/// # Errors
/// When memory runs out.
pub fn room<T>(count: usize) -> Result<Vec<T>> {
    let mut memory = Vec::new();
    memory.try_reserve_exact(count).map_err(|_| {
        let bytes = count.saturating_mul(size_of::<T>());
        Error::new(
            ErrorKind::OutOfMemory,
            format!("no memory for {count} elements, {bytes} bytes of the host's"),
        )
    })?;
    Ok(memory)
}

/// Collects an iterator of known length into a vector from [`room`].
///
/// # Errors
/// When memory runs out.
pub fn collect<T>(items: impl ExactSizeIterator<Item = T>) -> Result<Vec<T>> {
    let mut out = room(items.len())?;
    out.extend(items);
    Ok(out)
}

impl fmt::Debug for HostTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<String> = dispatch_dtype!(self.dtype, T => {
            self.elements::<T>().iter().take(16).map(|value| format!("{value:?}")).collect()
        });
        let more = if self.shape.numel() > shown.len() { " …" } else { "" };
        write!(
            f,
            "HostTensor({}{} [{}]{more})",
            self.dtype,
            self.shape,
            shown.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_what_it_is_given() {
        let tensor = HostTensor::new(Shape::from([2, 2]), vec![1.5f32, -2.0, 0.0, 4.0]).unwrap();
        assert_eq!(tensor.as_slice::<f32>().unwrap(), [1.5, -2.0, 0.0, 4.0]);
        assert!(tensor.as_slice::<f64>().unwrap_err().to_string().contains("to_dtype"));
        assert_eq!(tensor.cast(DType::I32).to_vec::<i32>().unwrap(), [1, -2, 0, 4]);
        assert_eq!(
            tensor.cast(DType::Bool).to_vec::<bool>().unwrap(),
            [true, true, false, true]
        );
        let copy = HostTensor::from_bytes(DType::F32, Shape::from([4]), tensor.bytes()).unwrap();
        assert_eq!(copy.to_f64_vec(), [1.5, -2.0, 0.0, 4.0]);
        assert_eq!(copy.try_to_f64_vec().unwrap(), copy.to_f64_vec());
        assert_eq!(
            copy.try_cast(DType::I32).unwrap().to_vec::<i32>().unwrap(),
            [1, -2, 0, 4]
        );
        assert_eq!(format!("{copy:?}"), "HostTensor(f32[4] [1.5, -2.0, 0.0, 4.0])");
    }

    #[test]
    fn refuses_what_does_not_fit() {
        assert!(HostTensor::new(Shape::from([3]), vec![1u8]).is_err());
        assert!(HostTensor::from_bytes(DType::F32, Shape::from([1]), &[0; 3]).is_err());
        assert!(HostTensor::from_bytes(DType::Bool, Shape::from([1]), &[7]).is_err());
        let bytes: Arc<dyn HostBytes> = Arc::new(vec![2u8]);
        assert!(HostTensor::from_shared(DType::Bool, Shape::from([1]), bytes).is_err());
    }
}
