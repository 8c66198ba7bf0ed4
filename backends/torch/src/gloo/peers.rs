//! Presence and blame: what ranks tell each other through the store when Gloo alone does not tell which rank failed.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use polygrad_core::Error;

use super::ffi::{Said, Store};

/// Why a group can no longer be used, as its ranks have agreed.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    /// The rank to blame, if there is one.
    rank: Option<usize>,
    what: String,
}

impl Failure {
    pub(super) fn of(rank: usize, what: impl Into<String>) -> Self {
        let (rank, what) = (Some(rank), what.into());
        Self { rank, what }
    }

    pub(super) fn error(&self) -> Error {
        match self.rank {
            Some(rank) => Error::lost_peer(rank, &self.what),
            None => Error::communication(self.what.clone()),
        }
    }

    fn text(&self) -> String {
        match self.rank {
            Some(rank) => format!("{rank} {}", self.what),
            None => format!("- {}", self.what),
        }
    }

    fn parse(text: &str) -> Self {
        let (rank, what) = text.split_once(' ').unwrap_or(("-", text));
        let (rank, what) = (rank.parse().ok(), what.to_owned());
        Self { rank, what }
    }
}

/// Pause between two polls of the store.
const PAUSE: Duration = Duration::from_millis(5);
/// How long to wait for a single rank that has not reported the failure: ranks in the collective notice it at once.
const SETTLE: Duration = Duration::from_millis(300);
/// How long to wait for several such ranks.
const GRACE: Duration = Duration::from_secs(2);

/// The ranks of a group as its store knows them.
#[derive(Clone)]
pub(super) struct Peers {
    pub(super) store: Arc<Store>,
    pub(super) rank: usize,
    pub(super) size: usize,
    /// The rank that serves the store, if it is one of the group.
    pub(super) host: Option<usize>,
}

impl Peers {
    /// Waits until all ranks are present.
    pub(super) fn meet(&self, limit: Duration) -> Result<(), Failure> {
        let met = self.bounded(limit + GRACE, move |peers| {
            let missing = peers.present("here", limit, |_, _| false)?;
            let Some(first) = missing.first() else {
                return Ok(None);
            };
            let others = match missing.len() {
                1 => String::new(),
                _ => format!(", nor did the others of {missing:?}"),
            };
            let failure = Failure::of(*first, format!("did not come within {limit:?}{others}"));
            peers.agree(failure).map(Some)
        });
        met?.map_or(Ok(()), Err)
    }

    /// Finds the rank that caused Gloo's error. The connections are closed by now, so all ranks in the collective
    /// notice it, and come here, too.
    pub(super) fn blame(&self, said: String, limit: Duration) -> Failure {
        let blamed = self.bounded(2 * GRACE, move |peers| {
            let settled = |missing: usize, waited| missing == 1 && waited > SETTLE;
            let missing = peers.present("end", GRACE, settled)?;
            let late = said.contains("imed out") || said.contains("timeout");
            let what = match late {
                true => format!("did not come within {limit:?}"),
                false => format!("left the group or does not answer: {said}"),
            };
            peers.agree(match missing.as_slice() {
                [] => Failure {
                    rank: None,
                    what: format!("Gloo failed, though every rank answers: {said}"),
                },
                [one] => Failure::of(*one, what),
                [first, ..] => Failure::of(*first, format!("{what}, nor do the others of {missing:?}")),
            })
        });
        blamed.unwrap_or_else(|failure| failure)
    }

    /// Tells the others that this rank gives up.
    pub(super) fn give_up(&self, why: &str) -> Failure {
        let failure = Failure::of(self.rank, format!("gave up: {why}"));
        let told = failure.text();
        let given = self.bounded(GRACE, move |peers| peers.store.set("failure", &told));
        // Ranks that cannot be told will notice that this one is missing.
        drop(given);
        failure
    }

    /// Reports that this rank has reached `point`. Returns the ranks that have not, once all have, the time limit is
    /// reached, `enough` returns true, or there is a failure already.
    fn present(&self, point: &str, limit: Duration, enough: impl Fn(usize, Duration) -> bool) -> Said<Vec<usize>> {
        self.store.set(&format!("{point}/{}", self.rank), "")?;
        let begun = Instant::now();
        let mut missing: Vec<usize> = (0..self.size).filter(|rank| *rank != self.rank).collect();
        loop {
            missing = self.without(point, missing)?;
            let waited = begun.elapsed();
            let over = missing.is_empty() || waited >= limit || enough(missing.len(), waited);
            if over || self.store.get("failure")?.is_some() {
                return Ok(missing);
            }
            thread::sleep(PAUSE);
        }
    }

    fn without(&self, point: &str, ranks: Vec<usize>) -> Said<Vec<usize>> {
        let mut left = Vec::new();
        for rank in ranks {
            if self.store.get(&format!("{point}/{rank}"))?.is_none() {
                left.push(rank);
            }
        }
        Ok(left)
    }

    /// The first failure that was reported. The rank that serves the store stays until all other ranks can have read
    /// it.
    fn agree(&self, own: Failure) -> Said<Failure> {
        let failure = match self.store.get("failure")? {
            Some(text) => Failure::parse(&text),
            None => {
                self.store.set("failure", &own.text())?;
                own
            }
        };
        self.store.set(&format!("read/{}", self.rank), "")?;
        if self.host == Some(self.rank) {
            let others = (0..self.size).filter(|rank| *rank != self.rank && Some(*rank) != failure.rank);
            let (mut others, begun) = (others.collect(), Instant::now());
            while begun.elapsed() < SETTLE {
                others = self.without("read", others)?;
                if others.is_empty() {
                    break;
                }
                thread::sleep(PAUSE);
            }
        }
        Ok(failure)
    }

    /// Runs `f` with the store on another thread, which is abandoned if it takes too long: a store whose host is gone
    /// may never answer.
    fn bounded<T: Send + 'static>(
        &self,
        limit: Duration,
        f: impl FnOnce(&Self) -> Said<T> + Send + 'static,
    ) -> Result<T, Failure> {
        let (peers, (send, receive)) = (self.clone(), channel());
        let spawned = thread::Builder::new().spawn(move || send.send(f(&peers)));
        let said = match spawned.map(|_| receive.recv_timeout(limit)) {
            Ok(Ok(Ok(done))) => return Ok(done),
            Ok(Ok(Err(said))) => said,
            Ok(Err(_)) => format!("no answer within {limit:?}"),
            Err(e) => e.to_string(),
        };
        Err(match self.host {
            Some(host) if host != self.rank => Failure::of(host, format!("is gone, and with it the store: {said}")),
            _ => Failure {
                rank: None,
                what: format!("the store where the ranks meet is gone: {said}"),
            },
        })
    }
}
