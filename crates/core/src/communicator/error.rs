//! Errors of communication between processes.

use std::fmt;

use crate::{Error, ErrorKind};

/// A peer that is gone or does not answer. It is the [source](std::error::Error::source) of a collective's error, if
/// the engine knows which peer it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostPeer {
    /// Its rank.
    pub rank: usize,
}

impl fmt::Display for LostPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} is lost", self.rank)
    }
}

impl std::error::Error for LostPeer {}

impl Error {
    /// [`ErrorKind::Communication`]: processes could not exchange values.
    #[cold]
    pub fn communication(message: impl Into<std::borrow::Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Communication, message)
    }

    /// [`ErrorKind::Communication`] caused by one peer; `what` completes the sentence, as in `left the group`.
    #[cold]
    pub fn lost_peer(rank: usize, what: &str) -> Self {
        Self::communication(format!("rank {rank} {what}")).with_source(LostPeer { rank })
    }
}
