//! Memory: allocations by address, and elements of views.

use polygrad_core::compute::{AddressSpace, DevicePtr, DeviceView};
use polygrad_core::{DType, Element, Error, ErrorKind, Result, Scalar, Shape, dispatch_dtype};

/// The allocations. `AddressSpace` assigns addresses, and finds the allocation of an address.
#[derive(Debug, Default)]
pub(crate) struct Memory(AddressSpace<Vec<u8>>);

/// A view of all elements of a contiguous shape.
pub(crate) fn whole(ptr: DevicePtr, dtype: DType, dims: &[usize]) -> Result<DeviceView> {
    Ok(DeviceView::contiguous(ptr, dtype, Shape::new(dims)?))
}

impl Memory {
    pub(crate) fn alloc(&mut self, bytes: usize) -> Result<DevicePtr> {
        let mut block = Vec::new();
        let none = |e| Error::new(ErrorKind::OutOfMemory, format!("no {bytes} bytes")).with_source(e);
        block.try_reserve_exact(bytes).map_err(none)?;
        block.resize(bytes, 0);
        self.0.insert(bytes, block)
    }

    pub(crate) fn free(&mut self, ptr: DevicePtr) -> Result<()> {
        self.0.remove(ptr).map(drop)
    }

    /// The `len` bytes at an address, all within one allocation. If `len` is 0, the pointer is ignored.
    pub(crate) fn bytes(&self, ptr: DevicePtr, len: usize) -> Result<&[u8]> {
        if len == 0 {
            return Ok(&[]);
        }
        let (block, at) = self.0.find(ptr, len)?;
        Ok(&block[at..at + len])
    }

    pub(crate) fn bytes_mut(&mut self, ptr: DevicePtr, len: usize) -> Result<&mut [u8]> {
        if len == 0 {
            return Ok(&mut []);
        }
        let (block, at) = self.0.find_mut(ptr, len)?;
        Ok(&mut block[at..at + len])
    }

    /// The byte offsets of a view's elements from its pointer, after checking that all of them are inside one
    /// allocation.
    pub(crate) fn find(&self, view: &DeviceView) -> Result<Vec<usize>> {
        self.bytes(view.ptr, view.span()?.end)?;
        let (layout, shape) = (&view.layout, view.shape());
        let place = |mut i: usize| {
            let mut at = layout.offset().cast_signed();
            for axis in (0..shape.rank()).rev() {
                at += (i % shape[axis]).cast_signed() * layout.strides()[axis];
                i /= shape[axis];
            }
            at.cast_unsigned() * view.dtype.size()
        };
        Ok((0..shape.numel()).map(place).collect())
    }

    /// The elements of a view, in row-major order.
    pub(crate) fn read(&self, view: &DeviceView) -> Result<Vec<Scalar>> {
        let places = self.find(view)?;
        let bytes = self.bytes(view.ptr, view.span()?.end)?;
        let one = |at: usize| match view.dtype {
            DType::Bool => Scalar::Bool(bytes[at] != 0),
            dtype => dispatch_dtype!(dtype, T => {
                let element = bytemuck::checked::try_pod_read_unaligned::<T>(&bytes[at..at + dtype.size()]);
                element.map_or(Scalar::Bool(false), Element::to_scalar)
            }),
        };
        Ok(places.into_iter().map(one).collect())
    }

    /// Writes the elements of a view, each rounded to its dtype.
    pub(crate) fn write(&mut self, view: &DeviceView, values: &[Scalar]) -> Result<()> {
        let places = self.find(view)?;
        let size = view.dtype.size();
        let bytes = self.bytes_mut(view.ptr, view.span()?.end)?;
        for (at, &value) in places.into_iter().zip(values) {
            dispatch_dtype!(view.dtype, T => {
                bytes[at..at + size].copy_from_slice(bytemuck::bytes_of(&T::from_scalar(value)));
            });
        }
        Ok(())
    }
}
