//! Borrowed values in host memory, read or changed by a collective.

use crate::{DType, Element, Error, Result, dispatch_dtype};

/// Values of one dtype in host memory.
#[derive(Clone, Copy, Debug)]
pub struct HostSlice<'a> {
    dtype: DType,
    bytes: &'a [u8],
}

/// Mutable values of one dtype in host memory.
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
    /// The values of a Rust slice.
    pub fn new<T: Element>(values: &'a [T]) -> Self {
        let (dtype, bytes) = (T::DTYPE, bytemuck::cast_slice(values));
        Self { dtype, bytes }
    }

    /// Values from bytes in native byte order, aligned for their dtype.
    ///
    /// # Errors
    /// When they are not aligned, or do not hold a whole number of values.
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
    /// The values of a Rust slice. Engines must leave values of `T` in it.
    pub fn new<T: Element + bytemuck::Pod>(values: &'a mut [T]) -> Self {
        let (dtype, bytes) = (T::DTYPE, bytemuck::cast_slice_mut(values));
        Self { dtype, bytes }
    }

    /// Values from bytes in native byte order, aligned for their dtype.
    ///
    /// # Errors
    /// When they are not aligned, or do not hold a whole number of values.
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

    /// The values, read-only.
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

    /// A shorter borrow of the same values.
    pub fn reborrow(&mut self) -> HostSliceMut<'_> {
        HostSliceMut {
            dtype: self.dtype,
            bytes: self.bytes,
        }
    }
}
