//! The driver's allocations, and tensors over parts of them.

use std::ops::Range;

use polygrad_core::compute::{AddressSpace, DevicePtr, DeviceView};
use polygrad_core::{CompareOp, DType, Error, Layout, MAX_RANK, Result, Scalar, Shape};

use super::claims::{Access, Claims, Memory, Uses};
use crate::buffers::Buffer;
use crate::ops::compare;
use crate::{CpuDevice, CpuTensor, loops};

/// The allocations and their uses. Every pointer and extent of a call is looked up here before any memory is accessed.
#[derive(Default)]
pub(super) struct Table {
    blocks: AddressSpace<Block>,
    pub(super) uses: Uses,
}

/// An allocation. Its bytes are never uninitialized, since the host may read any of them.
struct Block(Buffer);

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Block({:?})", self.0.as_ptr())
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} allocations of {} bytes", self.blocks.len(), self.blocks.bytes())
    }
}

impl Table {
    /// The allocation that contains `bytes` bytes at `ptr`, and their offset in it.
    pub(super) fn find(&self, ptr: DevicePtr, bytes: usize) -> Result<(&Buffer, usize)> {
        self.blocks.find(ptr, bytes).map(|(block, at)| (&block.0, at))
    }
}

/// The shape with a call's extents.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`](polygrad_core::ErrorKind::InvalidArgument), as for all invalid extents.
pub(super) fn shape(dims: &[usize]) -> Result<Shape> {
    Shape::new(dims).map_err(|error| Error::invalid(error.message().to_owned()))
}

impl Memory {
    pub(super) fn alloc(&self, bytes: usize) -> Result<DevicePtr> {
        let buffer = Buffer::alloc(bytes)?;
        // SAFETY: the block is new and has this many bytes.
        unsafe { std::ptr::write_bytes(buffer.as_ptr(), 0, bytes) };
        self.table().blocks.insert(bytes, Block(buffer))
    }

    /// A call that is running keeps the memory until it is done.
    pub(super) fn free(&self, ptr: DevicePtr) -> Result<()> {
        let removed = self.table().blocks.remove(ptr);
        removed.map(drop)
    }
}

impl Claims<'_> {
    pub(super) fn write(&self, dst: DevicePtr, src: &[u8]) -> Result<()> {
        if src.is_empty() {
            return Ok(());
        }
        let (buffer, at) = self.find(dst, src.len(), Access::Write)?;
        self.found();
        // SAFETY: the bytes are inside the allocation, and the claim for writing excludes all other access.
        unsafe { std::ptr::copy(src.as_ptr(), buffer.as_ptr().add(at), src.len()) };
        Ok(())
    }

    pub(super) fn read(&self, dst: &mut [u8], src: DevicePtr) -> Result<()> {
        if dst.is_empty() {
            return Ok(());
        }
        let (buffer, at) = self.find(src, dst.len(), Access::Read)?;
        self.found();
        // SAFETY: the bytes are inside the allocation and initialized, and the claim for reading excludes writers.
        unsafe { std::ptr::copy(buffer.as_ptr().add(at), dst.as_mut_ptr(), dst.len()) };
        Ok(())
    }

    pub(super) fn copy(&self, dst: DevicePtr, src: DevicePtr, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let (from, source) = self.find(src, bytes, Access::Read)?;
        let (to, target) = self.find(dst, bytes, Access::Write)?;
        self.found();
        // SAFETY: both parts are inside their allocations and claimed; they may overlap.
        unsafe { std::ptr::copy(from.as_ptr().add(source), to.as_ptr().add(target), bytes) };
        Ok(())
    }

    /// The memory of a view that is read. The pointer of a view without elements is not looked up.
    pub(super) fn place(&self, view: &DeviceView) -> Result<Place> {
        self.claim(view, Access::Read)
    }

    fn claim(&self, view: &DeviceView, access: Access) -> Result<Place> {
        let (dims, dtype) = (*view.shape(), view.dtype);
        let span = view.span()?;
        if span.is_empty() {
            return Ok(Place {
                buffer: Buffer::alloc_for(dims, 0)?,
                layout: Layout::contiguous(dims),
                dtype,
                access,
                span: 0..0,
            });
        }
        let size = dtype.size();
        if !view.ptr.get().is_multiple_of(size as u64) {
            return Err(Error::invalid(format!("{:?} is no address of {dtype}", view.ptr))
                .with_hint(format!("it must be a multiple of {size}")));
        }
        let (buffer, at) = self.find(view.ptr, span.end, access)?;
        // The stride of an axis of extent 1 has no meaning, and may be any number.
        let mut strides = [0; MAX_RANK];
        for (axis, stride) in view.layout.strides().iter().enumerate() {
            strides[axis] = if dims[axis] == 1 { 0 } else { *stride };
        }
        let layout = Layout::strided(dims, &strides[..dims.rank()], at / size + view.layout.offset());
        Ok(Place {
            buffer,
            layout,
            dtype,
            access,
            span: at + span.start..at + span.end,
        })
    }

    /// The memory of a view that is written, in which no two elements overlap.
    pub(super) fn target(&self, view: &DeviceView) -> Result<Place> {
        if !view.is_injective() {
            return Err(Error::invalid(format!(
                "the output of shape {} with strides {:?} has an element twice",
                view.shape(),
                view.layout.strides()
            )));
        }
        self.claim(view, Access::Write)
    }

    /// A readable tensor over the elements of a contiguous shape.
    pub(super) fn tensor(&self, ptr: DevicePtr, dtype: DType, dims: &[usize], device: CpuDevice) -> Result<CpuTensor> {
        self.input(ptr, dtype, dims)?.tensor(device)
    }

    /// The memory of a contiguous shape that is read.
    pub(super) fn input(&self, ptr: DevicePtr, dtype: DType, dims: &[usize]) -> Result<Place> {
        self.place(&DeviceView::contiguous(ptr, dtype, shape(dims)?))
    }

    /// The memory of a contiguous shape that is written to.
    pub(super) fn output(&self, ptr: DevicePtr, dtype: DType, dims: &[usize]) -> Result<Place> {
        self.claim(&DeviceView::contiguous(ptr, dtype, shape(dims)?), Access::Write)
    }
}

/// Part of an allocation, checked to be inside it, and claimed by the call that looked it up.
pub(super) struct Place {
    buffer: Buffer,
    layout: Layout,
    dtype: DType,
    access: Access,
    /// The range of the allocation's bytes that contains the elements.
    span: Range<usize>,
}

impl Place {
    pub(super) fn dtype(&self) -> DType {
        self.dtype
    }

    /// The layout of the elements in the allocation.
    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The first element.
    pub(super) fn first(&self) -> *mut u8 {
        self.buffer
            .as_ptr()
            .wrapping_add(self.layout.offset() * self.dtype.size())
    }

    /// A part of the elements; the offset of `layout` is relative to the first.
    pub(super) fn part(&self, layout: Layout) -> Self {
        let layout = Layout::strided(
            *layout.shape(),
            layout.strides(),
            self.layout.offset() + layout.offset(),
        );
        Self {
            buffer: self.buffer.clone(),
            layout,
            dtype: self.dtype,
            access: self.access,
            span: self.span.clone(),
        }
    }

    /// Whether the two may share a byte.
    pub(super) fn meets(&self, other: &Self) -> bool {
        self.buffer.as_ptr() == other.buffer.as_ptr()
            && self.span.start < other.span.end
            && other.span.start < self.span.end
    }

    /// Whether both are the same elements in the same order.
    pub(super) fn equals(&self, other: &Self) -> bool {
        let layout = |place: &Self| (*place.layout.shape(), place.layout.offset());
        self.buffer.as_ptr() == other.buffer.as_ptr()
            && self.dtype == other.dtype
            && layout(self) == layout(other)
            && self.layout.strides() == other.layout.strides()
    }

    /// A tensor over the memory itself. The bytes of bools are not checked.
    pub(super) fn raw(&self, device: CpuDevice) -> CpuTensor {
        CpuTensor::over(self.buffer.clone(), self.layout, self.dtype, device)
    }

    /// A tensor to compute with: over the memory itself, or a copy for bools, since the host may have written bytes
    /// other than 0 and 1.
    pub(super) fn tensor(&self, device: CpuDevice) -> Result<CpuTensor> {
        if self.dtype != DType::Bool {
            return Ok(self.raw(device));
        }
        let bytes = CpuTensor::over(self.buffer.clone(), self.layout, DType::U8, device);
        compare::compare_scalar(CompareOp::Ne, &bytes, Scalar::Int(0))
    }

    /// Writes a result with the same number of elements here.
    pub(super) fn write(&self, x: &CpuTensor) -> Result<()> {
        if self.access != Access::Write {
            return Err(Error::invalid("a result for memory that was claimed to be read"));
        }
        if x.dtype() != self.dtype {
            return Err(Error::dtype(format!("a result of {} for {}", x.dtype(), self.dtype)));
        }
        let x = x.reshaped(*self.layout.shape())?;
        // Some ops return their operand, which may be this very memory.
        let x = if x.is_in(&self.buffer) { x.copied()? } else { x };
        // SAFETY: the place was found inside its allocation, its elements are distinct, the result is elsewhere, and
        // the call has claimed the memory for itself.
        unsafe { loops::copy_into(&x, self.first(), &self.layout) };
        Ok(())
    }
}
