//! A group of processes, and its collectives.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use polygrad_core::communicator::{Communicator, HostBuffer, HostSlice, HostSliceMut, Reduction, check};
use polygrad_core::{Error, ErrorKind, Result};

use crate::ffi::{self, Comm, Memory};
use crate::find;
use crate::notes::{Note, Notes};
use crate::waiting::{Lost, Waiting};
use crate::wire::Wire;

/// How many bytes a collective moves at once: enough for speed, and far from where MPI's counts end.
const PIECE: usize = 1 << 25;
/// How long a rank that gives up waits for the others to hear of it.
const FAREWELL: Duration = Duration::from_millis(50);

/// MPI, which starts once in a process.
static STARTED: AtomicBool = AtomicBool::new(false);

/// One process's end of a group of processes that `mpirun` started.
pub struct Mpi {
    session: Arc<Session>,
    comm: Comm,
    rank: usize,
    size: usize,
    timeout: Duration,
    state: Mutex<State>,
}

struct Session {
    library: &'static ffi::Mpi,
    name: String,
    /// Whether it was started here.
    ours: bool,
    /// Whether all ranks left together.
    clean: AtomicBool,
}

struct State {
    failed: Option<Lost>,
    calls: u64,
    /// What the last call used, so that the next one need not ask for it.
    memory: Memory,
    notes: Notes,
}

/// A collective while it is made.
struct Running<'a> {
    waiting: Waiting<'a>,
    memory: &'a mut Memory,
}

impl Mpi {
    /// Loads MPI, starts it and joins the group of all processes. A process that `mpirun` did not start is a group of its own.
    ///
    /// # Errors
    /// [`BackendUnavailable`](ErrorKind::BackendUnavailable) without an MPI, and with another one than the processes were started by; a second call
    /// in a process.
    pub fn init(timeout: Duration) -> Result<Self> {
        let library = find::load()?;
        let (started, over) = library.state()?;
        if STARTED.swap(true, Ordering::SeqCst) || over {
            let message = "MPI has been started before, and starts once in a process";
            return Err(Error::invalid(message).with_hint("share the communicator in an Arc"));
        }
        if !library.start(started)? {
            let message = "MPI was built or started for programs of one thread";
            return Err(
                Error::new(ErrorKind::BackendUnavailable, message).with_hint("it has to grant MPI_THREAD_SERIALIZED")
            );
        }
        let session = Session {
            library,
            name: named(&library.version()?),
            ours: !started,
            clean: AtomicBool::new(false),
        };
        let size = library.size(library.world())?;
        if let Some(launched) = find::launched(|name| std::env::var_os(name)).filter(|&count| count != size) {
            let message = format!(
                "{} finds {size} of the {launched} processes: another MPI started them",
                session.name
            );
            let hint = format!(
                "use the mpirun of {}, or let {} name the library of the other",
                session.name,
                find::VARIABLE
            );
            return Err(Error::new(ErrorKind::BackendUnavailable, message).with_hint(hint));
        }
        let comm = library.duplicate(library.world())?;
        Self::of(Arc::new(session), comm, timeout)
    }

    fn of(session: Arc<Session>, comm: Comm, timeout: Duration) -> Result<Self> {
        let library = session.library;
        let (rank, size) = (library.rank(comm)?, library.size(comm)?);
        let notes = Notes::new(library, library.duplicate(comm)?, rank, size);
        Ok(Self {
            session,
            comm,
            rank,
            size,
            timeout,
            state: Mutex::new(State {
                failed: None,
                calls: 0,
                memory: Memory::default(),
                notes,
            }),
        })
    }

    /// Makes a collective, with memory to send from and to receive into.
    fn call(
        &self,
        name: &'static str,
        (send, receive): (usize, usize),
        f: impl FnOnce(&mut Running<'_>) -> Result<(), Lost>,
    ) -> Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State {
            failed,
            calls,
            memory,
            notes,
        } = &mut *state;
        if let Some(lost) = failed {
            return Err(lost.error().with_op(name));
        }
        let room = reserve(&mut memory.send, send).and_then(|()| reserve(&mut memory.receive, receive));
        room.map_err(|e| e.with_op(name))?;
        *calls += 1;
        let note = Note::Here(*calls);
        let waiting = Waiting::new(self.session.library, self.comm, notes, note, self.timeout);
        let Err(lost) = f(&mut Running { waiting, memory }) else {
            return Ok(());
        };
        let error = lost.error().with_op(name);
        // Who is not reached hears of it by its own time limit.
        let _ = notes.tell(Note::GaveUp(lost.rank()));
        notes.flush(FAREWELL);
        *failed = Some(lost);
        Err(error)
    }

    /// What a collective of nothing does.
    fn meet(&self, name: &'static str) -> Result<()> {
        self.call(name, (0, 0), |call| {
            let barrier = call.waiting.library.barrier(call.waiting.comm);
            call.waiting.complete(barrier, 0).map(drop)
        })
    }

    /// How many values of so many bytes travel at once, to or from so many ranks.
    fn piece(&self, bytes: usize, ranks: usize) -> usize {
        (PIECE / bytes / ranks).max(1)
    }
}

impl Running<'_> {
    fn library(&self) -> (&'static ffi::Mpi, Comm) {
        (self.waiting.library, self.waiting.comm)
    }
}

fn reserve(buffer: &mut HostBuffer, len: usize) -> Result<()> {
    if buffer.bytes().len() < len {
        *buffer = HostBuffer::new(len)?;
    }
    Ok(())
}

/// `Open MPI v5.0.11, package: ...` and `MPICH Version: 5.0.2` as `Open MPI 5.0.11` and `MPICH 5.0.2`.
fn named(version: &str) -> String {
    let first = version.lines().next().unwrap_or_default();
    let first = first.split(',').next().unwrap_or_default().replace("Version:", " ");
    let words = first.split_whitespace().map(|word| match word.strip_prefix('v') {
        Some(number) if number.starts_with(|c: char| c.is_ascii_digit()) => number,
        _ => word,
    });
    words.collect::<Vec<_>>().join(" ")
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
            let (library, comm) = call.library();
            for piece in values.bytes_mut().chunks_mut(most * bytes) {
                let count = piece.len() / bytes;
                let mut memory = std::mem::take(call.memory);
                wire.encode(piece, &mut memory.receive.bytes_mut()[..count * wide]);
                let request = library.all_reduce(comm, memory, count, wire.datatype, wire.operation());
                *call.memory = call.waiting.complete(request, count * wide)?;
                wire.decode(&call.memory.receive.bytes()[..count * wide], piece);
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
            let (library, comm) = call.library();
            let part = own.bytes_mut().len();
            for (index, piece) in own.bytes_mut().chunks_mut(most * bytes).enumerate() {
                let (from, count) = (index * most * bytes, piece.len() / bytes);
                let mut memory = std::mem::take(call.memory);
                let places = memory.send.bytes_mut().chunks_exact_mut(count * wide);
                for (place, values) in places.zip(values.bytes().chunks_exact(part)) {
                    wire.encode(&values[from..from + piece.len()], place);
                }
                let request = library.reduce_scatter(comm, memory, (count, size), wire.datatype, wire.operation());
                *call.memory = call.waiting.complete(request, count * wide * size)?;
                wire.decode(&call.memory.receive.bytes()[..count * wide], piece);
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
            let (library, comm) = call.library();
            for (index, piece) in own.chunks(most).enumerate() {
                let (from, count) = (index * most, piece.len());
                let mut memory = std::mem::take(call.memory);
                memory.send.bytes_mut()[..count].copy_from_slice(piece);
                let request = library.all_gather(comm, memory, (count, size));
                *call.memory = call.waiting.complete(request, count * size)?;
                let parts = call.memory.receive.bytes().chunks_exact(count);
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
            let (library, comm) = call.library();
            for piece in bytes.chunks_mut(most) {
                let mut memory = std::mem::take(call.memory);
                if root == self.rank {
                    memory.receive.bytes_mut()[..piece.len()].copy_from_slice(piece);
                }
                let request = library.broadcast(comm, memory, piece.len(), root);
                *call.memory = call.waiting.complete(request, piece.len())?;
                piece.copy_from_slice(&call.memory.receive.bytes()[..piece.len()]);
            }
            Ok(())
        })
    }

    fn barrier(&self) -> Result<()> {
        self.meet("barrier")
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
        let (session, comm, notes) = (Arc::clone(&self.session), self.comm, state.notes.comm());
        let (timeout, (done, waits)) = (self.timeout, mpsc::channel());
        // It may wait without end for one that is alive and does not come.
        std::thread::spawn(move || {
            let shrunk = library.shrink(comm, notes).map_err(Error::from);
            let _ = done.send(shrunk.and_then(|comm| Self::of(session, comm, timeout)));
        });
        match waits.recv_timeout(timeout) {
            Ok(group) => Ok(Arc::new(group.map_err(|e| e.with_op("shrink"))?)),
            Err(_) => {
                let message = format!("not every rank that is left came to agree within {timeout:?}");
                Err(Error::communication(message).with_op("shrink"))
            }
        }
    }

    fn abort(&self, why: &str) {
        eprintln!("rank {} of {} gives up: {why}", self.rank, self.size);
        self.session.library.abort(self.comm);
    }
}

impl Drop for Mpi {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if state.failed.is_some() || std::thread::panicking() {
            return;
        }
        // Not on the group itself, where others may be in a collective.
        let (library, notes) = (self.session.library, &mut state.notes);
        let comm = notes.comm();
        let mut waiting = Waiting::new(library, comm, notes, Note::Left(state.calls), self.timeout);
        if waiting.complete(library.barrier(comm), 0).is_ok() {
            let _ = state.notes.listen();
            self.session.clean.store(true, Ordering::SeqCst);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // It would wait for those who are gone.
        if self.ours && self.clean.load(Ordering::SeqCst) {
            let _ = self.library.finalize();
        }
    }
}

impl fmt::Debug for Mpi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (rank {} of {})", self.session.name, self.rank, self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::named;

    #[test]
    fn names_are_short() {
        let open_mpi = "Open MPI v5.0.11, package: Open MPI x@y Distribution, ident: 5.0.11, repo rev: v5.0.11";
        assert_eq!(named(open_mpi), "Open MPI 5.0.11");
        assert_eq!(named("MPICH Version:      5.0.2\nMPICH Release date: 1"), "MPICH 5.0.2");
    }
}
