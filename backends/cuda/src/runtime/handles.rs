//! What CUDA gives and must get back: pinned memory for reads, and graphs.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::sync::Arc;

use cudarc::driver::{CudaContext, result, sys};
use polygrad_core::Result;

use super::Readback;
use super::errors::failed;

/// Whether CUDA knows the memory: pageable memory it does not.
pub(super) fn is_pinned(bytes: &[u8]) -> bool {
    let mut kind = 0u32;
    // SAFETY: the attribute is a number of 32 bits; any address may be asked about.
    let known = unsafe {
        sys::cuPointerGetAttribute(
            (&raw mut kind).cast(),
            sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            bytes.as_ptr() as u64,
        )
    };
    known.result().is_ok()
}

/// Pinned memory into which a copy was ordered, and what tells when it is done.
pub(super) struct Staging {
    context: Arc<CudaContext>,
    memory: *mut u8,
    event: sys::CUevent,
    bytes: usize,
}

// SAFETY: the memory and the event are its own, and CUDA takes them on any thread that the context is bound to.
unsafe impl Send for Staging {}

impl Staging {
    /// Room for so many bytes.
    pub(super) fn new(context: &Arc<CudaContext>, bytes: usize) -> Result<Self> {
        let mut staging = Self {
            context: Arc::clone(context),
            memory: std::ptr::null_mut(),
            event: std::ptr::null_mut(),
            bytes,
        };
        // SAFETY: what is made is owned by `staging`, which gives it back.
        staging.memory = unsafe { result::malloc_host(bytes, 0) }.map_err(failed)?.cast();
        staging.event = result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING).map_err(failed)?;
        Ok(staging)
    }

    /// Orders the copy.
    ///
    /// # Safety
    /// So many bytes must be there at the address until the copy is done, and the stream be one of the context.
    pub(super) unsafe fn fill(&self, address: u64, stream: sys::CUstream) -> Result<()> {
        // SAFETY: the memory has this many bytes and stays until the event behind the copy has come, or the stream is done; the rest
        // is the caller's.
        unsafe {
            let to = std::slice::from_raw_parts_mut(self.memory.cast::<MaybeUninit<u8>>(), self.bytes);
            result::memcpy_dtoh_async(to, address, stream).map_err(failed)?;
            if let Err(error) = result::event::record(self.event, stream) {
                // Without it nothing would tell when the memory can go.
                let _ = result::stream::synchronize(stream);
                return Err(failed(error));
            }
        }
        Ok(())
    }
}

impl Readback for Staging {
    fn wait(self: Box<Self>) -> Result<Vec<u8>> {
        self.context.bind_to_thread().map_err(failed)?;
        // SAFETY: the event was recorded behind the copy; after it the memory holds so many bytes that were written.
        unsafe {
            result::event::synchronize(self.event).map_err(failed)?;
            Ok(std::slice::from_raw_parts(self.memory, self.bytes).to_vec())
        }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if self.context.bind_to_thread().is_err() {
            return;
        }
        // SAFETY: each is given back once, and not before the copy is done.
        unsafe {
            if !self.event.is_null() {
                let _ = result::event::synchronize(self.event);
                let _ = result::event::destroy(self.event);
            }
            if !self.memory.is_null() {
                let _ = result::free_host(self.memory.cast());
            }
        }
    }
}

/// A graph that can be run.
pub(super) struct Executable {
    context: Arc<CudaContext>,
    graph: sys::CUgraphExec,
}

// SAFETY: CUDA runs a graph from any thread that the context is bound to, and orders runs of one graph itself.
unsafe impl Send for Executable {}
// SAFETY: as above; nothing changes it.
unsafe impl Sync for Executable {}

impl Executable {
    pub(super) fn new(context: &Arc<CudaContext>, graph: sys::CUgraphExec) -> Self {
        Self {
            context: Arc::clone(context),
            graph,
        }
    }

    /// The graph, if it is one of a context.
    pub(super) fn of(&self, context: &Arc<CudaContext>) -> Option<sys::CUgraphExec> {
        Arc::ptr_eq(&self.context, context).then_some(self.graph)
    }
}

impl Drop for Executable {
    fn drop(&mut self) {
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: it was made and is destroyed once.
            let _ = unsafe { result::graph::exec_destroy(self.graph) };
        }
    }
}
