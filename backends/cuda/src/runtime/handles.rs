//! Owners of CUDA's resources: pinned memory for reads, and graphs.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::{CudaContext, result, sys};
use polygrad_core::Result;

use super::Readback;
use super::errors::failed;

/// Whether CUDA has registered this memory, which it has not for pageable memory.
pub(super) fn is_pinned(bytes: &[u8]) -> bool {
    let mut kind = 0u32;
    let mut wanted = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    let mut places = [(&raw mut kind).cast::<c_void>()];
    // The call for a single attribute fails for pageable memory, and checkers of CUDA programs count that as a fault;
    // this one leaves 0. SAFETY: there is one attribute, a 32-bit number; any address may be queried.
    let asked = unsafe { sys::cuPointerGetAttributes(1, &raw mut wanted, places.as_mut_ptr(), bytes.as_ptr() as u64) };
    asked.result().is_ok() && kind != 0
}

/// The smallest block of pinned memory, in bytes.
const SMALLEST: usize = 4096;
/// The largest block that is kept. Sizes up to it are powers of two.
const LARGEST: usize = 1 << 20;
/// The most blocks that are kept.
const KEPT: usize = 16;

/// Pinned memory, and an event that tells when a copy into it is done.
struct Block {
    memory: *mut u8,
    event: sys::CUevent,
    bytes: usize,
}

// SAFETY: the memory and the event are its own, and CUDA accepts them on any thread that the context is bound to.
unsafe impl Send for Block {}

impl Block {
    /// Frees the block. The context must be bound, and no copy be in flight.
    fn release(self) {
        // SAFETY: each was created, and is freed once.
        unsafe {
            if !self.event.is_null() {
                let _ = result::event::destroy(self.event);
            }
            if !self.memory.is_null() {
                let _ = result::free_host(self.memory.cast());
            }
        }
    }
}

/// The pinned memory of a context. Small blocks are kept from read to read, since allocating and freeing one waits for
/// the device.
pub(super) struct Pinned {
    context: Arc<CudaContext>,
    free: Mutex<Vec<Block>>,
}

impl Pinned {
    pub(super) fn new(context: &Arc<CudaContext>) -> Arc<Self> {
        Arc::new(Self {
            context: Arc::clone(context),
            free: Mutex::default(),
        })
    }

    /// Submits a copy of `bytes` bytes to the host.
    ///
    /// # Safety
    /// They must stay valid at the address until the copy is done; the stream must belong to the context, which must be
    /// bound.
    pub(super) unsafe fn read(
        self: &Arc<Self>,
        address: u64,
        bytes: usize,
        stream: sys::CUstream,
    ) -> Result<Box<dyn Readback>> {
        let staging = Staging {
            block: Some(self.take(bytes)?),
            bytes,
            pinned: Arc::clone(self),
        };
        // SAFETY: the caller guarantees the address and the stream.
        unsafe { staging.fill(address, stream) }?;
        Ok(Box::new(staging))
    }

    fn free(&self) -> MutexGuard<'_, Vec<Block>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block of at least this many bytes.
    fn take(&self, bytes: usize) -> Result<Block> {
        let bytes = match bytes {
            ..=LARGEST => bytes.next_power_of_two().max(SMALLEST),
            _ => bytes,
        };
        let mut free = self.free();
        if let Some(i) = free.iter().position(|block| block.bytes == bytes) {
            return Ok(free.swap_remove(i));
        }
        drop(free);
        let mut block = Block {
            memory: std::ptr::null_mut(),
            event: std::ptr::null_mut(),
            bytes,
        };
        // SAFETY: the block owns the new resources.
        block.memory = unsafe { result::malloc_host(bytes, 0) }.map_err(failed)?.cast();
        match result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING) {
            Ok(event) => block.event = event,
            Err(error) => {
                block.release();
                return Err(failed(error));
            }
        }
        Ok(block)
    }

    /// Takes back a block without a copy in flight. The context must be bound.
    fn give(&self, block: Block) {
        let mut free = self.free();
        if block.bytes <= LARGEST && free.len() < KEPT {
            return free.push(block);
        }
        drop(free);
        block.release();
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if self.context.bind_to_thread().is_ok() {
            self.free().drain(..).for_each(Block::release);
        }
    }
}

/// A copy to the host that has been submitted.
struct Staging {
    /// `Some` until this is dropped.
    block: Option<Block>,
    bytes: usize,
    pinned: Arc<Pinned>,
}

impl Staging {
    /// Submits the copy.
    ///
    /// # Safety
    /// The bytes must stay valid at the address until the copy is done; the stream must belong to the context.
    unsafe fn fill(&self, address: u64, stream: sys::CUstream) -> Result<()> {
        let Some(block) = &self.block else { return Ok(()) };
        // SAFETY: the memory has this many bytes, and stays until the event after the copy has occurred, or the stream
        // is done; the caller guarantees the rest.
        unsafe {
            let to = std::slice::from_raw_parts_mut(block.memory.cast::<MaybeUninit<u8>>(), self.bytes);
            result::memcpy_dtoh_async(to, address, stream).map_err(failed)?;
            if let Err(error) = result::event::record(block.event, stream) {
                // Without the event, it would be unknown when the memory may be freed.
                let _ = result::stream::synchronize(stream);
                return Err(failed(error));
            }
        }
        Ok(())
    }
}

impl Readback for Staging {
    fn wait(self: Box<Self>) -> Result<Vec<u8>> {
        self.pinned.context.bind_to_thread().map_err(failed)?;
        let Some(block) = &self.block else {
            return Ok(Vec::new());
        };
        // SAFETY: the event was recorded after the copy; after it, this many bytes of the memory are written.
        unsafe {
            result::event::synchronize(block.event).map_err(failed)?;
            Ok(std::slice::from_raw_parts(block.memory, self.bytes).to_vec())
        }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if let Some(block) = self.block.take()
            && self.pinned.context.bind_to_thread().is_ok()
        {
            // SAFETY: the event is the block's own; an event that was never recorded counts as done.
            let _ = unsafe { result::event::synchronize(block.event) };
            self.pinned.give(block);
        }
    }
}

/// An executable graph.
pub(super) struct Executable {
    context: Arc<CudaContext>,
    graph: sys::CUgraphExec,
}

// SAFETY: CUDA runs a graph from any thread that the context is bound to, and orders runs of one graph itself.
unsafe impl Send for Executable {}
// SAFETY: as above; it is never changed.
unsafe impl Sync for Executable {}

impl Executable {
    pub(super) fn new(context: &Arc<CudaContext>, graph: sys::CUgraphExec) -> Self {
        Self {
            context: Arc::clone(context),
            graph,
        }
    }

    /// The graph, if it belongs to `context`.
    pub(super) fn of(&self, context: &Arc<CudaContext>) -> Option<sys::CUgraphExec> {
        Arc::ptr_eq(&self.context, context).then_some(self.graph)
    }
}

impl Drop for Executable {
    fn drop(&mut self) {
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: it was created, and is destroyed once.
            let _ = unsafe { result::graph::exec_destroy(self.graph) };
        }
    }
}
