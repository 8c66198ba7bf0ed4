//! Tensors without the driver in their type: shared storage, computed or pending, and a layout.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use polygrad_core::compute::{DevicePtr, DeviceView};
use polygrad_core::{DType, Error, ErrorKind, HostTensor, Layout, Result, Shape};

use crate::Context;
use crate::chain::{self, Expr};
use crate::memory::Buffer;
use crate::movement;

/// Row-major elements: in memory, or as an expression that computes them.
#[derive(Debug)]
pub(crate) struct Storage {
    pub(crate) context: Arc<Context>,
    pub(crate) shape: Shape,
    pub(crate) dtype: DType,
    buffer: OnceLock<Buffer>,
    /// `None` once there is a buffer.
    expr: Mutex<Option<Arc<Expr>>>,
    /// Held by the thread that computes it, so that other threads wait instead of computing it, too.
    running: Mutex<()>,
}

/// The state of a storage: computed or pending.
pub(crate) enum State<'a> {
    Ready(&'a Buffer),
    Pending(Arc<Expr>),
}

impl Storage {
    /// The memory; computes the elements if they are pending.
    pub(crate) fn buffer(self: &Arc<Self>) -> Result<&Buffer> {
        if let Some(buffer) = self.buffer.get() {
            return Ok(buffer);
        }
        let _running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::Pending(expr) = self.state() {
            chain::run(self, expr)?;
        }
        match self.state() {
            State::Ready(buffer) => Ok(buffer),
            State::Pending(_) => unreachable!("a run gives what it was run for"),
        }
    }

    /// The state at the moment.
    pub(crate) fn state(&self) -> State<'_> {
        if let Some(buffer) = self.buffer.get() {
            return State::Ready(buffer);
        }
        match self.expr() {
            Some(expr) => State::Pending(expr),
            // The buffer is set before the expression is removed.
            None => match self.buffer.get() {
                Some(buffer) => State::Ready(buffer),
                None => unreachable!("a tensor is in memory, or there is an expression that gives it"),
            },
        }
    }

    pub(crate) fn is_pending(&self) -> bool {
        self.buffer.get().is_none()
    }

    pub(crate) fn expr(&self) -> Option<Arc<Expr>> {
        self.expr.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the buffer, and removes the expression.
    pub(crate) fn fill(&self, buffer: Buffer) {
        // Two programs may have computed it as an intermediate of their results; the values are the same.
        let _ = self.buffer.set(buffer);
        let expr = self.expr.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(expr);
    }
}

/// A tensor. Cloning is cheap.
#[derive(Clone, Debug)]
pub(crate) struct Array {
    pub(crate) storage: Arc<Storage>,
    pub(crate) layout: Layout,
}

impl Array {
    fn over(
        context: &Arc<Context>,
        shape: Shape,
        dtype: DType,
        buffer: OnceLock<Buffer>,
        expr: Option<Arc<Expr>>,
    ) -> Self {
        let storage = Storage {
            context: Arc::clone(context),
            shape,
            dtype,
            buffer,
            expr: Mutex::new(expr),
            running: Mutex::default(),
        };
        Self {
            storage: Arc::new(storage),
            layout: Layout::contiguous(shape),
        }
    }

    /// A tensor in memory that is not yet written.
    pub(crate) fn empty(context: &Arc<Context>, shape: Shape, dtype: DType) -> Result<Self> {
        context.expect(dtype)?;
        let buffer = Buffer::alloc(context, shape.numel() * dtype.size())?;
        Ok(Self::over(context, shape, dtype, OnceLock::from(buffer), None))
    }

    /// A tensor that an expression will compute.
    pub(crate) fn pending(context: &Arc<Context>, shape: Shape, dtype: DType, expr: Expr) -> Self {
        Self::over(context, shape, dtype, OnceLock::new(), Some(Arc::new(expr)))
    }

    pub(crate) fn from_host(context: &Arc<Context>, host: &HostTensor) -> Result<Self> {
        let out = Self::empty(context, *host.shape(), host.dtype())?;
        if out.shape().numel() > 0 {
            context.driver.copy_htod(out.ptr()?, host.bytes())?;
        }
        Ok(out)
    }

    pub(crate) fn to_host(&self) -> Result<HostTensor> {
        let (shape, dtype) = (*self.shape(), self.dtype());
        if self.layout.is_contiguous() {
            return HostTensor::from_bytes(dtype, shape, &self.read(self.start()?, shape.numel())?);
        }
        if self.context().runs_programs(dtype) {
            return movement::contiguous(self)?.to_host();
        }
        let whole = self.read(self.ptr()?, self.storage.shape.numel())?;
        let mut bytes = host_bytes(shape.numel() * dtype.size())?;
        movement::gather_bytes(&whole, &self.layout, dtype.size(), &mut bytes);
        HostTensor::from_bytes(dtype, shape, &bytes)
    }

    /// Reads `elements` elements of its storage, starting at `from`.
    fn read(&self, from: DevicePtr, elements: usize) -> Result<Vec<u8>> {
        let mut bytes = host_bytes(elements * self.dtype().size())?;
        if !bytes.is_empty() {
            self.context().driver.copy_dtoh(&mut bytes, from)?;
        }
        Ok(bytes)
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.storage.context
    }

    pub(crate) fn shape(&self) -> &Shape {
        self.layout.shape()
    }

    pub(crate) fn dtype(&self) -> DType {
        self.storage.dtype
    }

    /// The same memory with another layout.
    pub(crate) fn with_layout(&self, layout: Layout) -> Self {
        Self {
            storage: Arc::clone(&self.storage),
            layout,
        }
    }

    /// Whether it covers its whole storage in order, whatever its shape.
    pub(crate) fn is_whole(&self) -> bool {
        self.shape().numel() == self.storage.shape.numel() && self.layout.offset() == 0 && self.layout.is_contiguous()
    }

    /// Computes the pending expression into new memory. `None` if the elements are in memory already, or if this is
    /// only a part of its storage.
    pub(crate) fn computed_apart(&self) -> Result<Option<Self>> {
        let expr = match self.is_whole() && self.storage.is_pending() {
            true => self.storage.expr(),
            false => None,
        };
        let Some(expr) = expr else { return Ok(None) };
        let apart = Self::over(
            self.context(),
            self.storage.shape,
            self.dtype(),
            OnceLock::new(),
            Some(expr),
        );
        apart.storage.buffer()?;
        Ok(Some(apart.with_layout(self.layout)))
    }

    /// The start of its storage.
    fn ptr(&self) -> Result<DevicePtr> {
        Ok(self.storage.buffer()?.ptr())
    }

    /// The address of its first element, if it is row-major.
    pub(crate) fn start(&self) -> Result<DevicePtr> {
        Ok(self.ptr()?.add(self.layout.offset() * self.dtype().size()))
    }

    /// Its view for a driver.
    pub(crate) fn view(&self) -> Result<DeviceView> {
        Ok(DeviceView::new(self.ptr()?, self.dtype(), self.layout))
    }
}

/// Zeroed host memory.
fn host_bytes(len: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len).map_err(|_| {
        Error::new(
            ErrorKind::OutOfMemory,
            format!("the host has no {len} bytes for the values"),
        )
    })?;
    bytes.resize(len, 0);
    Ok(bytes)
}
