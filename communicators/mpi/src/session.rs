//! The thread that calls MPI. Callers wait for it with a time limit, since even nonblocking functions of MPI may block
//! when a peer is lost.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use polygrad_core::{Error, ErrorKind, Result};

use crate::ffi::Mpi;
use crate::find;

/// Whether MPI was started; it can only be started once in a process.
static STARTED: AtomicBool = AtomicBool::new(false);

/// The shortest time limit of the start, whatever the time limit of collectives is.
pub(crate) const START: Duration = Duration::from_secs(60);

type Job = Box<dyn FnOnce() + Send>;

/// MPI in this process, from its start to its end.
pub(crate) struct Session {
    pub(crate) library: &'static Mpi,
    pub(crate) name: String,
    /// Whether this session started MPI.
    ours: bool,
    /// Whether all ranks have left together.
    clean: AtomicBool,
    limit: Duration,
    jobs: Sender<Job>,
}

thread_local! {
    /// The jobs of the MPI thread.
    static NEXT: RefCell<Option<Rc<Receiver<Job>>>> = const { RefCell::new(None) };
}

fn work(next: Receiver<Job>) {
    let next = Rc::new(next);
    NEXT.set(Some(Rc::clone(&next)));
    next.iter().for_each(|job| job());
}

/// Runs another job of the MPI thread while it waits: another group may have a collective, and other ranks may wait in
/// that one first.
pub(crate) fn meanwhile() {
    let next = NEXT.with_borrow(Clone::clone);
    if let Some(job) = next.and_then(|next| next.try_recv().ok()) {
        job();
    }
}

impl Session {
    /// Loads MPI, and starts it.
    pub(crate) fn start(limit: Duration) -> Result<Self> {
        let library = find::load()?;
        let (started, over) = library.state()?;
        if STARTED.swap(true, Ordering::SeqCst) || over {
            let message = "MPI has been started before, and starts once in a process";
            return Err(Error::invalid(message).with_hint("share the communicator in an Arc"));
        }
        let (jobs, next) = channel::<Job>();
        std::thread::Builder::new()
            .name("mpi".to_owned())
            .spawn(move || work(next))
            .map_err(|e| Error::communication(format!("no thread for MPI: {e}")))?;
        let mut session = Self {
            library,
            name: String::new(),
            ours: !started,
            clean: AtomicBool::new(false),
            limit,
            jobs,
        };
        let granted = session.within(limit.max(START), move || library.start(started));
        let granted = granted.ok_or_else(|| Error::communication("MPI does not start: not every process came"))??;
        if !granted {
            let message = "MPI was built or started for programs of one thread";
            return Err(
                Error::new(ErrorKind::BackendUnavailable, message).with_hint("it has to grant MPI_THREAD_SERIALIZED")
            );
        }
        session.name = named(&library.version()?);
        session.complete()?;
        Ok(session)
    }

    /// Fails unless all processes of the launcher are in the world communicator.
    fn complete(&self) -> Result<()> {
        let size = self.library.size(self.library.world())?;
        match find::launched(|name| std::env::var_os(name)) {
            Some(launched) if launched != size => {
                let name = &self.name;
                let message = format!("{name} finds {size} of the {launched} processes: another MPI started them");
                let hint = format!(
                    "use the mpirun of {name}, or let {} name the library of the other",
                    find::VARIABLE
                );
                Err(Error::new(ErrorKind::BackendUnavailable, message).with_hint(hint))
            }
            _ => Ok(()),
        }
    }

    /// The result of a job on the MPI thread; `None` if it takes longer than `limit`.
    pub(crate) fn within<R: Send + 'static>(
        &self,
        limit: Duration,
        job: impl FnOnce() -> R + Send + 'static,
    ) -> Option<R> {
        let (done, waits) = channel();
        let job = move || {
            let _ = done.send(job());
        };
        self.jobs.send(Box::new(job)).ok()?;
        waits.recv_timeout(limit).ok()
    }

    /// Records that all ranks leave together.
    pub(crate) fn ends_well(&self) {
        self.clean.store(true, Ordering::SeqCst);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Otherwise MPI would wait for lost ranks.
        if self.ours && self.clean.load(Ordering::SeqCst) {
            let library = self.library;
            let _ = self.within(self.limit, move || library.finalize());
        }
    }
}

/// Shortens `Open MPI v5.0.11, package: ...` and `MPICH Version: 5.0.2` to `Open MPI 5.0.11` and `MPICH 5.0.2`.
fn named(version: &str) -> String {
    let first = version.lines().next().unwrap_or_default();
    let first = first.split(',').next().unwrap_or_default().replace("Version:", " ");
    let words = first.split_whitespace().map(|word| match word.strip_prefix('v') {
        Some(number) if number.starts_with(|c: char| c.is_ascii_digit()) => number,
        _ => word,
    });
    words.collect::<Vec<_>>().join(" ")
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
