//! The suite that checks every engine of [`Communicator`] against the contract of the trait.
//!
//! Every rank calls [`run`], with the same options; it takes seconds. Ways in which a group ends are checked by
//! [`ends`], with a new group each time.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use polygrad_conformance::communicator::{Options, run};
//! use polygrad_core::communicator::Communicator;
//! use polygrad_threads::Threads;
//!
//! # fn main() -> polygrad_core::Result<()> {
//! let options = Options { most: 1000, ..Options::default() };
//! let ends = Threads::group(2, Duration::from_secs(60))?;
//! std::thread::scope(|scope| {
//!     for end in ends {
//!         let comm: Arc<dyn Communicator> = Arc::new(end);
//!         scope.spawn(move || {
//!             let report = run(&comm, &options);
//!             assert!(report.passed(), "{report}");
//!         });
//!     }
//! });
//! # Ok(())
//! # }
//! ```

mod cases;
mod endings;
mod rank;
mod report;
mod values;

use std::sync::Arc;
use std::time::Duration;

use polygrad_core::communicator::Communicator;

pub use endings::{Call, Ending, ends};
pub use report::{Record, Report};

/// Properties of the engine under test.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The number of values in the longest slices. Default: 10 million.
    pub most: usize,
    /// How long after its time limit a collective may still return before it counts as never returning. Default: 5 s.
    pub margin: Duration,
    /// Whether the engine always knows which peer is lost, so that an error without it is a failure. Default: yes.
    pub names_peers: bool,
    /// Whether the remaining ranks can continue after [`shrink`](Communicator::shrink). Default: no.
    pub shrinks: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            most: 10_000_000,
            margin: Duration::from_secs(5),
            names_peers: true,
            shrinks: false,
        }
    }
}

/// Runs every case on this rank, and finally exchanges whether all ranks pass. It always returns: a collective that
/// never returns is a failure, and leaves a thread behind.
pub fn run(comm: &Arc<dyn Communicator>, options: &Options) -> Report {
    let most = options.most;
    rank::watched(Arc::clone(comm), options.margin, move |rank| cases::all(rank, most))
}
