//! Processes that train together: the interface to MPI, Gloo, NCCL and engines of your own, and joining the processes
//! that a launcher has started.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};
use std::time::Duration;

use polygrad_core::{DeviceSpec, Error, ErrorKind, Result};

pub use polygrad_core::communicator::*;
#[cfg(feature = "nccl")]
pub use polygrad_cuda::Nccl;
#[cfg(feature = "mpi")]
pub use polygrad_mpi::Mpi;
pub use polygrad_threads::Threads;
#[cfg(feature = "gloo")]
pub use polygrad_torch::gloo::{Gloo, GlooOptions};

type Join = dyn Fn(&DeviceSpec, Duration) -> Result<Arc<dyn Communicator>> + Send + Sync;

/// An engine that joins the processes of a launcher, as used by [`open`] and `polygrad train --parallel`.
///
/// ```
/// use std::sync::Arc;
///
/// use polygrad::communicator::{self, Communicator, Engine, Threads};
///
/// # fn main() -> polygrad::Result<()> {
/// // A group of this process alone, in place of an engine of your own.
/// communicator::register(Engine::new("alone", |_, timeout| {
///     Ok(Arc::new(Threads::group(1, timeout)?.remove(0)))
/// }))?;
/// assert_eq!(communicator::open("alone:timeout=5")?.size(), 1);
/// # Ok(())
/// # }
/// ```
pub struct Engine {
    name: Cow<'static, str>,
    options: &'static [&'static str],
    /// Or how to get it, if this build lacks it.
    join: std::result::Result<Box<Join>, String>,
}

impl Engine {
    /// An engine whose `join` returns this process's member of the group. `join` gets the parsed string that names the
    /// engine, with the options declared by [`Engine::with_options`], and the time limit for collectives.
    pub fn new(
        name: impl Into<Cow<'static, str>>,
        join: impl Fn(&DeviceSpec, Duration) -> Result<Arc<dyn Communicator>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            options: &[],
            join: Ok(Box::new(join)),
        }
    }

    /// Sets the options that its string may have besides `timeout`, such as `device` in `nccl:device=1`. Default: none.
    #[must_use]
    pub fn with_options(mut self, options: &'static [&'static str]) -> Self {
        self.options = options;
        self
    }

    /// An engine that this build lacks, with how to get it: the hint in the error of [`open`].
    pub fn absent(name: impl Into<Cow<'static, str>>, fix: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            options: &[],
            join: Err(fix.into()),
        }
    }

    /// The engine's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether this build contains it.
    pub fn is_available(&self) -> bool {
        self.join.is_ok()
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("name", &self.name)
            .field("is_available", &self.is_available())
            .finish_non_exhaustive()
    }
}

static ENGINES: LazyLock<RwLock<Vec<Arc<Engine>>>> =
    LazyLock::new(|| RwLock::new(built_in().into_iter().map(Arc::new).collect()));

fn built_in() -> [Engine; 3] {
    [
        #[cfg(feature = "mpi")]
        Engine::new("mpi", |_, timeout| Ok(Arc::new(Mpi::init(timeout)?))),
        #[cfg(not(feature = "mpi"))]
        Engine::absent("mpi", "build it with --features mpi, and start it by `mpirun -n 2 …`"),
        #[cfg(feature = "gloo")]
        Engine::new("gloo", |_, timeout| Ok(Arc::new(Gloo::from_env(timeout)?))),
        #[cfg(not(feature = "gloo"))]
        Engine::absent(
            "gloo",
            "build it with --features gloo, and start it by `torchrun --no-python --nproc-per-node 2 …`",
        ),
        #[cfg(feature = "nccl")]
        Engine::new("nccl", nccl).with_options(&["bootstrap", "device"]),
        #[cfg(not(feature = "nccl"))]
        Engine::absent(
            "nccl",
            "build it with --features nccl,gloo, and start it by `torchrun --no-python --nproc-per-node 2 …`",
        ),
    ]
}

/// NCCL between the CUDA devices of the processes that another engine joins.
#[cfg(feature = "nccl")]
fn nccl(spec: &DeviceSpec, timeout: Duration) -> Result<Arc<dyn Communicator>> {
    let bootstrap = spec.option("bootstrap").unwrap_or("gloo");
    if bootstrap == "nccl" {
        let message = "NCCL cannot carry its own id to all ranks";
        return Err(Error::invalid(message).with_hint("name mpi or gloo, as in nccl:bootstrap=mpi"));
    }
    let device = match spec.option("device") {
        Some(device) => Some(device.to_owned()),
        // As set by torchrun, Open MPI, MPICH and Slurm.
        None => [
            "LOCAL_RANK",
            "OMPI_COMM_WORLD_LOCAL_RANK",
            "MPI_LOCALRANKID",
            "SLURM_LOCALID",
        ]
        .into_iter()
        .find_map(|name| std::env::var(name).ok()),
    };
    let device = device.as_deref().unwrap_or("0");
    let device = device.parse().map_err(|_| {
        let message = format!("device={device} is no index of a CUDA device");
        Error::invalid(message)
            .with_hint("give one, as in nccl:device=0; without it each process takes that of its local rank")
    })?;
    let bootstrap = open(&format!("{bootstrap}:timeout={}", timeout.as_secs_f64()))?;
    Ok(Arc::new(Nccl::new(bootstrap, device)?))
}

/// Registers an engine, so that [`open`] finds it by name.
///
/// # Errors
/// When an engine of that name already exists, or the name cannot be used in such a string.
pub fn register(engine: Engine) -> Result<()> {
    let name = engine.name().to_owned();
    if name.is_empty() || name.contains([':', ',', '=', ' ']) {
        return Err(Error::invalid(format!("{name:?} cannot name an engine")));
    }
    let mut engines = ENGINES.write().unwrap_or_else(PoisonError::into_inner);
    if engines.iter().any(|known| known.name() == name) {
        return Err(Error::invalid(format!(
            "an engine named {name:?} is registered already"
        )));
    }
    engines.push(Arc::new(engine));
    Ok(())
}

/// The engines that [`open`] knows, in the order of registration, including those that this build lacks.
pub fn engines() -> Vec<Arc<Engine>> {
    ENGINES.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Joins the processes that a launcher has started: `mpi` for those of `mpirun`, `gloo` for those of `torchrun`, `nccl`
/// for either on CUDA devices (`nccl:bootstrap=mpi`; by default `gloo`), all of which are cargo features; or an engine
/// that was [registered](register). A time limit for collectives in seconds may follow, as in `mpi:timeout=60`; the
/// default is [`DEFAULT_TIMEOUT`].
///
/// # Errors
/// An engine that is unknown or not in this build (the error names the known ones); those of the engine, such as a
/// missing library or a launcher that has not started this process.
pub fn open(engine: &str) -> Result<Arc<dyn Communicator>> {
    let spec: DeviceSpec = engine.parse()?;
    let engines = engines();
    let Some(found) = engines.iter().find(|known| known.name() == spec.backend()) else {
        let known: Vec<&str> = engines.iter().map(|known| known.name()).collect();
        let message = format!(
            "there is no engine {:?} for processes to train together",
            spec.backend()
        );
        return Err(Error::invalid(message).with_hint(format!("it is one of {}", known.join(", "))));
    };
    spec.expect(0, &[&["timeout"], found.options].concat())?;
    let timeout = match spec.option("timeout") {
        None => DEFAULT_TIMEOUT,
        Some(text) => seconds(text)?,
    };
    match &found.join {
        Ok(join) => join(&spec, timeout),
        Err(fix) => {
            let message = format!("this program was built without {}", found.name());
            Err(Error::new(ErrorKind::BackendUnavailable, message).with_hint(fix.clone()))
        }
    }
}

fn seconds(text: &str) -> Result<Duration> {
    let seconds = text.parse().ok().filter(|seconds| *seconds > 0.0);
    let limit = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    limit.ok_or_else(|| {
        let message = format!("timeout={text} is no number of seconds above 0");
        Error::invalid(message).with_hint("give one, as in mpi:timeout=60")
    })
}
