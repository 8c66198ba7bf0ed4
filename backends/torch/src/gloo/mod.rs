//! Groups of processes over LibTorch's Gloo: CPUs of one machine or of several, by TCP. The feature is `gloo`.
//!
//! The processes are started by torchrun, or by any launcher that sets the same variables, and find each other through
//! these:
//!
//! ```no_run
//! use polygrad_core::communicator::{Communicator, DEFAULT_TIMEOUT, HostSliceMut, Reduction};
//! use polygrad_torch::gloo::Gloo;
//!
//! # fn main() -> polygrad_core::Result<()> {
//! // torchrun --no-python --nproc-per-node 2 target/release/program
//! let group = Gloo::from_env(DEFAULT_TIMEOUT)?;
//! let mut ranks = [group.rank() as f32];
//! group.all_reduce(HostSliceMut::new(&mut ranks), Reduction::Sum)?;
//! # Ok(())
//! # }
//! ```
//!
//! Gloo listens on the network interface to which the host's name resolves. If the name does not resolve, Gloo uses the
//! loopback, and warns about it. If it resolves to the loopback, as on many Debian systems, processes of other machines
//! cannot connect. `GLOO_SOCKET_IFNAME=eth0` sets the interface.

mod ffi;
mod launcher;
mod options;
mod peers;

use std::fmt;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use polygrad_core::communicator::{Communicator, HostBuffer, HostSlice, HostSliceMut, Reduction, check};
use polygrad_core::{Error, Result};

pub use options::GlooOptions;

use ffi::{Group, Op, Said, Store};
use peers::{Failure, Peers};

/// Pause between two attempts to reach the store.
const PAUSE: Duration = Duration::from_millis(50);

/// A rank of a group over LibTorch's Gloo.
///
/// - Sums are Gloo's own, in a ring; f16 and bf16 are added in f32 and rounded each time. Since Gloo's minimum and
///   maximum may lose NaN, those of floats are computed here, from the values of all ranks.
/// - `reduce_scatter` costs as much as `all_reduce`, since this LibTorch implements it by that.
/// - The time limit applies to each step of a collective; there are at most twice as many steps as ranks.
/// - When a collective fails, the ranks tell each other through the store, and a rank that does not is named; this
///   takes up to 2 s. A rank that computes for longer than that while another one dies may be named instead.
pub struct Gloo {
    options: GlooOptions,
    peers: Peers,
    timeout: Duration,
    state: Mutex<State>,
    /// Number of duplicate groups so far.
    duplicates: AtomicUsize,
}

enum State {
    Connected(Group),
    Failed(Failure),
}

impl Gloo {
    /// Joins the group with the other ranks.
    ///
    /// # Errors
    /// An invalid rank; [`Communication`](polygrad_core::ErrorKind::Communication) without a store, or if a rank does
    /// not join within the time limit.
    pub fn new(options: &GlooOptions) -> Result<Self> {
        options.check()?;
        Self::met(options, options.serve && options.rank == 0).map_err(|e| e.with_op("gloo"))
    }

    /// Like [`Gloo::new`], with [`GlooOptions::from_env`].
    ///
    /// # Errors
    /// A missing or invalid variable, and those of [`Gloo::new`].
    pub fn from_env(timeout: Duration) -> Result<Self> {
        Self::new(&GlooOptions::from_env(timeout)?)
    }

    /// Joins the group; `serves` tells whether this process serves the store.
    fn met(options: &GlooOptions, serves: bool) -> Result<Self> {
        let (rank, size, timeout) = (options.rank, options.size, options.timeout);
        let peers = Peers {
            store: Arc::new(store(options, serves)?),
            rank,
            size,
            host: options.serve.then_some(0),
        };
        peers.meet(timeout).map_err(|failure| failure.error())?;
        let interface = options.interface.as_deref();
        let group = match Group::connect(&peers.store, rank, size, interface, timeout) {
            Ok(group) => group,
            Err(said) => return Err(peers.blame(format!("cannot connect: {said}"), timeout).error()),
        };
        Ok(Self {
            options: options.clone(),
            peers,
            timeout,
            state: Mutex::new(State::Connected(group)),
            duplicates: AtomicUsize::new(0),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a collective. After a failure, all later ones fail.
    fn collective(&self, name: &'static str, f: impl FnOnce(&mut Group) -> Said<()>) -> Result<()> {
        let mut state = self.state();
        let said = match &mut *state {
            State::Failed(failure) => return Err(failure.error().with_op(name)),
            State::Connected(group) => match f(group) {
                Ok(()) => return Ok(()),
                Err(said) => said,
            },
        };
        // This closes the connections, so that the other ranks notice.
        *state = State::Failed(Failure::of(self.rank(), "has failed"));
        let failure = self.peers.blame(said, self.timeout);
        let error = failure.error().with_op(name);
        *state = State::Failed(failure);
        Err(error)
    }

    fn gathered(&self, name: &'static str, own: &[u8], all: &mut [u8]) -> Result<()> {
        match own.is_empty() {
            true => self.collective(name, Group::barrier),
            false => self.collective(name, |group| group.all_gather(own, all)),
        }
    }

    fn reduced(&self, name: &'static str, mut values: HostSliceMut<'_>, op: Reduction) -> Result<()> {
        let (dtype, len) = (values.dtype(), values.len());
        let op = match op {
            _ if len == 0 => return self.collective(name, Group::barrier),
            Reduction::Min | Reduction::Max if dtype.is_float() => {
                return op.gathered(&mut values, self.size(), |own, mut all| {
                    self.gathered(name, own.bytes(), all.bytes_mut())
                });
            }
            Reduction::Sum => Op::Sum,
            Reduction::Min => Op::Min,
            Reduction::Max => Op::Max,
        };
        let code = match dtype {
            // Gloo has no bools, but 0 and 1 compare in the same way.
            polygrad_core::DType::Bool => crate::ffi::code(polygrad_core::DType::U8),
            dtype => crate::ffi::code(dtype),
        };
        self.collective(name, |group| group.all_reduce(values.bytes_mut(), len, code, op))
    }
}

/// The store where the ranks meet.
fn store(options: &GlooOptions, serves: bool) -> Result<Store> {
    let GlooOptions {
        host,
        port,
        group,
        timeout,
        ..
    } = options;
    if serves {
        return Store::connect(host, *port, group, true, *timeout).map_err(|said| {
            Error::communication(format!("rank 0 cannot serve the store at port {port}: {said}"))
                .with_hint("set MASTER_PORT to a port that nobody uses")
        });
    }
    let connected = answers(host, *port, *timeout).and_then(|left| Store::connect(host, *port, group, false, left));
    connected.map_err(|said| match options.serve {
        true => {
            let what = format!("does not answer at {host}:{port} within {timeout:?}: {said}");
            Error::lost_peer(0, &what)
        }
        false => {
            let message = format!("the store at {host}:{port} does not answer within {timeout:?}: {said}");
            Error::communication(message).with_hint("torchrun serves it; is it still there?")
        }
    })
}

/// Waits until a server listens, since LibTorch waits for longer than its time limit, and prints errors. Returns the
/// remaining time.
fn answers(host: &str, port: u16, limit: Duration) -> Said<Duration> {
    let begun = Instant::now();
    loop {
        let left = limit.saturating_sub(begun.elapsed());
        let said = match (host, port).to_socket_addrs() {
            Ok(mut places) => match places.find_map(|place| TcpStream::connect_timeout(&place, left.max(PAUSE)).ok()) {
                Some(_) => return Ok(left.max(PAUSE)),
                None => "nobody listens there".to_owned(),
            },
            Err(e) => e.to_string(),
        };
        if left.is_zero() {
            return Err(said);
        }
        std::thread::sleep(PAUSE.min(left));
    }
}

impl Communicator for Gloo {
    fn name(&self) -> String {
        format!("Gloo of LibTorch {}", ffi::version())
    }

    fn rank(&self) -> usize {
        self.peers.rank
    }

    fn size(&self) -> usize {
        self.peers.size
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    fn all_reduce(&self, values: HostSliceMut<'_>, op: Reduction) -> Result<()> {
        check::all_reduce(&values, op)?;
        self.reduced("all_reduce", values, op)
    }

    fn reduce_scatter(&self, values: HostSlice<'_>, mut own: HostSliceMut<'_>, op: Reduction) -> Result<()> {
        check::reduce_scatter(values, &own, op, self.size())?;
        let mut whole = HostBuffer::copied(values.bytes())?;
        let slice = HostSliceMut::from_bytes(values.dtype(), whole.bytes_mut())?;
        self.reduced("reduce_scatter", slice, op)?;
        let len = own.bytes_mut().len();
        own.bytes_mut()
            .copy_from_slice(&whole.bytes()[self.rank() * len..][..len]);
        Ok(())
    }

    fn all_gather(&self, own: HostSlice<'_>, mut all: HostSliceMut<'_>) -> Result<()> {
        check::parts(all.as_slice(), own, self.size())?;
        self.gathered("all_gather", own.bytes(), all.bytes_mut())
    }

    fn broadcast(&self, mut values: HostSliceMut<'_>, root: usize) -> Result<()> {
        check::root(root, self.size())?;
        match values.is_empty() {
            true => self.collective("broadcast", Group::barrier),
            false => self.collective("broadcast", |group| group.broadcast(values.bytes_mut(), root)),
        }
    }

    fn barrier(&self) -> Result<()> {
        self.collective("barrier", Group::barrier)
    }

    fn duplicate(&self) -> Result<Arc<dyn Communicator>> {
        let number = self.duplicates.fetch_add(1, Ordering::Relaxed);
        let options = GlooOptions {
            group: format!("{}/duplicate_{number}", self.options.group),
            ..self.options.clone()
        };
        // The store is running already.
        let second = Self::met(&options, false).map_err(|e| e.with_op("duplicate"))?;
        Ok(Arc::new(second))
    }

    fn abort(&self, why: &str) {
        let failure = self.peers.give_up(why);
        // If another thread is in a collective, it notices through the other ranks.
        match self.state.try_lock() {
            Ok(mut state) => *state = State::Failed(failure),
            Err(TryLockError::Poisoned(state)) => *state.into_inner() = State::Failed(failure),
            Err(TryLockError::WouldBlock) => {}
        }
    }
}

impl fmt::Debug for Gloo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gloo(rank {} of {})", self.rank(), self.size())
    }
}
