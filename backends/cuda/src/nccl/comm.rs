//! NCCL itself: a communicator, its device memory, and waits with a time limit.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtrMut, sys as cuda};
use cudarc::nccl::sys;
use polygrad_core::Result;

use crate::runtime::failed;

/// The id that all ranks of a group share.
pub(super) type Id = [u8; 128];

/// An error message of NCCL or CUDA.
#[derive(Debug)]
pub(super) struct Fault(pub(super) String);

type Done<T> = std::result::Result<T, Fault>;

/// The first bytes of a configuration, by which NCCL recognizes it: `NCCL_API_MAGIC`.
const MAGIC: u32 = 0xcafe_beef;
/// The version of NCCL whose configuration struct is used.
const VERSION: u32 = 22_400;
/// Leaves the choice of a number to NCCL: `NCCL_CONFIG_UNDEF_INT`.
const UNDEFINED: c_int = c_int::MIN;
/// The pause between two polls of a long operation.
const PAUSE: Duration = Duration::from_micros(50);

/// The version of the library.
pub(super) fn version() -> String {
    let mut code: c_int = 0;
    // SAFETY: the library is loaded, and writes a number.
    let known = unsafe { sys::ncclGetVersion(&raw mut code) };
    match known {
        sys::ncclResult_t::ncclSuccess => format!("{}.{}.{}", code / 10_000, code / 100 % 100, code % 100),
        _ => "of an unknown version".to_owned(),
    }
}

/// A new group's id.
pub(super) fn id() -> Done<Id> {
    let mut id = sys::ncclUniqueId { internal: [0; 128] };
    // SAFETY: the library is loaded, and writes an id.
    good(unsafe { sys::ncclGetUniqueId(&raw mut id) }, ptr::null_mut())?;
    Ok(id.internal.map(|byte| byte as u8))
}

fn good(result: sys::ncclResult_t, comm: sys::ncclComm_t) -> Done<()> {
    if matches!(
        result,
        sys::ncclResult_t::ncclSuccess | sys::ncclResult_t::ncclInProgress
    ) {
        return Ok(());
    }
    // SAFETY: both return strings that belong to the library or to the communicator, and accept a null communicator.
    let [what, more] = unsafe { [sys::ncclGetErrorString(result), sys::ncclGetLastError(comm)] }.map(|text| {
        if text.is_null() {
            return String::new();
        }
        // SAFETY: the string stays valid until the next call.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().trim().to_owned()
    });
    Err(Fault(match more.is_empty() {
        true => what,
        false => format!("{what}: {more}"),
    }))
}

/// A device's stream, and memory on it.
pub(super) struct Stage {
    stream: Arc<CudaStream>,
    memory: Option<CudaSlice<u8>>,
}

impl Stage {
    /// # Errors
    /// Those of CUDA.
    pub(super) fn new(device: usize) -> Result<Self> {
        let context = CudaContext::new(device).map_err(failed)?;
        Ok(Self {
            stream: context.new_stream().map_err(failed)?,
            memory: None,
        })
    }

    fn room(&mut self, bytes: usize) -> Done<&mut CudaSlice<u8>> {
        if self.memory.as_ref().is_none_or(|memory| memory.len() < bytes) {
            self.memory = None;
            self.memory = Some(self.stream.alloc_zeros(bytes).map_err(cuda_fault)?);
        }
        self.memory.as_mut().ok_or_else(|| Fault("no memory".to_owned()))
    }
}

fn cuda_fault(error: cudarc::driver::DriverError) -> Fault {
    Fault(failed(error).to_string())
}

/// A rank of a group.
pub(super) struct Comm {
    comm: sys::ncclComm_t,
    stage: Stage,
    limit: Duration,
}

// SAFETY: NCCL accepts a communicator on any thread, but only one at a time, which the lock around it guarantees.
unsafe impl Send for Comm {}

/// The arguments of a collective: an address in device memory, and NCCL's own.
pub(super) struct Call {
    pub(super) memory: u64,
    pub(super) comm: sys::ncclComm_t,
    pub(super) stream: sys::cudaStream_t,
}

impl Call {
    /// The address `offset` bytes after the first.
    pub(super) fn at(&self, offset: usize) -> *mut c_void {
        (self.memory + offset as u64) as *mut c_void
    }
}

impl Comm {
    /// Joins the group with the other ranks.
    pub(super) fn new(stage: Stage, id: &Id, rank: usize, size: usize, limit: Duration) -> Done<Self> {
        let number = |n: usize| c_int::try_from(n).map_err(|_| Fault(format!("{n} ranks are too many")));
        let (rank, size) = (number(rank)?, number(size)?);
        let id = sys::ncclUniqueId {
            internal: id.map(|byte| byte.cast_signed()),
        };
        let mut config = sys::ncclConfig_t {
            size: size_of::<sys::ncclConfig_t>(),
            magic: MAGIC,
            version: VERSION,
            // Non-blocking, so that the wait for the other ranks happens here, with a time limit.
            blocking: 0,
            cgaClusterSize: UNDEFINED,
            minCTAs: UNDEFINED,
            maxCTAs: UNDEFINED,
            netName: ptr::null(),
            splitShare: UNDEFINED,
        };
        stage.stream.context().bind_to_thread().map_err(cuda_fault)?;
        let mut comm = Self {
            comm: ptr::null_mut(),
            stage,
            limit,
        };
        // SAFETY: the context of the device is bound; `id` and `config` outlive the call, and the communicator is
        // `comm`'s own.
        let begun = unsafe { sys::ncclCommInitRankConfig(&raw mut comm.comm, size, id, rank, &raw mut config) };
        good(begun, comm.comm)?;
        comm.settled(Instant::now() + limit)?;
        Ok(comm)
    }

    /// Waits until NCCL has finished its last call on the host.
    fn settled(&self, deadline: Instant) -> Done<()> {
        while self.in_progress()? {
            late(deadline)?;
        }
        Ok(())
    }

    fn in_progress(&self) -> Done<bool> {
        let mut state = sys::ncclResult_t::ncclSuccess;
        // SAFETY: the communicator is alive, and the state is written to.
        let known = unsafe { sys::ncclCommGetAsyncError(self.comm, &raw mut state) };
        good(known, self.comm)?;
        good(state, self.comm)?;
        Ok(state == sys::ncclResult_t::ncclInProgress)
    }

    /// Copies bytes to an offset in device memory, runs a collective, and copies bytes back from another offset.
    pub(super) fn exchange(
        &mut self,
        bytes: usize,
        (to, sent): (usize, &[u8]),
        call: impl FnOnce(&Call) -> sys::ncclResult_t,
        (from, received): (usize, &mut [u8]),
    ) -> Done<()> {
        let deadline = Instant::now() + self.limit;
        let stream = Arc::clone(&self.stage.stream);
        let comm = self.comm;
        let beside = || Fault("a place beside the memory".to_owned());
        let memory = self.stage.room(bytes)?;
        let mut place = memory.try_slice_mut(to..to + sent.len()).ok_or_else(beside)?;
        stream.memcpy_htod(sent, &mut place).map_err(cuda_fault)?;
        let begun = {
            let (memory, _used) = memory.device_ptr_mut(&stream);
            call(&Call {
                memory,
                comm,
                // cudarc and NCCL have different types for the same stream.
                stream: stream.cu_stream().cast(),
            })
        };
        good(begun, comm)?;
        self.settled(deadline)?;
        let done = stream
            .record_event(Some(cuda::CUevent_flags::CU_EVENT_DISABLE_TIMING))
            .map_err(cuda_fault)?;
        while !done.try_is_complete().map_err(cuda_fault)? {
            self.in_progress()?;
            late(deadline)?;
        }
        let memory = self.stage.room(bytes)?;
        let place = memory.try_slice(from..from + received.len()).ok_or_else(beside)?;
        stream.memcpy_dtoh(&place, received).map_err(cuda_fault)?;
        stream.synchronize().map_err(cuda_fault)
    }
}

fn late(deadline: Instant) -> Done<()> {
    if Instant::now() >= deadline {
        return Err(Fault("time is up".to_owned()));
    }
    thread::sleep(PAUSE);
    Ok(())
}

impl Drop for Comm {
    fn drop(&mut self) {
        if !self.comm.is_null() && self.stage.stream.context().bind_to_thread().is_ok() {
            // SAFETY: it was created, and is aborted once; work in flight is abandoned, so that nothing waits.
            let _ = unsafe { sys::ncclCommAbort(self.comm) };
        }
    }
}
