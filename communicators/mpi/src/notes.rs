//! What ranks tell each other when a collective takes long, so that the one who does not come is known by name. Nothing
//! is sent while all is well.

use std::time::{Duration, Instant};

use polygrad_core::communicator::HostBuffer;

use crate::ffi::{Comm, Failed, Mpi, Request};
use crate::waiting::Lost;

/// A message from one rank to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    /// It waits in this call.
    Here(u64),
    /// It left after this call.
    Left(u64),
    /// It gave up, because of one that is lost, if it knows which.
    GaveUp(Option<usize>),
}

type Words = [u64; 2];

/// More would be too many connections of a process.
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

/// What one rank has told and heard.
pub(crate) struct Notes {
    library: &'static Mpi,
    comm: Comm,
    rank: usize,
    heard: Vec<Option<Note>>,
    told: Option<Note>,
    /// Messages that have not been taken yet.
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

    /// Says hello, since MPI may wait without end for one that it has not met before and that is gone.
    /// Every rank calls it.
    pub(crate) fn greet(&mut self, limit: Duration) -> Result<(), Failed> {
        if self.heard.len() > MOST_GREETED {
            return Ok(());
        }
        let begun = Instant::now();
        self.tell(Note::Here(0))?;
        // Who does not come is missed by the first collective.
        while self.others().any(|other| self.heard[other].is_none()) && begun.elapsed() < limit {
            self.listen()?;
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Tells all others, once.
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

    /// Forgets the messages that have been taken.
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

    /// Lets the last messages go out, for a while.
    pub(crate) fn flush(&mut self, limit: Duration) {
        let begun = Instant::now();
        while self.settle().is_ok() && !self.sent.is_empty() && begun.elapsed() < limit {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Reads what has come.
    pub(crate) fn listen(&mut self) -> Result<(), Failed> {
        for other in self.others() {
            while self.library.probe(self.comm, other)? {
                let message = HostBuffer::new(size_of::<Words>()).map_err(|e| Failed {
                    message: e.to_string(),
                    process: false,
                })?;
                let mut request = self.library.receive(self.comm, message, other)?;
                // It has come, so that this does not wait.
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

    /// Which call a rank waits in, as far as it has told.
    fn waits_in(&self, other: usize) -> u64 {
        match self.heard[other] {
            Some(Note::Here(call)) => call,
            _ => 0,
        }
    }

    /// Whether another one waits in a call, or still in the one before.
    pub(crate) fn waited_for(&self, call: u64) -> bool {
        self.others().any(|other| self.waits_in(other) + 1 >= call.max(2))
    }

    /// What those who have left or given up make of a call.
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

    /// Who has not come to a call, as far as is known: those that are furthest behind, since the
    /// others may wait for them.
    pub(crate) fn missing(&self, call: u64) -> Vec<usize> {
        let last = self.others().map(|other| self.waits_in(other)).min();
        let Some(last) = last.filter(|&last| last < call) else {
            return Vec::new();
        };
        self.others().filter(|&other| self.waits_in(other) == last).collect()
    }
}
