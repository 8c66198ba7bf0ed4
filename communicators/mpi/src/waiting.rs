//! Waits for MPI, with a time limit and without taking CPU time from computations.

use std::time::{Duration, Instant};

use polygrad_core::Error;
use polygrad_core::communicator::LostPeer;

use crate::ffi::{Comm, Failed, Memory, Mpi, Request};
use crate::notes::{Note, Notes};
use crate::session::meanwhile;

/// How long a rank polls continuously, yielding to other threads in between.
const BUSY: Duration = Duration::from_micros(200);
/// Bytes per second. A rank also polls continuously for the time that a transfer takes at this rate.
const PACE: u64 = 500_000_000;
/// The shortest and longest sleep between two polls afterwards.
const PAUSES: [Duration; 2] = [Duration::from_micros(20), Duration::from_micros(200)];
/// How often it reads the notes of others.
const LISTEN: Duration = Duration::from_millis(20);

/// Why a group can no longer be used.
#[derive(Clone, Debug)]
pub(crate) struct Lost {
    ranks: Vec<usize>,
    what: String,
}

impl Lost {
    /// Because of these ranks; `what` completes the sentence about them.
    pub(crate) fn named(ranks: Vec<usize>, what: String) -> Self {
        Self { ranks, what }
    }

    /// The rank that caused it, if it is known.
    pub(crate) fn rank(&self) -> Option<usize> {
        self.ranks.first().copied()
    }

    pub(crate) fn error(&self) -> Error {
        match self.ranks.as_slice() {
            [] => Error::communication(self.what.clone()),
            [rank] => Error::lost_peer(*rank, &self.what),
            [rank, ..] => {
                let ranks: Vec<String> = self.ranks.iter().map(ToString::to_string).collect();
                let message = format!("ranks {} {}", ranks.join(", "), self.what);
                Error::communication(message).with_source(LostPeer { rank: *rank })
            }
        }
    }
}

/// A collective that this rank waits for.
pub(crate) struct Waiting<'a> {
    library: &'static Mpi,
    comm: Comm,
    notes: &'a mut Notes,
    /// The note to the ranks that wait for this one.
    note: Note,
    timeout: Duration,
    begun: Instant,
    listened: Instant,
}

impl<'a> Waiting<'a> {
    pub(crate) fn new(
        library: &'static Mpi,
        comm: Comm,
        notes: &'a mut Notes,
        note: Note,
        timeout: Duration,
        begun: Instant,
    ) -> Self {
        Self {
            library,
            comm,
            notes,
            note,
            timeout,
            begun,
            listened: Instant::now(),
        }
    }

    /// Waits until a request that transfers `bytes` bytes is done.
    pub(crate) fn complete(&mut self, request: Result<Request, Failed>, bytes: usize) -> Result<Memory, Lost> {
        let mut request = request.map_err(|e| self.lost(e))?;
        let begun = Instant::now();
        let busy = BUSY + Duration::from_nanos(bytes as u64 * 1_000_000_000 / PACE);
        let mut pause = PAUSES[0];
        loop {
            if let Some(memory) = self.library.test(&mut request).map_err(|e| self.lost(e))? {
                return Ok(memory);
            }
            meanwhile();
            let now = Instant::now();
            if now - begun < busy {
                std::thread::yield_now();
                continue;
            }
            if now - self.listened >= LISTEN {
                self.listened = now;
                self.listen(now - self.begun)?;
            }
            if now - self.begun >= self.timeout {
                return Err(self.late());
            }
            std::thread::sleep(pause);
            pause = PAUSES[1].min(pause * 2);
        }
    }

    fn listen(&mut self, waited: Duration) -> Result<(), Lost> {
        self.notes.listen().map_err(|e| self.lost(e))?;
        let tells = match self.note {
            Note::Here(call) => {
                self.notes.verdict(call)?;
                waited >= self.timeout / 4 || self.notes.waited_for(call)
            }
            // While it waits for all to leave, it tells the others that it has left.
            Note::Left(_) | Note::GaveUp(_) => true,
        };
        match tells {
            true => self.notes.tell(self.note).map_err(|e| self.lost(e)),
            false => Ok(()),
        }
    }

    fn late(&self) -> Lost {
        let Note::Here(call) = self.note else {
            return Lost::named(Vec::new(), "the others do not leave".to_owned());
        };
        let missing = self.notes.missing(call);
        let timeout = self.timeout;
        let what = match missing.is_empty() {
            true => format!("it was not done within {timeout:?}, though every rank came"),
            false => format!("did not come within {timeout:?}"),
        };
        Lost::named(missing, what)
    }

    fn lost(&self, failed: Failed) -> Lost {
        if failed.process {
            let ranks = self.library.lost(self.comm);
            if !ranks.is_empty() {
                return Lost::named(ranks, "has ended".to_owned());
            }
        }
        Lost::named(Vec::new(), format!("MPI says: {}", failed.message))
    }
}
