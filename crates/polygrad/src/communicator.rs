//! Processes that train together: the seam to MPI, Gloo and NCCL, and how to join those that a launcher has started.

use std::sync::Arc;
use std::time::Duration;

use polygrad_core::{DeviceSpec, Error, ErrorKind, Result};

pub use polygrad_core::communicator::*;
#[cfg(feature = "mpi")]
pub use polygrad_mpi::Mpi;
#[cfg(feature = "gloo")]
pub use polygrad_torch::gloo::{Gloo, GlooOptions};

/// An engine that a launcher's processes are joined by.
struct Engine {
    name: &'static str,
    /// The launcher.
    launcher: &'static str,
    /// None where this build lacks it.
    open: Option<Open>,
}

type Open = fn(Duration) -> Result<Arc<dyn Communicator>>;

const ENGINES: [Engine; 2] = [
    Engine {
        name: "mpi",
        launcher: "mpirun -n 2",
        #[cfg(feature = "mpi")]
        open: Some(|timeout| Ok(Arc::new(Mpi::init(timeout)?))),
        #[cfg(not(feature = "mpi"))]
        open: None,
    },
    Engine {
        name: "gloo",
        launcher: "torchrun --no-python --nproc-per-node 2",
        #[cfg(feature = "gloo")]
        open: Some(|timeout| Ok(Arc::new(Gloo::from_env(timeout)?))),
        #[cfg(not(feature = "gloo"))]
        open: None,
    },
];

/// Joins the processes that a launcher has started: `mpi` for those of `mpirun`, `gloo` for those of `torchrun`. Both are cargo features. A time limit
/// for collectives follows in seconds, as in `mpi:timeout=60`; it is [`DEFAULT_TIMEOUT`] else.
///
/// # Errors
/// An engine that is unknown or not in this build, naming those that are; those of the engine, such as a library that is not found or a launcher
/// that has not started this process.
pub fn open(engine: &str) -> Result<Arc<dyn Communicator>> {
    let spec: DeviceSpec = engine.parse()?;
    spec.expect(0, &["timeout"])?;
    let timeout = match spec.option("timeout") {
        None => DEFAULT_TIMEOUT,
        Some(text) => seconds(text)?,
    };
    let Some(found) = ENGINES.iter().find(|known| known.name == spec.backend()) else {
        let known = ENGINES.map(|known| known.name).join(", ");
        let message = format!(
            "there is no engine {:?} for processes to train together",
            spec.backend()
        );
        return Err(Error::invalid(message).with_hint(format!("it is one of {known}")));
    };
    let Some(open) = found.open else {
        let (name, launcher) = (found.name, found.launcher);
        let message = format!("this program was built without {name}");
        let hint = format!("build it with --features {name}, and start it by `{launcher} …`");
        return Err(Error::new(ErrorKind::BackendUnavailable, message).with_hint(hint));
    };
    open(timeout)
}

fn seconds(text: &str) -> Result<Duration> {
    let seconds = text.parse().ok().filter(|seconds| *seconds > 0.0);
    let limit = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    limit.ok_or_else(|| {
        let message = format!("timeout={text} is no number of seconds above 0");
        Error::invalid(message).with_hint("give one, as in mpi:timeout=60")
    })
}
