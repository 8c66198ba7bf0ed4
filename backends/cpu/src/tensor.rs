//! The tensor, and how values enter and leave it.

use std::any::Any;
use std::sync::Arc;

use polygrad_core::observe::copied_to_update;
use polygrad_core::{DType, Element, Error, HostBytes, HostTensor, Layout, Result, Shape};

use crate::CpuDevice;
use crate::buffers::Buffer;
use crate::loops;
use crate::view::Handle;

/// Tensors of fewer bytes are not moved to huge pages: they stay in the second-level cache, or are a small part of what
/// is read.
const SMALL: usize = 64 << 10;

/// A tensor in host memory: a shared buffer and the layout of the elements in it. Cloning shares the memory.
#[derive(Clone)]
pub struct CpuTensor {
    buffer: Buffer,
    /// The layout, unless the tensor has the shape that the buffer was made for and starts at its beginning. Like that
    /// shape it is behind a pointer: tensors are moved so often that their size affects the cost of an op on a small
    /// one.
    view: Handle,
    dtype: DType,
    device: CpuDevice,
}

const _: () = assert!(size_of::<CpuTensor>() <= 32);

impl CpuTensor {
    /// A contiguous tensor whose elements are not yet written.
    #[inline]
    pub(crate) fn empty(shape: Shape, dtype: DType, device: CpuDevice) -> Result<Self> {
        Ok(Self {
            buffer: Buffer::alloc_for(shape, shape.numel() * dtype.size())?,
            view: Handle::NONE,
            dtype,
            device,
        })
    }

    /// A tensor over an existing buffer; all its elements must be inside the buffer.
    #[inline]
    pub(crate) fn over(buffer: Buffer, layout: Layout, dtype: DType, device: CpuDevice) -> Self {
        let plain = layout.offset() == 0 && layout.is_contiguous() && layout.shape() == buffer.shape();
        Self {
            buffer,
            view: if plain { Handle::NONE } else { Handle::new(layout, None) },
            dtype,
            device,
        }
    }

    /// Shares the host's memory.
    pub(crate) fn from_host(host: &HostTensor, device: CpuDevice) -> Result<Self> {
        let (shape, dtype) = (*host.shape(), host.dtype());
        if shape.numel() == 0 {
            return Self::empty(shape, dtype, device);
        }
        let any: &dyn Any = &**host.shared();
        if let Some(HostView { start: 0, buffer, .. }) = any.downcast_ref() {
            // The host tensor was made from this buffer.
            return Ok(Self::over(buffer.clone(), Layout::contiguous(shape), dtype, device));
        }
        Ok(Self {
            buffer: Buffer::share(shape, Arc::clone(host.shared()))?,
            view: Handle::NONE,
            dtype,
            device,
        })
    }

    /// The elements, without a copy if they are contiguous.
    pub(crate) fn to_host(&self) -> Result<HostTensor> {
        let whole = self.contiguous()?;
        let size = self.dtype.size();
        let view = HostView {
            start: whole.offset() * size,
            len: whole.numel() * size,
            buffer: whole.buffer,
        };
        HostTensor::from_shared(self.dtype, *self.shape(), Arc::new(view))
    }

    /// The shape.
    #[inline]
    pub fn shape(&self) -> &Shape {
        match self.view.get() {
            None => self.buffer.shape(),
            Some(view) => view.layout.shape(),
        }
    }

    /// The dtype.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The layout of the elements in the buffer.
    #[inline]
    pub fn layout(&self) -> Layout {
        match self.view.get() {
            None => Layout::contiguous(*self.buffer.shape()),
            Some(view) => view.layout,
        }
    }

    /// Elements from row to row and from column to column of a matrix, without a whole layout.
    #[inline]
    pub(crate) fn matrix_strides(&self) -> [isize; 2] {
        match self.view.get() {
            None => [self.buffer.shape()[1].max(1).cast_signed(), 1],
            Some(view) => [view.layout.strides()[0], view.layout.strides()[1]],
        }
    }

    /// Index of the first element in the buffer.
    #[inline]
    fn offset(&self) -> usize {
        self.view.get().map_or(0, |view| view.layout.offset())
    }

    /// The device.
    #[inline]
    pub fn device(&self) -> CpuDevice {
        self.device
    }

    /// The same weight with its packed form.
    pub(crate) fn with_packed(&self, packed: impl Any + Send + Sync) -> Self {
        Self {
            view: Handle::new(self.layout(), Some(Box::new(packed))),
            ..self.clone()
        }
    }

    /// The packed form of a weight, if it is a `T`.
    #[inline]
    pub(crate) fn packed<T: Any>(&self) -> Option<&T> {
        self.view.get()?.packed.as_ref()?.downcast_ref()
    }

    /// Whether the elements lie in this buffer.
    #[cfg(feature = "driver")]
    pub(crate) fn is_in(&self, buffer: &Buffer) -> bool {
        self.buffer.as_ptr() == buffer.as_ptr()
    }

    #[inline]
    pub(crate) fn numel(&self) -> usize {
        self.shape().numel()
    }

    #[inline]
    pub(crate) fn is_contiguous(&self) -> bool {
        self.view.get().is_none_or(|view| view.layout.is_contiguous())
    }

    /// Pointer to the first element.
    #[inline]
    pub(crate) fn ptr(&self) -> *const u8 {
        // Empty tensors may be sliced anywhere; nothing is read through their pointer.
        self.buffer.as_ptr().wrapping_add(self.offset() * self.dtype.size())
    }

    /// Pointer for writing the first element. The caller holds the only handle: it has just made the tensor, or has
    /// checked [`CpuTensor::is_writable`].
    #[inline]
    pub(crate) fn ptr_mut(&mut self) -> *mut u8 {
        self.ptr().cast_mut()
    }

    /// The first element as a typed pointer.
    ///
    /// # Errors
    /// If the dtype is another.
    #[inline]
    pub(crate) fn typed<T: Element>(&self) -> Result<*const T> {
        if self.dtype == T::DTYPE {
            return Ok(self.ptr().cast());
        }
        Err(self.expected(T::DTYPE))
    }

    #[cold]
    fn expected(&self, dtype: DType) -> Error {
        Error::dtype(format!("takes {dtype} here, got {}", self.dtype))
    }

    /// The elements of a contiguous tensor.
    ///
    /// # Errors
    /// If the dtype is another or the tensor is not contiguous.
    pub(crate) fn slice<T: Element>(&self) -> Result<&[T]> {
        let ptr = self.typed::<T>()?;
        if !self.is_contiguous() {
            return Err(Error::invalid("a contiguous tensor is needed here"));
        }
        if self.numel() == 0 {
            return Ok(&[]);
        }
        // SAFETY: a contiguous tensor's elements lie one after another from its first, inside its buffer, which lives
        // as long as `self`. All of them have been written, with valid values of the dtype, when a tensor leaves the op
        // that made it. Later writes require the only handle, which the borrow of `self` rules out.
        Ok(unsafe { std::slice::from_raw_parts(ptr, self.numel()) })
    }

    /// Whether the elements may be overwritten in place: they are not shared, and they are contiguous.
    #[inline]
    pub(crate) fn is_writable(&self) -> bool {
        let packed = self.view.get().is_some_and(|view| view.packed.is_some());
        self.is_contiguous() && !packed && self.buffer.is_unique()
    }

    /// Makes the tensor writable in place, by a copy if needed.
    pub(crate) fn make_writable(&mut self) -> Result<()> {
        if !self.is_writable() {
            copied_to_update(self.numel() * self.dtype.size());
            *self = self.copied()?;
        }
        Ok(())
    }

    /// The tensor itself if it is contiguous, else a contiguous copy.
    #[inline]
    pub(crate) fn contiguous(&self) -> Result<Self> {
        if self.is_contiguous() {
            return Ok(self.clone());
        }
        self.copied()
    }

    /// A contiguous copy in memory of its own.
    pub(crate) fn copied(&self) -> Result<Self> {
        let mut out = Self::empty(*self.shape(), self.dtype, self.device)?;
        loops::copy(self, &mut out);
        Ok(out)
    }

    /// A contiguous copy in huge pages; one in other memory, or the tensor itself, if it is small or has a packed form.
    pub(crate) fn in_huge_pages(&self) -> Result<Self> {
        let (shape, bytes) = (*self.shape(), self.numel() * self.dtype.size());
        if bytes < SMALL || self.view.get().is_some_and(|view| view.packed.is_some()) {
            return self.contiguous();
        }
        let (buffer, start) = Buffer::in_huge_pages(bytes)?;
        let layout = Layout::strided(shape, Layout::contiguous(shape).strides(), start / self.dtype.size());
        let mut out = Self::over(buffer, layout, self.dtype, self.device);
        loops::copy(self, &mut out);
        Ok(out)
    }

    /// The same memory in another layout, whose every element must lie inside the buffer.
    #[inline]
    pub(crate) fn with_layout(&self, layout: Layout) -> Self {
        Self::over(self.buffer.clone(), layout, self.dtype, self.device)
    }

    /// The same elements in row-major order in another shape with as many elements, without a copy if strides can
    /// express it.
    pub(crate) fn reshaped(&self, shape: Shape) -> Result<Self> {
        if shape.numel() != self.numel() {
            return Err(Error::shape(format!("{} cannot be reshaped to {shape}", self.shape())).with_op("reshape"));
        }
        match self.layout().reshape(shape) {
            Some(layout) => Ok(self.with_layout(layout)),
            None => Ok(self.copied()?.with_layout(Layout::contiguous(shape))),
        }
    }
}

impl std::fmt::Debug for CpuTensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CpuTensor({}{} on {})", self.dtype, self.shape(), self.device)
    }
}

/// Part of a buffer as a host tensor's memory.
struct HostView {
    buffer: Buffer,
    start: usize,
    len: usize,
}

impl HostBytes for HostView {
    fn bytes(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: the view was made of a contiguous tensor, all of whose elements are written and lie inside the
        // buffer. A shared buffer is never written, and this view holds a handle.
        unsafe { std::slice::from_raw_parts(self.buffer.as_ptr().add(self.start), self.len) }
    }
}
