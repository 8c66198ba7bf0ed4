//! The tensor, and how values enter and leave it.

use std::any::Any;
use std::sync::Arc;

use polygrad_core::observe::copied_to_update;
use polygrad_core::{DType, Element, Error, HostBytes, HostTensor, Layout, Result, Shape};

use crate::CpuDevice;
use crate::buffers::Buffer;
use crate::loops;
use crate::view::Handle;

/// A tensor in host memory: a shared buffer, and where in it the elements lie. Cloning shares the memory.
#[derive(Clone)]
pub struct CpuTensor {
    buffer: Buffer,
    /// Where the elements lie, unless they fill the shape that the buffer was made for from its start. Like
    /// that shape it lives behind a pointer: tensors are moved around so often that their size decides what an
    /// op on a small one costs.
    view: Handle,
    dtype: DType,
    device: CpuDevice,
}

const _: () = assert!(size_of::<CpuTensor>() <= 32);

impl CpuTensor {
    /// A contiguous tensor whose elements are yet to be written.
    #[inline]
    pub(crate) fn empty(shape: Shape, dtype: DType, device: CpuDevice) -> Result<Self> {
        Ok(Self {
            buffer: Buffer::alloc_for(shape, shape.numel() * dtype.size())?,
            view: Handle::NONE,
            dtype,
            device,
        })
    }

    /// A tensor whose elements lie in a buffer that is there already; all of them must be inside it.
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
        let buffer = match any.downcast_ref::<HostView>() {
            // It was ours in the first place.
            Some(view) if view.start == 0 => view.buffer.clone(),
            _ => Buffer::share(shape, Arc::clone(host.shared()))?,
        };
        Ok(Self::over(buffer, Layout::contiguous(shape), dtype, device))
    }

    /// The elements, without a copy where they are contiguous.
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

    /// Where in the buffer the elements lie.
    #[inline]
    pub fn layout(&self) -> Layout {
        match self.view.get() {
            None => Layout::contiguous(*self.buffer.shape()),
            Some(view) => view.layout,
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

    /// The same weight with what was made of it.
    pub(crate) fn with_packed(&self, packed: impl Any + Send + Sync) -> Self {
        Self {
            view: Handle::new(self.layout(), Some(Box::new(packed))),
            ..self.clone()
        }
    }

    /// What was made of a weight, if that is a `T`.
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

    /// The first element.
    #[inline]
    pub(crate) fn ptr(&self) -> *const u8 {
        // Empty tensors may be sliced anywhere; nothing is read through their pointer.
        self.buffer.as_ptr().wrapping_add(self.offset() * self.dtype.size())
    }

    /// The first element, to write. Callers hold the only handle: they have just made the tensor, or asked
    /// [`CpuTensor::is_writable`].
    #[inline]
    pub(crate) fn ptr_mut(&mut self) -> *mut u8 {
        self.ptr().cast_mut()
    }

    /// The first element as a typed pointer.
    ///
    /// # Errors
    /// When the dtype is another.
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
    /// When the dtype is another or the tensor is not contiguous.
    pub(crate) fn slice<T: Element>(&self) -> Result<&[T]> {
        let ptr = self.typed::<T>()?;
        if !self.is_contiguous() {
            return Err(Error::invalid("a contiguous tensor is needed here"));
        }
        if self.numel() == 0 {
            return Ok(&[]);
        }
        // SAFETY: a contiguous tensor's elements lie one after another from its first, inside its buffer, which lives
        // as long as `self`. All of them have been written when a tensor leaves the op that made it, with values that
        // its dtype has, and whoever writes later must hold the only handle, which a borrowed one rules out.
        Ok(unsafe { std::slice::from_raw_parts(ptr, self.numel()) })
    }

    /// Whether the elements may be overwritten in place: nobody else sees them, and they lie one after another.
    #[inline]
    pub(crate) fn is_writable(&self) -> bool {
        let packed = self.view.get().is_some_and(|view| view.packed.is_some());
        self.is_contiguous() && !packed && self.buffer.is_unique()
    }

    /// Makes the tensor one that may be overwritten in place, copying it if need be.
    pub(crate) fn make_writable(&mut self) -> Result<()> {
        if !self.is_writable() {
            copied_to_update(self.numel() * self.dtype.size());
            *self = self.copied()?;
        }
        Ok(())
    }

    /// The tensor itself if it is contiguous, else a copy that is.
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

    /// The same memory in another layout, whose every element must lie inside the buffer.
    #[inline]
    pub(crate) fn with_layout(&self, layout: Layout) -> Self {
        Self::over(self.buffer.clone(), layout, self.dtype, self.device)
    }

    /// The same elements in row-major order under another shape of as many, without a copy where
    /// strides can express it.
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

/// Part of a buffer as host memory.
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
        // buffer. Nobody writes to a buffer that is shared, and this view holds a handle.
        unsafe { std::slice::from_raw_parts(self.buffer.as_ptr().add(self.start), self.len) }
    }
}
