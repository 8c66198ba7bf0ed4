//! What CUDA gives and must get back: pinned memory for reads, and graphs.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::{CudaContext, result, sys};
use polygrad_core::Result;

use super::Readback;
use super::errors::failed;

/// Whether CUDA has registered this memory; pageable memory it has not.
pub(super) fn is_pinned(bytes: &[u8]) -> bool {
    let mut kind = 0u32;
    let mut wanted = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    let mut places = [(&raw mut kind).cast::<c_void>()];
    // The call for one attribute fails where memory is pageable, and checkers of CUDA programs count that as a fault;
    // this one leaves 0. SAFETY: there is one attribute, a number of 32 bits; any address may be asked about.
    let asked = unsafe { sys::cuPointerGetAttributes(1, &raw mut wanted, places.as_mut_ptr(), bytes.as_ptr() as u64) };
    asked.result().is_ok() && kind != 0
}

/// The smallest block of pinned memory, in bytes.
const SMALLEST: usize = 4096;
/// The largest that is kept; up to it, blocks are powers of two.
const LARGEST: usize = 1 << 20;
/// How many are kept.
const KEPT: usize = 16;

/// Pinned memory, and an event that tells when a copy into it is done.
struct Block {
    memory: *mut u8,
    event: sys::CUevent,
    bytes: usize,
}

// SAFETY: the memory and the event are its own, and CUDA takes them on any thread that the context is bound to.
unsafe impl Send for Block {}

impl Block {
    /// Gives it back; the context is bound, and no copy is under way.
    fn release(self) {
        // SAFETY: each was made and is given back once.
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

/// The pinned memory of a context. Small blocks are kept from read to read: making one, and giving it back,
/// waits for the device.
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

    /// Orders a copy of so many bytes to the host.
    ///
    /// # Safety
    /// They must be there at the address until the copy is done, and the stream be one of the context, which is bound.
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
        // SAFETY: the caller answers for the address and the stream.
        unsafe { staging.fill(address, stream) }?;
        Ok(Box::new(staging))
    }

    fn free(&self) -> MutexGuard<'_, Vec<Block>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block of at least so many bytes.
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
        // SAFETY: what is made is owned by the block.
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

    /// Takes back a block into which no copy is under way; the context is bound.
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
    /// There until this is dropped.
    block: Option<Block>,
    bytes: usize,
    pinned: Arc<Pinned>,
}

impl Staging {
    /// Orders the copy.
    ///
    /// # Safety
    /// So many bytes must be there at the address until the copy is done, and the stream be one of the context.
    unsafe fn fill(&self, address: u64, stream: sys::CUstream) -> Result<()> {
        let Some(block) = &self.block else { return Ok(()) };
        // SAFETY: the memory has this many bytes and stays until the event behind the copy has come, or the stream is
        // done; the rest is the caller's.
        unsafe {
            let to = std::slice::from_raw_parts_mut(block.memory.cast::<MaybeUninit<u8>>(), self.bytes);
            result::memcpy_dtoh_async(to, address, stream).map_err(failed)?;
            if let Err(error) = result::event::record(block.event, stream) {
                // Without the event, nothing would say when the memory may be freed.
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
        // SAFETY: the event was recorded behind the copy; after it the memory holds so many bytes that were written.
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
            // SAFETY: the event is the block's own; one that was never recorded is done.
            let _ = unsafe { result::event::synchronize(block.event) };
            self.pinned.give(block);
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
