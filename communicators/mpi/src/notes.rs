//! Notes that ranks send each other when a collective takes long, so that an error can name the missing rank. Nothing
//! is sent while all is well.

use std::time::{Duration, Instant};

use polygrad_core::communicator::HostBuffer;

use crate::ffi::{Comm, Failed, Mpi, Request};
use crate::waiting::Lost;

/// A note from one rank to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    /// The sender waits in this call.
    Here(u64),
    /// The sender left after this call.
    Left(u64),
    /// The sender gave up, because of this lost rank, if it is known.
    GaveUp(Option<usize>),
}

type Words = [u64; 2];

/// The largest group whose ranks greet each other; more ranks would be too many connections for a process.
const MOST_GREETED: usize = 256;

impl Note {
    fn words(self) -> Words {
        match self {
            Self::Here(call) => [0, call],
            Self::Left(call) => [1, call],
            Self::GaveUp(lost) => [2, lost.map_or(u64::MAX, |rank| rank as u64)],
        }
    }

    fn from_words([kind, what]: Words) -> Self {
        match kind {
            0 => Self::Here(what),
            1 => Self::Left(what),
            _ => Self::GaveUp(usize::try_from(what).ok().filter(|_| what != u64::MAX)),
        }
    }
}

/// The notes that a rank has sent and received.
pub(crate) struct Notes {
    library: &'static Mpi,
    comm: Comm,
    rank: usize,
    heard: Vec<Option<Note>>,
    told: Option<Note>,
    /// Messages that have not been delivered yet.
    sent: Vec<Request>,
}

impl Notes {
    pub(crate) fn new(library: &'static Mpi, comm: Comm, rank: usize, size: usize) -> Self {
        Self {
            library,
            comm,
            rank,
            heard: vec![None; size],
            told: None,
            sent: Vec::new(),
        }
    }

    pub(crate) fn comm(&self) -> Comm {
        self.comm
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let rank = self.rank;
        (0..self.heard.len()).filter(move |&other| other != rank)
    }

    /// Exchanges a first note with all others, since MPI may wait forever for a rank that is lost before their first
    /// contact. Every rank must call it.
    pub(crate) fn greet(&mut self, limit: Duration) -> Result<(), Failed> {
        if self.heard.len() > MOST_GREETED {
            return Ok(());
        }
        let begun = Instant::now();
        self.tell(Note::Here(0))?;
        // The first collective reports a rank that does not answer.
        while self.others().any(|other| self.heard[other].is_none()) && begun.elapsed() < limit {
            self.listen()?;
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Sends a note to all others, unless it was the last one sent.
    pub(crate) fn tell(&mut self, note: Note) -> Result<(), Failed> {
        if self.told.replace(note) == Some(note) {
            return Ok(());
        }
        self.settle()?;
        for other in self.others() {
            let message = HostBuffer::copied(bytemuck::bytes_of(&note.words()));
            let message = message.map_err(|e| Failed {
                message: e.to_string(),
                process: false,
            })?;
            self.sent.push(self.library.send(self.comm, message, other)?);
        }
        Ok(())
    }

    /// Drops the requests of messages that have been delivered.
    fn settle(&mut self) -> Result<(), Failed> {
        let library = self.library;
        let mut left = Vec::new();
        for mut request in self.sent.drain(..) {
            if library.test(&mut request)?.is_none() {
                left.push(request);
            }
        }
        self.sent = left;
        Ok(())
    }

    /// Waits for the delivery of the last messages, at most `limit`.
    pub(crate) fn flush(&mut self, limit: Duration) {
        let begun = Instant::now();
        while self.settle().is_ok() && !self.sent.is_empty() && begun.elapsed() < limit {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Reads the notes that have arrived.
    pub(crate) fn listen(&mut self) -> Result<(), Failed> {
        for other in self.others() {
            while self.library.probe(self.comm, other)? {
                let message = HostBuffer::new(size_of::<Words>()).map_err(|e| Failed {
                    message: e.to_string(),
                    process: false,
                })?;
                let mut request = self.library.receive(self.comm, message, other)?;
                // The message has arrived, so this does not wait.
                let memory = loop {
                    if let Some(memory) = self.library.test(&mut request)? {
                        break memory;
                    }
                };
                let words = bytemuck::pod_read_unaligned(memory.receive.bytes());
                self.heard[other] = Some(Note::from_words(words));
            }
        }
        self.settle()
    }

    /// The call in which a rank waits, by its last note; 0 if it has sent none.
    fn waits_in(&self, other: usize) -> u64 {
        match self.heard[other] {
            Some(Note::Here(call)) => call,
            _ => 0,
        }
    }

    /// Whether another rank waits in this call, or still in the one before.
    pub(crate) fn waited_for(&self, call: u64) -> bool {
        self.others().any(|other| self.waits_in(other) + 1 >= call.max(2))
    }

    /// Fails if a rank has left or given up, so that a call cannot complete.
    pub(crate) fn verdict(&self, call: u64) -> Result<(), Lost> {
        let (rank, what) = match self.heard.iter().enumerate().find_map(|(other, note)| match *note {
            Some(Note::Left(last)) if last < call => Some((other, "left the group".to_owned())),
            Some(Note::GaveUp(Some(lost))) if lost == self.rank => {
                Some((other, "gave up waiting for this rank".to_owned()))
            }
            Some(Note::GaveUp(Some(lost))) => Some((lost, format!("is missed by rank {other}"))),
            Some(Note::GaveUp(None)) => Some((other, "gave up".to_owned())),
            _ => None,
        }) {
            Some(found) => found,
            None => return Ok(()),
        };
        Err(Lost::named(vec![rank], what))
    }

    /// The ranks that are not known to have reached a call. Only those furthest behind are returned, since the others
    /// may wait for them.
    pub(crate) fn missing(&self, call: u64) -> Vec<usize> {
        let last = self.others().map(|other| self.waits_in(other)).min();
        let Some(last) = last.filter(|&last| last < call) else {
            return Vec::new();
        };
        self.others().filter(|&other| self.waits_in(other) == last).collect()
    }
}
