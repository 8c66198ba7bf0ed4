//! A group of processes, and its collectives.

use std::fmt;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use polygrad_core::communicator::{Communicator, HostBuffer, HostSlice, HostSliceMut, Reduction, check};
use polygrad_core::{Error, Result};

use crate::ffi::{Comm, Failed, Memory, Mpi as Library, Request};
use crate::notes::{Note, Notes};
use crate::session::{START, Session};
use crate::waiting::{Lost, Waiting};
use crate::wire::Wire;

/// The most bytes that a collective moves at once: enough for speed, few enough for a cache, and far below the limit of
/// MPI's counts.
const PIECE: usize = 1 << 22;
/// The fewest values of each rank that it moves at once, even with many ranks.
const LEAST: usize = 1 << 12;
/// How long a rank that gives up waits until the others have got its note.
const FAREWELL: Duration = Duration::from_millis(50);
/// How much a call may exceed its time limit in order to find out which rank is missing.
const GRACE: Duration = Duration::from_millis(500);

/// One process's end of a group of processes that `mpirun` started.
pub struct Mpi {
    session: Arc<Session>,
    comm: Comm,
    rank: usize,
    size: usize,
    timeout: Duration,
    state: Mutex<State>,
}

struct State {
    failed: Option<Lost>,
    calls: u64,
    /// The memory of the last call, reused by the next one.
    memory: Memory,
    /// Locked by the MPI thread while it works.
    notes: Arc<Mutex<Notes>>,
}

/// A running collective.
struct Running<'a> {
    group: &'a Mpi,
    state: &'a mut State,
    begun: Instant,
}

impl Mpi {
    /// Loads MPI, starts it and joins the group of all processes. A process that `mpirun` did not start is a group of
    /// one.
    ///
    /// # Errors
    /// [`BackendUnavailable`](polygrad_core::ErrorKind::BackendUnavailable) without an MPI library, or with another one
    /// than that of the launcher; [`InvalidArgument`](polygrad_core::ErrorKind::InvalidArgument) for a second call in a
    /// process; [`Communication`](polygrad_core::ErrorKind::Communication) when the other ranks do not join in time.
    pub fn init(timeout: Duration) -> Result<Self> {
        let session = Arc::new(Session::start(timeout)?);
        let library = session.library;
        Self::of(&session, timeout, START.max(timeout), move || {
            library.duplicate(library.world())
        })
    }

    /// Makes a group with a communicator that `f` makes on the MPI thread.
    fn of(
        session: &Arc<Session>,
        timeout: Duration,
        limit: Duration,
        f: impl FnOnce() -> Result<Comm, Failed> + Send + 'static,
    ) -> Result<Self> {
        let library = session.library;
        let made = session.within(limit, move || {
            let comm = f()?;
            let (rank, size) = (library.rank(comm)?, library.size(comm)?);
            let mut notes = Notes::new(library, library.duplicate(comm)?, rank, size);
            notes.greet(limit)?;
            Ok::<_, Failed>((comm, rank, size, notes))
        });
        let late = || Error::communication(format!("not every rank came to form a group within {limit:?}"));
        let (comm, rank, size, notes) = made.ok_or_else(late)??;
        Ok(Self {
            session: Arc::clone(session),
            comm,
            rank,
            size,
            timeout,
            state: Mutex::new(State {
                failed: None,
                calls: 0,
                memory: Memory::default(),
                notes: Arc::new(Mutex::new(notes)),
            }),
        })
    }

    /// Runs a collective, with memory of the given sizes to send from and to receive into.
    fn call(
        &self,
        name: &'static str,
        (send, receive): (usize, usize),
        f: impl FnOnce(&mut Running<'_>) -> Result<(), Lost>,
    ) -> Result<()> {
        let (group, begun) = (self, Instant::now());
        let state = &mut *self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lost) = &state.failed {
            return Err(lost.error().with_op(name));
        }
        let memory = &mut state.memory;
        let room = reserve(&mut memory.send, send).and_then(|()| reserve(&mut memory.receive, receive));
        room.map_err(|e| e.with_op(name))?;
        state.calls += 1;
        let mut running = Running { group, state, begun };
        f(&mut running).map_err(|lost| {
            let error = lost.error().with_op(name);
            running.state.failed = Some(lost);
            error
        })
    }

    /// Runs a collective without values, as a barrier.
    fn meet(&self, name: &'static str) -> Result<()> {
        self.call(name, (0, 0), |call| {
            call.make(0, |library, comm, _| library.barrier(comm))
        })
    }

    /// The number of values of `bytes` bytes that are sent at once, to or from `ranks` ranks.
    fn piece(&self, bytes: usize, ranks: usize) -> usize {
        (PIECE / bytes / ranks).max(LEAST)
    }
}

impl Running<'_> {
    /// Starts an operation of MPI with the memory, which transfers `bytes` bytes, and waits for it.
    fn make(
        &mut self,
        bytes: usize,
        f: impl FnOnce(&Library, Comm, Memory) -> Result<Request, Failed> + Send + 'static,
    ) -> Result<(), Lost> {
        let (library, comm, timeout) = (self.group.session.library, self.group.comm, self.group.timeout);
        let (memory, notes) = (std::mem::take(&mut self.state.memory), Arc::clone(&self.state.notes));
        let (note, begun) = (Note::Here(self.state.calls), self.begun);
        let limit = (timeout + GRACE).saturating_sub(begun.elapsed());
        let made = self.group.session.within(limit, move || {
            let mut notes = notes.lock().unwrap_or_else(PoisonError::into_inner);
            let mut waiting = Waiting::new(library, comm, &mut notes, note, timeout, begun);
            let done = waiting.complete(f(library, comm, memory), bytes);
            done.inspect_err(|lost| {
                // A rank that the note does not reach notices by its own time limit.
                let _ = notes.tell(Note::GaveUp(lost.rank()));
                notes.flush(FAREWELL);
            })
        });
        let hangs = || format!("MPI does not return within {timeout:?}: a rank is gone, or too late");
        self.state.memory = made.unwrap_or_else(|| Err(Lost::named(Vec::new(), hangs())))?;
        Ok(())
    }
}

fn reserve(buffer: &mut HostBuffer, len: usize) -> Result<()> {
    if buffer.bytes().len() < len {
        *buffer = HostBuffer::new(len)?;
    }
    Ok(())
}

impl Communicator for Mpi {
    fn name(&self) -> String {
        self.session.name.clone()
    }

    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    fn all_reduce(&self, mut values: HostSliceMut<'_>, op: Reduction) -> Result<()> {
        check::all_reduce(&values, op)?;
        if values.is_empty() {
            return self.meet("all_reduce");
        }
        let wire = Wire::new(values.dtype(), op);
        let (bytes, wide) = (values.dtype().size(), wire.datatype.size());
        let most = self.piece(wide, 1).min(values.len());
        self.call("all_reduce", (0, most * wide), |call| {
            for piece in values.bytes_mut().chunks_mut(most * bytes) {
                let count = piece.len() / bytes;
                wire.encode(piece, &mut call.state.memory.receive.bytes_mut()[..count * wide]);
                call.make(count * wide, move |library, comm, memory| {
                    library.all_reduce(comm, memory, count, wire.datatype, wire.operation())
                })?;
                wire.decode(&call.state.memory.receive.bytes()[..count * wide], piece);
            }
            Ok(())
        })
    }

    fn reduce_scatter(&self, values: HostSlice<'_>, mut own: HostSliceMut<'_>, op: Reduction) -> Result<()> {
        check::reduce_scatter(values, &own, op, self.size)?;
        if own.is_empty() {
            return self.meet("reduce_scatter");
        }
        let wire = Wire::new(values.dtype(), op);
        let (bytes, wide, size) = (values.dtype().size(), wire.datatype.size(), self.size);
        let most = self.piece(wide, size).min(own.len());
        self.call("reduce_scatter", (most * wide * size, most * wide), |call| {
            let part = own.bytes_mut().len();
            for (index, piece) in own.bytes_mut().chunks_mut(most * bytes).enumerate() {
                let (from, count) = (index * most * bytes, piece.len() / bytes);
                let places = call.state.memory.send.bytes_mut().chunks_exact_mut(count * wide);
                for (place, values) in places.zip(values.bytes().chunks_exact(part)) {
                    wire.encode(&values[from..from + piece.len()], place);
                }
                call.make(count * wide * size, move |library, comm, memory| {
                    library.reduce_scatter(comm, memory, (count, size), wire.datatype, wire.operation())
                })?;
                wire.decode(&call.state.memory.receive.bytes()[..count * wide], piece);
            }
            Ok(())
        })
    }

    fn all_gather(&self, own: HostSlice<'_>, mut all: HostSliceMut<'_>) -> Result<()> {
        check::parts(all.as_slice(), own, self.size)?;
        if own.is_empty() {
            return self.meet("all_gather");
        }
        let (own, size) = (own.bytes(), self.size);
        let most = self.piece(1, size).min(own.len());
        self.call("all_gather", (most, most * size), |call| {
            for (index, piece) in own.chunks(most).enumerate() {
                let (from, count) = (index * most, piece.len());
                call.state.memory.send.bytes_mut()[..count].copy_from_slice(piece);
                call.make(count * size, move |library, comm, memory| {
                    library.all_gather(comm, memory, (count, size))
                })?;
                let parts = call.state.memory.receive.bytes().chunks_exact(count);
                for (part, place) in parts.zip(all.bytes_mut().chunks_exact_mut(own.len())) {
                    place[from..from + count].copy_from_slice(part);
                }
            }
            Ok(())
        })
    }

    fn broadcast(&self, mut values: HostSliceMut<'_>, root: usize) -> Result<()> {
        check::root(root, self.size)?;
        if values.is_empty() {
            return self.meet("broadcast");
        }
        let bytes = values.bytes_mut();
        let most = self.piece(1, 1).min(bytes.len());
        self.call("broadcast", (0, most), |call| {
            for piece in bytes.chunks_mut(most) {
                let count = piece.len();
                if root == self.rank {
                    call.state.memory.receive.bytes_mut()[..count].copy_from_slice(piece);
                }
                call.make(count, move |library, comm, memory| {
                    library.broadcast(comm, memory, count, root)
                })?;
                piece.copy_from_slice(&call.state.memory.receive.bytes()[..count]);
            }
            Ok(())
        })
    }

    fn barrier(&self) -> Result<()> {
        self.meet("barrier")
    }

    fn duplicate(&self) -> Result<Arc<dyn Communicator>> {
        let (library, comm) = (self.session.library, self.comm);
        let second = Self::of(&self.session, self.timeout, self.timeout, move || {
            library.duplicate(comm)
        });
        Ok(Arc::new(second.map_err(|e| e.with_op("duplicate"))?))
    }

    fn shrink(&self) -> Result<Arc<dyn Communicator>> {
        let tolerant =
            std::env::var("OMPI_MCA_mpi_ft_enable").is_ok_and(|value| ["1", "true"].contains(&value.as_str()));
        let library = self.session.library;
        if !tolerant || !library.shrinks() {
            let message = format!("{} was not started to go on without one of its processes", self.name());
            return Err(Error::unsupported(message)
                .with_op("shrink")
                .with_hint("start it by `mpirun --with-ft ulfm` of Open MPI 5; or start all again: they go on from the last checkpoint"));
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state
            .failed
            .get_or_insert_with(|| Lost::named(Vec::new(), "the group has been shrunk".to_owned()));
        let (comm, notes) = (self.comm, Arc::clone(&state.notes));
        let group = Self::of(&self.session, self.timeout, self.timeout, move || {
            let notes = notes.lock().unwrap_or_else(PoisonError::into_inner).comm();
            library.shrink(comm, notes)
        });
        Ok(Arc::new(group.map_err(|e| e.with_op("shrink"))?))
    }

    fn abort(&self, why: &str) {
        // In one write: the launcher mixes what processes write, its own report of the abort included.
        let line = format!("rank {} of {} gives up: {why}\n", self.rank, self.size);
        let _ = std::io::stderr().write_all(line.as_bytes());
        self.session.library.abort(self.comm);
    }
}

impl Drop for Mpi {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if state.failed.is_some() || std::thread::panicking() {
            return;
        }
        let (library, timeout, notes) = (self.session.library, self.timeout, Arc::clone(&state.notes));
        let note = Note::Left(state.calls);
        let left = self.session.within(timeout + GRACE, move || {
            let mut notes = notes.lock().unwrap_or_else(PoisonError::into_inner);
            // Not on the group's own communicator, since others may be in a collective on it.
            let comm = notes.comm();
            let mut waiting = Waiting::new(library, comm, &mut notes, note, timeout, Instant::now());
            let left = waiting.complete(library.barrier(comm), 0);
            left.is_ok() && notes.listen().is_ok()
        });
        if left == Some(true) {
            self.session.ends_well();
        }
    }
}

impl fmt::Debug for Mpi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (rank {} of {})", self.session.name, self.rank, self.size)
    }
}
