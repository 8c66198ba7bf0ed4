//! Unread answers: how many bytes wait to be read by clients, and for how long.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::connection::Activity;
use crate::{Failure, Limits, Reason};

/// A connection that has read nothing for this long may be closed to make room for other answers.
const STALLED: Duration = Duration::from_secs(1);

/// The unread bytes on all connections.
#[derive(Default)]
pub(crate) struct Unread {
    bytes: AtomicUsize,
    connections: Mutex<Vec<Arc<Activity>>>,
}

/// The unread bytes on one connection. Times are in milliseconds since the connection was opened.
#[derive(Default)]
pub(crate) struct Waiting {
    bytes: AtomicUsize,
    /// Since when there have been unread bytes without interruption.
    since: AtomicU64,
    /// The bytes read since then.
    taken: AtomicU64,
    /// When bytes were last read, or began to wait.
    last: AtomicU64,
    pub(crate) cut: Notify,
}

impl Unread {
    pub(crate) fn open(&self, connection: &Arc<Activity>) {
        self.lock().push(Arc::clone(connection));
    }

    pub(crate) fn close(&self, connection: &Arc<Activity>) {
        self.lock().retain(|known| !Arc::ptr_eq(known, connection));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Activity>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes stalled connections, the longest stalled first, until `wanted` bytes are free. Closes none and returns
    /// false if that would not be enough.
    fn make_room(&self, wanted: usize) -> bool {
        let stalled = STALLED.as_millis() as u64;
        let connections = self.lock();
        let age = |of: &Arc<Activity>| of.now().saturating_sub(of.waiting.last.load(Relaxed));
        let mut idle: Vec<_> = connections
            .iter()
            .filter(|of| of.waiting.bytes.load(Relaxed) > 0 && age(of) >= stalled)
            .collect();
        idle.sort_by_key(|of| std::cmp::Reverse(age(of)));
        let mut free = 0;
        idle.retain(|of| {
            let is_needed = free < wanted;
            free += of.waiting.bytes.load(Relaxed);
            is_needed
        });
        if free < wanted {
            return false;
        }
        idle.iter().for_each(|of| of.waiting.cut.notify_one());
        true
    }
}

impl Activity {
    fn unread(&self) -> &Unread {
        &self.shared.unread
    }

    /// Fails if the limits leave no room for another unread answer of this many bytes.
    pub(crate) fn may_wait(&self, bytes: usize) -> Result<(), Failure> {
        let limits = &self.shared.options.limits;
        let busy = |message: &str| Err(Failure::new(Reason::Busy(STALLED), message));
        let own = self.waiting.bytes.load(Relaxed);
        if own > 0 && own.saturating_add(bytes) > limits.unread_bytes {
            return busy("the answers on this connection wait to be read, and there is no room for more of them");
        }
        let all = self.unread().bytes.load(Relaxed);
        let over = all.saturating_add(bytes).saturating_sub(limits.unread_bytes_in_all);
        match all == 0 || over == 0 || self.unread().make_room(over) {
            true => Ok(()),
            false => busy("the answers of others wait to be read, and there is no room for more of them"),
        }
    }

    /// Counts bytes that begin to wait.
    pub(crate) fn waits(&self, bytes: usize) {
        if bytes > 0 && self.waiting.bytes.fetch_add(bytes, Relaxed) == 0 {
            let now = self.now();
            self.waiting.since.store(now, Relaxed);
            self.waiting.last.store(now, Relaxed);
            self.waiting.taken.store(0, Relaxed);
        }
        self.unread().bytes.fetch_add(bytes, Relaxed);
    }

    /// Counts bytes that no longer wait, because they were read or never will be.
    pub(crate) fn waits_no_more(&self, bytes: usize) {
        self.waiting.bytes.fetch_sub(bytes, Relaxed);
        self.unread().bytes.fetch_sub(bytes, Relaxed);
    }

    fn took(&self, bytes: usize) {
        self.waits_no_more(bytes);
        self.waiting.taken.fetch_add(bytes as u64, Relaxed);
        self.waiting.last.store(self.now(), Relaxed);
    }

    /// Completes when the peer reads its answers too slowly, or when the room that they take is needed for others.
    pub(crate) async fn stalls(&self, limits: &Limits) {
        let late = async {
            let mut until = Instant::now() + limits.write_timeout;
            loop {
                tokio::time::sleep_until(until).await;
                let now = Instant::now();
                until = match self.waiting.bytes.load(Relaxed) {
                    // Nothing waits: bytes that start waiting from now on cannot be late before then.
                    0 => now + limits.write_timeout,
                    _ => self.late(limits),
                };
                if until <= now {
                    return;
                }
            }
        };
        tokio::select! {
            () = late => {}
            () = self.waiting.cut.notified() => {}
        }
    }

    /// When the bytes that wait now will have waited for too long.
    fn late(&self, limits: &Limits) -> Instant {
        let more = Duration::from_secs(self.waiting.taken.load(Relaxed) / limits.body_rate.max(1));
        self.opened + Duration::from_millis(self.waiting.since.load(Relaxed)) + limits.write_timeout + more
    }
}

/// A part of an answer, which stops counting as unread when it is written to the socket.
pub(crate) struct Piece {
    bytes: Bytes,
    connection: Arc<Activity>,
}

impl Piece {
    /// A piece of bytes that already count as waiting.
    pub(crate) fn new(bytes: Bytes, connection: Arc<Activity>) -> Self {
        Self { bytes, connection }
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        self.connection.took(count);
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.connection.waits_no_more(self.bytes.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Pool, Repository, Server, ServerOptions};

    #[tokio::test(start_paused = true)]
    async fn there_is_room_for_so_much_and_those_who_read_keep_theirs() {
        let limits = Limits {
            unread_bytes: 100,
            unread_bytes_in_all: 250,
            ..Limits::default()
        };
        let options = ServerOptions {
            limits: limits.clone(),
            ..ServerOptions::default()
        };
        let server = Server::new(Repository::new(Pool::new(1).unwrap()), options);
        let [stalled, reading, third] = [(); 3].map(|()| Activity::open(&server.0, true));
        // A single answer may have any length.
        assert!(stalled.may_wait(1000).is_ok());
        stalled.waits(80);
        assert!(stalled.may_wait(20).is_ok() && stalled.may_wait(21).is_err());
        reading.waits(100);
        assert!(third.may_wait(70).is_ok());
        let why = third.may_wait(71).unwrap_err();
        assert!(
            why.message.contains("of others") && matches!(why.reason, Reason::Busy(_)),
            "{why}"
        );
        tokio::time::advance(2 * STALLED).await;
        let mut piece = Piece::new(vec![0_u8; 100].into(), Arc::clone(&reading));
        piece.advance(40);
        // 80 + 60 bytes wait; no more than those of the first can be freed.
        assert!(third.may_wait(191).is_err());
        assert!(third.may_wait(190).is_ok());
        tokio::time::timeout(Duration::from_secs(1), stalled.waiting.cut.notified())
            .await
            .unwrap();
        drop(piece);
        stalled.waits_no_more(80);
        assert_eq!(server.0.unread.bytes.load(Relaxed), 0);
        drop((stalled, reading));
        assert_eq!(server.0.unread.lock().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_has_its_time_and_more_for_what_is_read() {
        let limits = Limits {
            write_timeout: Duration::from_secs(10),
            body_rate: 100,
            ..Limits::default()
        };
        let server = Server::new(Repository::new(Pool::new(1).unwrap()), ServerOptions::default());
        let connection = Activity::open(&server.0, true);
        let begun = Instant::now();
        let mut stalls = std::pin::pin!(connection.stalls(&limits));
        let mut waits = async |seconds| tokio::time::timeout(Duration::from_secs(seconds), stalls.as_mut()).await;
        assert!(waits(95).await.is_err(), "nothing waits");
        connection.waits(10_000);
        assert!(waits(9).await.is_err());
        connection.took(500);
        waits(60).await.unwrap();
        let late = begun.elapsed().as_secs();
        assert!((110..=111).contains(&late), "{late}");
    }
}
