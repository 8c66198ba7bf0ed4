//! An engine for processes that train together: TCP, with rank 0 in the middle of a star.
//!
//! Every collective is one exchange: each rank sends its bytes to rank 0, which answers each of them. This is slow for
//! many ranks, but short.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use polygrad::communicator::{Communicator, Engine, HostBuffer, HostSlice, HostSliceMut, Reduction, check};
use polygrad::{Error, Result};

/// How much longer than rank 0 the others wait, so that rank 0 can tell them which rank is missing.
const GRACE: Duration = Duration::from_millis(200);

/// One process's member of a star.
pub struct Star {
    rank: usize,
    size: usize,
    timeout: Duration,
    state: Mutex<State>,
}

struct State {
    /// Rank 0's connections to the other ranks, in their order; another rank's connection to rank 0.
    peers: Vec<TcpStream>,
    /// The rank that made the group fail, and what it did.
    failed: Option<(usize, String)>,
}

/// The first byte of a message: values follow, or the reason why its rank gives up, or the rank that is lost.
const VALUES: u8 = 0;
const ABORT: u8 = 1;
const LOST: u8 = 2;

/// The engine with the name `star`; torchrun sets its `RANK`, `WORLD_SIZE`, `MASTER_ADDR` and `MASTER_PORT`.
pub fn engine() -> Engine {
    Engine::new("star", |_, timeout| {
        let variable = |name: &str| {
            std::env::var(name).map_err(|_| {
                Error::communication(format!("{name} is not set")).with_hint(
                    "start each process with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as torchrun does",
                )
            })
        };
        let number = |name: &str| {
            let text = variable(name)?;
            text.parse()
                .map_err(|_| Error::communication(format!("{name}={text} is not a whole number")))
        };
        let address = format!("{}:{}", variable("MASTER_ADDR")?, variable("MASTER_PORT")?);
        Ok(Arc::new(Star::join(
            number("RANK")?,
            number("WORLD_SIZE")?,
            &address,
            timeout,
        )?))
    })
}

impl Star {
    /// Joins `size` processes, the first of which listens at `address`.
    ///
    /// # Errors
    /// Invalid numbers, and processes that do not connect within the time limit.
    pub fn join(rank: usize, size: usize, address: &str, timeout: Duration) -> Result<Self> {
        if rank >= size {
            return Err(Error::communication(format!("there is no rank {rank} among {size}")));
        }
        let failed = |error: std::io::Error| Error::communication(format!("cannot join at {address}: {error}"));
        if rank == 0 {
            return Self::first(TcpListener::bind(address).map_err(failed)?, size, timeout);
        }
        let begun = Instant::now();
        let peer = loop {
            match TcpStream::connect(address) {
                Ok(mut peer) => {
                    peer.write_all(&(rank as u64).to_le_bytes()).map_err(failed)?;
                    break peer;
                }
                Err(error) if begun.elapsed() >= timeout => return Err(failed(error)),
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        Ok(Self::of(rank, size, timeout, vec![peer]))
    }

    /// The member of rank 0, which accepts the others.
    ///
    /// # Errors
    /// Processes that do not connect within the time limit, or that claim another's rank.
    pub fn first(listener: TcpListener, size: usize, timeout: Duration) -> Result<Self> {
        let failed = |error: std::io::Error| Error::communication(format!("cannot accept the other ranks: {error}"));
        listener.set_nonblocking(true).map_err(failed)?;
        let (begun, mut peers) = (Instant::now(), (1..size).map(|_| None).collect::<Vec<_>>());
        while let Some(missing) = peers.iter().position(Option::is_none) {
            match listener.accept() {
                Ok((mut peer, _)) => {
                    peer.set_nonblocking(false).map_err(failed)?;
                    peer.set_read_timeout(Some(timeout)).map_err(failed)?;
                    let mut rank = [0; 8];
                    peer.read_exact(&mut rank).map_err(failed)?;
                    let place = usize::try_from(u64::from_le_bytes(rank))
                        .unwrap_or(usize::MAX)
                        .wrapping_sub(1);
                    match peers.get_mut(place) {
                        Some(free @ None) => *free = Some(peer),
                        _ => {
                            return Err(Error::communication(format!(
                                "two processes say that they are rank {}",
                                place.wrapping_add(1)
                            )));
                        }
                    }
                }
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(failed(error)),
                Err(_) if begun.elapsed() >= timeout => {
                    return Err(Error::lost_peer(
                        missing + 1,
                        &format!("did not come within {timeout:?}"),
                    ));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
        Ok(Self::of(0, size, timeout, peers.into_iter().flatten().collect()))
    }

    fn of(rank: usize, size: usize, timeout: Duration, peers: Vec<TcpStream>) -> Self {
        for peer in &peers {
            // Messages are short, and each is waited for, so they should not be delayed.
            let _ = peer.set_nodelay(true);
        }
        let state = Mutex::new(State { peers, failed: None });
        Self {
            rank,
            size,
            timeout,
            state,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends bytes to rank 0, where `answer` computes each rank's answer from the bytes of all; returns this rank's
    /// answer.
    fn exchange(
        &self,
        own: &[u8],
        answer: impl FnOnce(&[HostBuffer]) -> Result<Vec<HostBuffer>>,
    ) -> Result<HostBuffer> {
        let mut state = self.state();
        if let Some((rank, what)) = &state.failed {
            return Err(Error::lost_peer(*rank, what));
        }
        let done = match self.rank {
            0 => self.in_the_middle(&mut state, own, answer),
            _ => self.at_the_end(&mut state.peers[0], own),
        };
        done.map_err(|Lost(rank, what)| {
            // The others learn which rank is missing, and rank 0 does not make them wait any longer.
            for peer in &mut state.peers {
                let _ = send(
                    peer,
                    LOST,
                    &[&(rank as u64).to_le_bytes(), what.as_bytes()].concat(),
                    GRACE,
                );
                let _ = peer.shutdown(std::net::Shutdown::Both);
            }
            let error = Error::lost_peer(rank, &what);
            state.failed = Some((rank, what));
            error
        })
    }

    fn in_the_middle(
        &self,
        state: &mut State,
        own: &[u8],
        answer: impl FnOnce(&[HostBuffer]) -> Result<Vec<HostBuffer>>,
    ) -> std::result::Result<HostBuffer, Lost> {
        let begun = Instant::now();
        let mut brought = vec![HostBuffer::copied(own).map_err(|error| Lost(0, error.to_string()))?];
        for (i, peer) in state.peers.iter_mut().enumerate() {
            let left = self.timeout.saturating_sub(begun.elapsed());
            brought.push(receive(peer, left, self.timeout).map_err(|lost| lost.of(i + 1))?);
        }
        let mut answers = answer(&brought).map_err(|error| Lost(0, error.to_string()))?;
        for (i, peer) in state.peers.iter_mut().enumerate() {
            send(peer, VALUES, answers[i + 1].bytes(), self.timeout).map_err(|what| Lost(i + 1, what))?;
        }
        Ok(answers.swap_remove(0))
    }

    fn at_the_end(&self, peer: &mut TcpStream, own: &[u8]) -> std::result::Result<HostBuffer, Lost> {
        send(peer, VALUES, own, self.timeout).map_err(|what| Lost(0, what))?;
        receive(peer, self.timeout + GRACE, self.timeout).map_err(|lost| lost.of(0))
    }
}

/// A lost rank, and what it did.
struct Lost(usize, String);

/// Why a message did not arrive.
enum Missed {
    /// The peer itself is lost.
    Peer(String),
    /// The peer reports that another rank is lost.
    Other(Lost),
}

impl Missed {
    fn of(self, peer: usize) -> Lost {
        match self {
            Self::Peer(what) => Lost(peer, what),
            Self::Other(lost) => lost,
        }
    }
}

fn send(peer: &mut TcpStream, kind: u8, bytes: &[u8], limit: Duration) -> std::result::Result<(), String> {
    let gone = |error: std::io::Error| format!("left the group: {error}");
    peer.set_write_timeout(Some(limit.max(Duration::from_millis(1))))
        .map_err(gone)?;
    let mut head = [kind; 9];
    head[1..].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
    peer.write_all(&head).and_then(|()| peer.write_all(bytes)).map_err(gone)
}

fn receive(peer: &mut TcpStream, left: Duration, limit: Duration) -> std::result::Result<HostBuffer, Missed> {
    let missed = |error: std::io::Error| {
        Missed::Peer(match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => format!("did not come within {limit:?}"),
            _ => format!("left the group: {error}"),
        })
    };
    let mut head = [0; 9];
    peer.set_read_timeout(Some(left.max(Duration::from_millis(1))))
        .map_err(missed)?;
    peer.read_exact(&mut head).map_err(missed)?;
    let len = u64::from_le_bytes(std::array::from_fn(|i| head[i + 1]));
    // Everything sent here was in memory on the other side; an impossible length makes the allocation fail.
    let room = HostBuffer::new(usize::try_from(len).unwrap_or(usize::MAX));
    let mut bytes = room.map_err(|error| Missed::Peer(format!("sent too much: {error}")))?;
    peer.read_exact(bytes.bytes_mut()).map_err(missed)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match head[0] {
        VALUES => Ok(bytes),
        ABORT => Err(Missed::Peer(format!("gave up: {}", text(bytes.bytes())))),
        _ => {
            let (rank, what) = bytes.bytes().split_at(bytes.bytes().len().min(8));
            let rank = rank.try_into().map_or(0, u64::from_le_bytes);
            Err(Missed::Other(Lost(usize::try_from(rank).unwrap_or(0), text(what))))
        }
    }
}

/// The same bytes for every rank.
fn for_all(bytes: &[u8], size: usize) -> Result<Vec<HostBuffer>> {
    (0..size).map(|_| HostBuffer::copied(bytes)).collect()
}

/// The values of all ranks, reduced in the order of the ranks.
fn reduced(brought: &[HostBuffer], dtype: polygrad::DType, op: Reduction) -> Result<HostBuffer> {
    let mut all = HostBuffer::copied(brought[0].bytes())?;
    for other in &brought[1..] {
        let mut into = HostSliceMut::from_bytes(dtype, all.bytes_mut())?;
        op.apply(&mut into, HostSlice::from_bytes(dtype, other.bytes())?)?;
    }
    Ok(all)
}

/// Copies an answer, whose length matches if all ranks made the same call.
fn take(mut into: HostSliceMut<'_>, answer: &HostBuffer) -> Result<()> {
    let (own, got) = (into.bytes_mut().len(), answer.bytes().len());
    if own != got {
        let message = format!("rank 0 answers {got} bytes where {own} are asked for");
        return Err(Error::invalid(message).with_hint("every rank calls the same collectives in the same order"));
    }
    into.bytes_mut().copy_from_slice(answer.bytes());
    Ok(())
}

impl Communicator for Star {
    fn name(&self) -> String {
        "star".to_owned()
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

    fn all_reduce(&self, values: HostSliceMut<'_>, op: Reduction) -> Result<()> {
        check::all_reduce(&values, op)?;
        let dtype = values.dtype();
        let answer = self.exchange(values.as_slice().bytes(), |brought| {
            for_all(reduced(brought, dtype, op)?.bytes(), brought.len())
        })?;
        take(values, &answer)
    }

    fn reduce_scatter(&self, values: HostSlice<'_>, own: HostSliceMut<'_>, op: Reduction) -> Result<()> {
        check::reduce_scatter(values, &own, op, self.size)?;
        let (dtype, part) = (values.dtype(), own.as_slice().bytes().len());
        let answer = self.exchange(values.bytes(), |brought| {
            let all = reduced(brought, dtype, op)?;
            let parts = (0..brought.len()).map(|rank| HostBuffer::copied(&all.bytes()[rank * part..(rank + 1) * part]));
            parts.collect()
        })?;
        take(own, &answer)
    }

    fn all_gather(&self, own: HostSlice<'_>, all: HostSliceMut<'_>) -> Result<()> {
        check::parts(all.as_slice(), own, self.size)?;
        let answer = self.exchange(own.bytes(), |brought| {
            let all: Vec<u8> = brought.iter().flat_map(HostBuffer::bytes).copied().collect();
            for_all(&all, brought.len())
        })?;
        take(all, &answer)
    }

    fn broadcast(&self, values: HostSliceMut<'_>, root: usize) -> Result<()> {
        check::root(root, self.size)?;
        let own = if root == self.rank {
            values.as_slice().bytes()
        } else {
            &[]
        };
        let answer = self.exchange(own, |brought| for_all(brought[root].bytes(), brought.len()))?;
        take(values, &answer)
    }

    fn barrier(&self) -> Result<()> {
        self.exchange(&[], |brought| for_all(&[], brought.len())).map(drop)
    }

    fn abort(&self, why: &str) {
        let mut state = self.state();
        if state.failed.is_some() {
            return;
        }
        for peer in &mut state.peers {
            let _ = send(peer, ABORT, why.as_bytes(), GRACE);
        }
        state.failed = Some((self.rank, format!("gave up: {why}")));
    }
}

impl fmt::Debug for Star {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Star(rank {} of {})", self.rank, self.size)
    }
}
