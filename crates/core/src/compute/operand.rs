//! The memory that a call touches.

use std::ops::Range;

use super::calls::bytes;
use super::{AddressSpace, DevicePtr, DeviceView};
use crate::{DType, Error, Result};

/// How a call uses an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// It is read.
    Read,
    /// All of its elements are written, and none is read.
    Write,
    /// It is read and written, or only some elements are written.
    ReadWrite,
}

impl Access {
    /// Whether anything is written.
    pub const fn writes(self) -> bool {
        !matches!(self, Self::Read)
    }
}

/// Memory that a call touches: [`Call::operands`](super::Call::operands) lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operand {
    /// The call's field that points to it, such as `a`.
    pub name: &'static str,
    /// The address from which `span` counts.
    pub ptr: DevicePtr,
    /// Dtype of the elements.
    pub dtype: DType,
    /// Range of bytes, relative to `ptr`, that contains its elements. If empty, there are no elements, and `ptr` may be
    /// anything.
    pub span: Range<usize>,
    /// How the elements are used.
    pub access: Access,
}

impl Operand {
    /// The memory of a view, to read.
    pub(super) fn view(name: &'static str, view: &DeviceView) -> Result<Self> {
        Ok(Self {
            name,
            ptr: view.ptr,
            dtype: view.dtype,
            span: view.span()?,
            access: Access::Read,
        })
    }

    /// Contiguous elements of shape `dims`, to read.
    pub(super) fn row(name: &'static str, ptr: DevicePtr, dtype: DType, dims: &[usize]) -> Result<Self> {
        let elements = match dims.contains(&0) {
            true => Some(0),
            false => dims.iter().try_fold(1usize, |n, &dim| n.checked_mul(dim)),
        };
        Ok(Self::spanning(name, ptr, dtype, bytes(elements, dtype)?))
    }

    /// Contiguous elements of `bytes` bytes in all, to read.
    pub(super) const fn spanning(name: &'static str, ptr: DevicePtr, dtype: DType, bytes: usize) -> Self {
        Self {
            name,
            ptr,
            dtype,
            span: 0..bytes,
            access: Access::Read,
        }
    }

    pub(super) const fn with_access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    pub(super) const fn written(self) -> Self {
        self.with_access(Access::Write)
    }
}

impl<T> AddressSpace<T> {
    /// The address of an operand's allocation, and the offset of [`Operand::ptr`] in it, in bytes. `None` if the
    /// operand has no elements.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when its elements do not all lie in one allocation, or
    /// its address is not a multiple of its dtype's size.
    pub fn operand(&self, operand: &Operand) -> Result<Option<(DevicePtr, usize)>> {
        if operand.span.is_empty() {
            return Ok(None);
        }
        let size = operand.dtype.size();
        if !operand.ptr.get().is_multiple_of(size as u64) {
            let (name, ptr, dtype) = (operand.name, operand.ptr, operand.dtype);
            return Err(Error::invalid(format!("{name}: {ptr:?} is no address of {dtype}"))
                .with_hint(format!("it must be a multiple of {size}")));
        }
        match self.locate(operand.ptr, operand.span.end) {
            Ok((base, at)) => Ok(Some((DevicePtr::new(base), at))),
            Err(error) => {
                let named = Error::invalid(format!("{}: {}", operand.name, error.message()));
                Err(match error.hint() {
                    Some(hint) => named.with_hint(hint.to_owned()),
                    None => named,
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn operands_are_found_and_named() {
        let mut space = AddressSpace::default();
        let ptr = space.insert(64, ()).unwrap();
        let row = |ptr, count| Operand::row("bias", ptr, DType::F32, &[count]).unwrap();
        assert_eq!(space.operand(&row(ptr.add(8), 14)).unwrap(), Some((ptr, 8)));
        assert_eq!(space.operand(&row(DevicePtr::NULL, 0)).unwrap(), None);
        for bad in [row(ptr.add(8), 15), row(ptr.add(2), 1), row(DevicePtr::NULL, 1)] {
            let error = space.operand(&bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.message().starts_with("bias: "), "{error}");
        }
        assert!(Operand::row("x", ptr, DType::F32, &[usize::MAX, 2]).is_err());
        assert!(Operand::row("x", ptr, DType::F32, &[usize::MAX, 2, 0]).is_ok());
    }
}
