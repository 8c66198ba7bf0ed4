//! A device's allocations and its compiled kernels.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polygrad_core::compute::{AddressSpace, DevicePtr, DeviceView};
use polygrad_core::{DType, Error, Result, Shape};

use crate::runtime::{Function, Runtime};
use crate::source::Source;

/// Sizes of allocations are multiples of this.
const UNIT: usize = 256;

/// Device memory that is freed on drop.
#[derive(Debug)]
pub(super) struct Allocation {
    runtime: Arc<dyn Runtime>,
    address: Option<u64>,
}

impl Allocation {
    /// Allocates at least this many bytes.
    pub(super) fn new(runtime: &Arc<dyn Runtime>, bytes: usize) -> Result<Self> {
        let rounded = bytes.max(1).checked_next_multiple_of(UNIT).ok_or_else(|| {
            Error::new(
                polygrad_core::ErrorKind::OutOfMemory,
                format!("{bytes} bytes are more than any memory"),
            )
        })?;
        let address = runtime.alloc(rounded)?;
        Ok(Self {
            runtime: Arc::clone(runtime),
            address: Some(address),
        })
    }

    pub(super) fn address(&self) -> u64 {
        self.address.unwrap_or(0)
    }

    /// Frees the memory after all work that was submitted before.
    pub(super) fn release(mut self) -> Result<()> {
        match self.address.take() {
            Some(address) => self.runtime.free(address),
            None => Ok(()),
        }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if let Some(address) = self.address.take() {
            // A drop cannot report an error.
            let _ = self.runtime.free(address);
        }
    }
}

/// The shape of an operand, or an error if it has more elements than any memory could hold.
pub(super) fn shape_of(dims: &[usize]) -> Result<Shape> {
    Shape::new(dims).map_err(|error| Error::invalid(error.message().to_owned()))
}

/// The tables of a device.
#[derive(Debug, Default)]
pub(super) struct Tables {
    space: Mutex<AddressSpace<Allocation>>,
    functions: Mutex<HashMap<Source<'static>, Function>>,
}

impl Tables {
    /// The allocations, locked against changes.
    pub(super) fn space(&self) -> Space<'_> {
        Space(self.space.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The kernel of a source, compiled on first use.
    pub(super) fn function(&self, runtime: &dyn Runtime, source: Source<'_>) -> Result<Function> {
        let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        // A shorter lifetime for the key, so that a borrowed source can be looked up.
        let known: &HashMap<Source<'_>, Function> = &functions;
        if let Some(&function) = known.get(&source) {
            return Ok(function);
        }
        let function = runtime.compile(&source.text()?, &source.name())?;
        functions.insert(source.into_owned(), function);
        Ok(function)
    }
}

/// A device's allocations.
pub(super) struct Space<'a>(MutexGuard<'a, AddressSpace<Allocation>>);

impl Space<'_> {
    pub(super) fn insert(&mut self, bytes: usize, allocation: Allocation) -> DevicePtr {
        let ptr = DevicePtr::new(allocation.address());
        self.0.insert_at(ptr, bytes, allocation);
        ptr
    }

    pub(super) fn remove(&mut self, ptr: DevicePtr) -> Result<Allocation> {
        self.0.remove(ptr)
    }

    /// The address of `bytes` bytes. For 0 bytes the pointer is not checked, and the address is null.
    pub(super) fn bytes(&self, ptr: DevicePtr, bytes: usize) -> Result<u64> {
        match bytes {
            0 => Ok(0),
            _ => self.0.find(ptr, bytes).map(|_| ptr.get()),
        }
    }

    /// The address of elements that end `bytes` bytes after `ptr`.
    pub(super) fn span(&self, ptr: DevicePtr, dtype: DType, bytes: usize) -> Result<u64> {
        let size = dtype.size();
        if bytes > 0 && !ptr.get().is_multiple_of(size as u64) {
            return Err(Error::invalid(format!("{ptr:?} is no address of {dtype}"))
                .with_hint(format!("it must be a multiple of {size}")));
        }
        self.bytes(ptr, bytes)
    }

    /// The address of contiguous elements.
    pub(super) fn row(&self, ptr: DevicePtr, dtype: DType, dims: &[usize]) -> Result<u64> {
        let shape = shape_of(dims)?;
        self.span(ptr, dtype, DeviceView::contiguous(ptr, dtype, shape).span()?.end)
    }

    /// The address of a view's first element.
    pub(super) fn view(&self, view: &DeviceView) -> Result<u64> {
        let span = view.span()?;
        if span.is_empty() {
            return Ok(0);
        }
        let base = self.span(view.ptr, view.dtype, span.end)?;
        Ok(base + (view.layout.offset() * view.dtype.size()) as u64)
    }

    /// The address of the first element of a view that is written.
    pub(super) fn target(&self, view: &DeviceView) -> Result<u64> {
        if !view.is_injective() {
            return Err(Error::invalid(format!(
                "the output of shape {} with strides {:?} has an element twice",
                view.shape(),
                view.layout.strides()
            )));
        }
        self.view(view)
    }
}
