//! Who may have a connection: so many in all, a share of them for each peer, and a few that are kept for
//! questions about health.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

use crate::Limits;

/// So many connections are let in beyond all places, for health alone. Few: with the default number of places they
/// stay below 1,024 files.
const KEPT: usize = 8;

/// How often it is told that there are no places.
const TOLD: Duration = Duration::from_secs(60);

pub(crate) struct Places {
    /// The most that can be waited for at once.
    most: u32,
    free: Arc<Semaphore>,
    /// The most of one peer.
    share: usize,
    peers: Mutex<HashMap<IpAddr, usize>>,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    /// Oldest first.
    tasks: VecDeque<AbortHandle>,
    told: Option<Instant>,
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Places {
    pub(crate) fn new(limits: &Limits) -> Arc<Self> {
        let most = u32::try_from(limits.connections.clamp(1, Semaphore::MAX_PERMITS)).unwrap_or(u32::MAX);
        Arc::new(Self {
            most,
            free: Arc::new(Semaphore::new(most as usize)),
            share: limits.connections_per_peer.max(1),
            peers: Mutex::default(),
            kept: Mutex::default(),
        })
    }

    /// A place for a connection of a peer; none where all are taken, or its share is.
    pub(crate) fn take(self: &Arc<Self>, peer: IpAddr) -> Option<Place> {
        let peer = network(peer);
        let mut peers = lock(&self.peers);
        if peers.get(&peer).is_some_and(|&count| count >= self.share) {
            return None;
        }
        let permit = Arc::clone(&self.free).try_acquire_owned().ok()?;
        *peers.entry(peer).or_default() += 1;
        Some(Place {
            _permit: permit,
            places: Arc::clone(self),
            peer,
        })
    }

    /// Keeps one of the last places for the connection that `task` serves. Where there is none, the oldest of those
    /// ends: what asks about health is soon answered, and whoever holds on to a place has had its time.
    pub(crate) fn keep(&self, task: AbortHandle) {
        let mut kept = lock(&self.kept);
        kept.tasks.retain(|task| !task.is_finished());
        if kept.tasks.len() >= KEPT
            && let Some(oldest) = kept.tasks.pop_front()
        {
            oldest.abort();
        }
        kept.tasks.push_back(task);
        if kept.told.is_none_or(|told| told.elapsed() >= TOLD) {
            kept.told = Some(Instant::now());
            tracing::warn!(
                "a connection has no place, since {} of {} are free and one peer may have {}: it is told so, and may ask about health",
                self.free.available_permits(),
                self.most,
                self.share
            );
        }
    }

    /// Comes back when all places are free.
    pub(crate) async fn emptied(&self) {
        // Fails where the semaphore is closed, which it never is.
        let _ = self.free.acquire_many(self.most).await;
    }

    pub(crate) fn most(&self) -> usize {
        self.most as usize
    }

    pub(crate) fn taken(&self) -> usize {
        self.most() - self.free.available_permits()
    }
}

/// The place of a connection, until this goes.
pub(crate) struct Place {
    _permit: OwnedSemaphorePermit,
    places: Arc<Places>,
    peer: IpAddr,
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Entry::Occupied(mut count) = lock(&self.places.peers).entry(self.peer) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

/// What counts as one peer: an address, of IPv6 the network of 64 bits, of which whoever has one address has all.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_has_its_share_and_no_more() {
        let places = Places::new(&Limits {
            connections: 3,
            connections_per_peer: 2,
            ..Limits::default()
        });
        let [one, same, other, third] =
            ["2001:db8::1", "2001:db8::ffff:2", "2001:db8:0:1::1", "192.0.2.1"].map(|text| text.parse().unwrap());
        let first = places.take(one).unwrap();
        let second = places.take(same).unwrap();
        assert!(places.take(one).is_none());
        let last = places.take(other).unwrap();
        assert!(places.take(third).is_none() && places.taken() == 3);
        drop(first);
        assert!(places.take("::ffff:192.0.2.1".parse().unwrap()).is_some());
        drop((second, last));
        assert!(lock(&places.peers).is_empty());
    }
}
