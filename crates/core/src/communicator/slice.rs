//! Values in host memory that a collective reads or changes.

use crate::{DType, Element, Error, Result, dispatch_dtype};

/// Values of one dtype in host memory.
#[derive(Clone, Copy, Debug)]
pub struct HostSlice<'a> {
    dtype: DType,
    bytes: &'a [u8],
}

/// Values of one dtype in host memory, to be changed.
#[derive(Debug)]
pub struct HostSliceMut<'a> {
    dtype: DType,
    bytes: &'a mut [u8],
}

/// Whether bytes hold whole, aligned values.
fn check(dtype: DType, bytes: &[u8]) -> Result<()> {
    let align = dispatch_dtype!(dtype, T => align_of::<T>());
    if !bytes.len().is_multiple_of(dtype.size()) || !bytes.as_ptr().addr().is_multiple_of(align) {
        let message = format!("{} bytes at {:p} are no {dtype}s", bytes.len(), bytes.as_ptr());
        return Err(Error::invalid(message));
    }
    Ok(())
}

impl<'a> HostSlice<'a> {
    /// Of a slice.
    pub fn new<T: Element>(values: &'a [T]) -> Self {
        let (dtype, bytes) = (T::DTYPE, bytemuck::cast_slice(values));
        Self { dtype, bytes }
    }

    /// Of bytes in native byte order, aligned for their dtype.
    ///
    /// # Errors
    /// When they are not, or hold a part of a value.
    pub fn from_bytes(dtype: DType, bytes: &'a [u8]) -> Result<Self> {
        check(dtype, bytes)?;
        Ok(Self { dtype, bytes })
    }

    /// The dtype.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// How many values there are.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.dtype.size()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

impl<'a> HostSliceMut<'a> {
    /// Of a slice. What an engine leaves in it are values of `T`.
    pub fn new<T: Element + bytemuck::Pod>(values: &'a mut [T]) -> Self {
        let (dtype, bytes) = (T::DTYPE, bytemuck::cast_slice_mut(values));
        Self { dtype, bytes }
    }

    /// Of bytes in native byte order, aligned for their dtype.
    ///
    /// # Errors
    /// When they are not, or hold a part of a value.
    pub fn from_bytes(dtype: DType, bytes: &'a mut [u8]) -> Result<Self> {
        check(dtype, bytes)?;
        Ok(Self { dtype, bytes })
    }

    /// The dtype.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// How many values there are.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.dtype.size()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// To read.
    pub fn as_slice(&self) -> HostSlice<'_> {
        HostSlice {
            dtype: self.dtype,
            bytes: self.bytes,
        }
    }

    /// The bytes.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes
    }

    /// The same values for a shorter time.
    pub fn reborrow(&mut self) -> HostSliceMut<'_> {
        HostSliceMut {
            dtype: self.dtype,
            bytes: self.bytes,
        }
    }
}
