//! Groups of processes over NVIDIA's NCCL.
#![allow(unsafe_code)]

mod comm;

use std::error::Error as _;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use cudarc::nccl::sys;
use polygrad_core::communicator::{Communicator, HostSlice, HostSliceMut, LostPeer, Reduction, check};
use polygrad_core::{DType, Error, Result};

use crate::runtime;
use comm::{Call, Comm, Fault, Id, Stage};

/// A rank of a group over NVIDIA's NCCL, each rank on a device of its own. The feature is `nccl`; the library
/// is loaded at run time.
///
/// **Not yet run on several GPUs**: one rank on one GPU passes the suite; a machine with more tests two ranks
/// (`cargo xtask gpu-bundle`, part `nccl`).
///
/// - Values are in host memory and go through device memory, which stays allocated for the largest of them.
/// - Sums are NCCL's own. Since its minimum and maximum may lose NaN, those of floats are computed here, from the
///   values of all ranks.
/// - When a collective fails, the ranks wait for each other in `bootstrap`: its error names the lost rank, and takes at
///   most its time limit.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use polygrad_core::communicator::{Communicator, DEFAULT_TIMEOUT};
/// use polygrad_threads::Threads;
/// use polygrad_cuda::Nccl;
///
/// # fn main() -> polygrad_core::Result<()> {
/// // Of processes on one machine or several it is a group over Gloo or MPI.
/// let bootstrap: Arc<dyn Communicator> = Arc::new(Threads::group(1, DEFAULT_TIMEOUT)?.remove(0));
/// let group = Nccl::new(bootstrap, 0)?;
/// assert_eq!(group.size(), 1);
/// # Ok(())
/// # }
/// ```
pub struct Nccl {
    bootstrap: Arc<dyn Communicator>,
    device: usize,
    state: Mutex<State>,
}

enum State {
    Connected(Comm),
    Failed { lost: Option<usize>, what: String },
}

impl Nccl {
    /// A group of the same ranks as `bootstrap`, this one on the CUDA device of index `device`; torchrun gives each
    /// process a `LOCAL_RANK` for it. `bootstrap` carries NCCL's id to all ranks, and its time limit is this group's
    /// too.
    ///
    /// # Errors
    /// [`BackendUnavailable`](polygrad_core::ErrorKind::BackendUnavailable) without NVIDIA's driver, NCCL or the
    /// device; [`Communication`](polygrad_core::ErrorKind::Communication) if another rank lacks them, or if the ranks
    /// do not meet in time.
    pub fn new(bootstrap: Arc<dyn Communicator>, device: usize) -> Result<Self> {
        Self::met(bootstrap, device).map_err(|e| e.with_op("nccl"))
    }

    fn met(bootstrap: Arc<dyn Communicator>, device: usize) -> Result<Self> {
        let (rank, size) = (bootstrap.rank(), bootstrap.size());
        let opened = open(device, rank == 0);
        // The other ranks must not wait for one that cannot join.
        let mut ready = vec![0u8; size];
        bootstrap.all_gather(
            HostSlice::new(&[u8::from(opened.is_ok())]),
            HostSliceMut::new(&mut ready),
        )?;
        let (stage, mut id) = opened?;
        if let Some(other) = ready.iter().position(|&ready| ready == 0) {
            let message = format!("rank {other} cannot use NCCL");
            return Err(Error::communication(message).with_hint("its own error says why"));
        }
        bootstrap.broadcast(HostSliceMut::new(&mut id), 0)?;
        match Comm::new(stage, &id, rank, size, bootstrap.timeout()) {
            Ok(comm) => Ok(Self {
                bootstrap,
                device,
                state: Mutex::new(State::Connected(comm)),
            }),
            Err(Fault(said)) => Err(error(&blamed(&*bootstrap, said))),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a collective. After a failure, all later ones fail, too.
    fn collective(
        &self,
        name: &'static str,
        f: impl FnOnce(&mut Comm) -> std::result::Result<(), Fault>,
    ) -> Result<()> {
        let mut state = self.state();
        let said = match &mut *state {
            State::Failed { .. } => return Err(error(&state).with_op(name)),
            State::Connected(comm) => match f(comm) {
                Ok(()) => return Ok(()),
                Err(Fault(said)) => said,
            },
        };
        // Aborts the operation in flight, which frees the device and is noticed by the other ranks.
        *state = State::Failed {
            lost: None,
            what: said.clone(),
        };
        *state = blamed(&*self.bootstrap, said);
        Err(error(&state).with_op(name))
    }

    /// Reduces in place.
    fn reduced(&self, name: &'static str, mut values: HostSliceMut<'_>, op: Reduction) -> Result<()> {
        let (dtype, len) = (values.dtype(), values.len());
        if len == 0 {
            return self.wait(name);
        }
        if op != Reduction::Sum && dtype.is_float() {
            return op.gathered(&mut values, self.size(), |own, all| self.gathered(name, own, all));
        }
        let sent = values.as_slice().bytes().to_vec();
        self.collective(name, |comm| {
            let call = |call: &Call| {
                let memory = call.at(0);
                // SAFETY: the memory holds `len` values of the dtype, and is not accessed until the collective is over.
                unsafe { sys::ncclAllReduce(memory, memory, len, code(dtype), number(op), call.comm, call.stream) }
            };
            comm.exchange(sent.len(), (0, &sent), call, (0, values.bytes_mut()))
        })
    }

    fn gathered(&self, name: &'static str, own: HostSlice<'_>, mut all: HostSliceMut<'_>) -> Result<()> {
        let len = own.bytes().len();
        if len == 0 {
            return self.wait(name);
        }
        let place = self.rank() * len;
        self.collective(name, |comm| {
            let call = |call: &Call| {
                // SAFETY: the memory holds `len` bytes of every rank, those of this one at its own offset.
                unsafe { sys::ncclAllGather(call.at(place), call.at(0), len, BYTES, call.comm, call.stream) }
            };
            let bytes = all.bytes_mut();
            comm.exchange(bytes.len(), (place, own.bytes()), call, (0, bytes))
        })
    }

    /// An empty collective, which waits for all ranks.
    fn wait(&self, name: &'static str) -> Result<()> {
        self.reduced(name, HostSliceMut::new(&mut [0u8]), Reduction::Sum)
    }
}

/// The device and, if this rank creates it, the id.
fn open(device: usize, makes_id: bool) -> Result<(Stage, Id)> {
    runtime::nccl(device)?;
    let stage = Stage::new(device)?;
    let id = match makes_id {
        true => comm::id().map_err(|Fault(said)| Error::communication(format!("NCCL makes no id: {said}")))?,
        false => [0; 128],
    };
    Ok((stage, id))
}

/// Finds out which rank caused NCCL's error: all ranks except the lost one meet here.
fn blamed(bootstrap: &dyn Communicator, said: String) -> State {
    let missed = bootstrap.barrier().err();
    let lost = missed
        .as_ref()
        .and_then(|error| error.source()?.downcast_ref::<LostPeer>());
    State::Failed {
        lost: lost.map(|peer| peer.rank),
        what: match &missed {
            Some(error) => format!(
                "NCCL failed ({said}), and so did {}: {}",
                bootstrap.name(),
                error.message()
            ),
            None => format!("NCCL failed, though every rank answers: {said}"),
        },
    }
}

fn error(state: &State) -> Error {
    match state {
        State::Failed { lost: Some(rank), what } => {
            Error::communication(what.clone()).with_source(LostPeer { rank: *rank })
        }
        State::Failed { lost: None, what } => Error::communication(what.clone()),
        State::Connected(_) => Error::communication("nothing has failed"),
    }
}

const BYTES: sys::ncclDataType_t = sys::ncclDataType_t::ncclUint8;

fn code(dtype: DType) -> sys::ncclDataType_t {
    match dtype {
        DType::F64 => sys::ncclDataType_t::ncclFloat64,
        DType::F32 => sys::ncclDataType_t::ncclFloat32,
        DType::F16 => sys::ncclDataType_t::ncclFloat16,
        DType::BF16 => sys::ncclDataType_t::ncclBfloat16,
        DType::I64 => sys::ncclDataType_t::ncclInt64,
        DType::I32 => sys::ncclDataType_t::ncclInt32,
        // 0 and 1 compare like false and true.
        DType::U8 | DType::Bool => BYTES,
    }
}

fn number(op: Reduction) -> sys::ncclRedOp_t {
    match op {
        Reduction::Sum => sys::ncclRedOp_t::ncclSum,
        Reduction::Min => sys::ncclRedOp_t::ncclMin,
        Reduction::Max => sys::ncclRedOp_t::ncclMax,
    }
}

impl Communicator for Nccl {
    fn name(&self) -> String {
        format!("NCCL {}", comm::version())
    }

    fn rank(&self) -> usize {
        self.bootstrap.rank()
    }

    fn size(&self) -> usize {
        self.bootstrap.size()
    }

    fn timeout(&self) -> Duration {
        self.bootstrap.timeout()
    }

    fn all_reduce(&self, values: HostSliceMut<'_>, op: Reduction) -> Result<()> {
        check::all_reduce(&values, op)?;
        self.reduced("all_reduce", values, op)
    }

    fn reduce_scatter(&self, values: HostSlice<'_>, mut own: HostSliceMut<'_>, op: Reduction) -> Result<()> {
        check::reduce_scatter(values, &own, op, self.size())?;
        let (name, dtype, len) = ("reduce_scatter", own.dtype(), own.len());
        if len == 0 {
            return self.wait(name);
        }
        let (part, place) = (own.as_slice().bytes().len(), self.rank() * own.as_slice().bytes().len());
        if op != Reduction::Sum && dtype.is_float() {
            let mut whole = polygrad_core::communicator::HostBuffer::copied(values.bytes())?;
            self.reduced(name, HostSliceMut::from_bytes(dtype, whole.bytes_mut())?, op)?;
            own.bytes_mut().copy_from_slice(&whole.bytes()[place..][..part]);
            return Ok(());
        }
        self.collective(name, |comm| {
            let call = |call: &Call| {
                // SAFETY: the memory holds `len` values of the dtype for every rank; those of this one are written to
                // its own place.
                unsafe {
                    sys::ncclReduceScatter(
                        call.at(0),
                        call.at(place),
                        len,
                        code(dtype),
                        number(op),
                        call.comm,
                        call.stream,
                    )
                }
            };
            comm.exchange(
                values.bytes().len(),
                (0, values.bytes()),
                call,
                (place, own.bytes_mut()),
            )
        })
    }

    fn all_gather(&self, own: HostSlice<'_>, all: HostSliceMut<'_>) -> Result<()> {
        check::parts(all.as_slice(), own, self.size())?;
        self.gathered("all_gather", own, all)
    }

    fn broadcast(&self, mut values: HostSliceMut<'_>, root: usize) -> Result<()> {
        check::root(root, self.size())?;
        if values.is_empty() {
            return self.wait("broadcast");
        }
        let sent = match root == self.rank() {
            true => values.as_slice().bytes().to_vec(),
            false => Vec::new(),
        };
        let len = values.as_slice().bytes().len();
        self.collective("broadcast", |comm| {
            let call = |call: &Call| {
                let memory = call.at(0);
                // SAFETY: the memory holds `len` bytes.
                unsafe { sys::ncclBroadcast(memory, memory, len, BYTES, root as i32, call.comm, call.stream) }
            };
            comm.exchange(len, (0, &sent), call, (0, values.bytes_mut()))
        })
    }

    fn barrier(&self) -> Result<()> {
        self.wait("barrier")
    }

    fn abort(&self, why: &str) {
        self.bootstrap.abort(why);
        let failed = State::Failed {
            lost: Some(self.rank()),
            what: format!("rank {} gave up: {why}", self.rank()),
        };
        match self.state.try_lock() {
            Ok(mut state) => *state = failed,
            Err(TryLockError::Poisoned(state)) => *state.into_inner() = failed,
            // The collective in flight ends by the time limit.
            Err(TryLockError::WouldBlock) => {}
        }
    }
}

impl fmt::Debug for Nccl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Nccl(rank {} of {} on cuda:{})",
            self.rank(),
            self.size(),
            self.device
        )
    }
}
