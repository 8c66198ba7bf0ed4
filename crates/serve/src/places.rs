//! Limits on connections: a total, a share of it for each peer, and a few more that are reserved for health checks.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

use crate::Limits;

/// How many connections are accepted beyond the limit, for health checks only. Few, so that with the default limit the
/// process stays below 1,024 file descriptors.
const KEPT: usize = 8;

/// The shortest time between log messages about a lack of places.
const TOLD: Duration = Duration::from_secs(60);

pub(crate) struct Places {
    /// The number of all places.
    most: u32,
    free: Arc<Semaphore>,
    /// The most places of one peer.
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

    /// Takes a place for a peer's connection; `None` if all places, or all of the peer's share, are taken.
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

    /// Gives one of the reserved places to the connection that `task` serves. If none is free, the oldest connection in
    /// them is closed: a health check is answered quickly, so that one has had its time.
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

    /// Completes when all places are free.
    pub(crate) async fn emptied(&self) {
        // Fails only if the semaphore is closed, which never happens.
        let _ = self.free.acquire_many(self.most).await;
    }

    pub(crate) fn most(&self) -> usize {
        self.most as usize
    }

    pub(crate) fn taken(&self) -> usize {
        self.most() - self.free.available_permits()
    }
}

/// The place of a connection, held until this is dropped.
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

/// What counts as one peer: an IPv4 address, or an IPv6 network of 64 bits, since the owner of one address in
/// it owns all of them.
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
