//! The device: a driver, its memory, and the pending ops.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use polygrad_core::compute::{ComputeBackend, Driver, DriverCapabilities, Kernel, Recording};
use polygrad_core::{DType, Error, Result};

use crate::array::Storage;
use crate::memory::{Cache, MemoryStats};

/// The state of a device, independent of the type of its driver.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) driver: Box<dyn ComputeBackend>,
    pub(crate) capabilities: DriverCapabilities,
    /// The dtypes over which the driver runs element-wise programs.
    programs: Vec<DType>,
    /// Whether chains are fused into programs, and fused ops use kernels of their own.
    pub(crate) fuses: bool,
    pub(crate) cache: Mutex<Cache>,
    recorded: Mutex<Vec<Weak<Storage>>>,
    launches: AtomicU64,
    on_host: AtomicU64,
    replays: AtomicU64,
}

/// Counters of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceStats {
    /// Kernels that the driver was asked to run, without copies to and from the host.
    pub launches: u64,
    /// Ops that were computed on the host, since the driver has no kernel for them.
    pub host_ops: u64,
    /// How often a recording was replayed. Its kernels are not counted in `launches`.
    pub replays: u64,
    /// Its memory.
    pub memory: MemoryStats,
}

/// The dtypes that a driver's buffers must support.
const NEEDED: [DType; 3] = [DType::F32, DType::I64, DType::Bool];

/// The number of recorded ops at which dead ones are removed.
const RECORDED: usize = 1024;

impl Context {
    fn new(driver: Box<dyn ComputeBackend>, fuses: bool) -> Result<Self> {
        driver.init()?;
        let capabilities = driver.capabilities();
        if let Some(missing) = NEEDED.into_iter().find(|dtype| !capabilities.dtypes.contains(dtype)) {
            return Err(Error::unsupported(format!(
                "{} has no {missing}, which tensors need: positions are i64, answers bool",
                driver.name()
            ))
            .with_device(driver.name()));
        }
        let runs = |dtype: &DType| driver.supports(Kernel::Elementwise, *dtype);
        let programs = capabilities.dtypes.iter().copied().filter(runs).collect();
        Ok(Self {
            driver,
            capabilities,
            programs,
            fuses,
            cache: Mutex::default(),
            recorded: Mutex::default(),
            launches: AtomicU64::new(0),
            on_host: AtomicU64::new(0),
            replays: AtomicU64::new(0),
        })
    }

    /// Whether the driver runs element-wise programs over a dtype.
    pub(crate) fn runs_programs(&self, dtype: DType) -> bool {
        self.programs.contains(&dtype)
    }

    /// Checks that buffers can have a dtype.
    pub(crate) fn expect(&self, dtype: DType) -> Result<()> {
        if self.capabilities.dtypes.contains(&dtype) {
            return Ok(());
        }
        let names: Vec<_> = self.capabilities.dtypes.iter().map(|dtype| dtype.name()).collect();
        Err(Error::unsupported(format!("{} has no {dtype}", self.driver.name()))
            .with_device(self.driver.name())
            .with_hint(format!(
                "it has {}; convert with to_dtype before moving there",
                names.join(", ")
            )))
    }

    /// Runs a kernel, and counts the launch.
    pub(crate) fn launch<T>(&self, op: &str, run: impl FnOnce(&dyn ComputeBackend) -> Result<T>) -> Result<T> {
        let out = run(&*self.driver).map_err(|error| error.with_op(op.to_owned()))?;
        self.launches.fetch_add(1, Ordering::Relaxed);
        Ok(out)
    }

    pub(crate) fn launches(&self) -> u64 {
        self.launches.load(Ordering::Relaxed)
    }

    /// Replays a recording.
    pub(crate) fn replay(&self, recording: &Recording) -> Result<()> {
        self.driver.replay(recording)?;
        self.replays.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn count_on_host(&self) {
        self.on_host.fetch_add(1, Ordering::Relaxed);
    }

    /// Remembers a pending op.
    pub(crate) fn record(&self, storage: &Arc<Storage>) {
        let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        if recorded.len() >= RECORDED {
            recorded.retain(|storage| storage.upgrade().is_some_and(|storage| storage.is_pending()));
        }
        recorded.push(Arc::downgrade(storage));
    }

    /// Computes the pending ops that still have a handle, and waits.
    fn synchronize(&self) -> Result<()> {
        let recorded = std::mem::take(&mut *self.recorded.lock().unwrap_or_else(PoisonError::into_inner));
        let mut first = Ok(());
        for storage in recorded.iter().filter_map(Weak::upgrade) {
            first = first.and(storage.buffer().map(drop));
        }
        first.and(self.driver.synchronize())
    }
}

/// A device of a driver, with memory of its own. Clones are the same device; tensors of different devices cannot be
/// combined.
pub struct ComputeDevice<D>(pub(crate) Arc<Context>, PhantomData<fn() -> D>);

impl<D: Driver> ComputeDevice<D> {
    /// A device over a driver, which is initialized if necessary. Chains of element-wise ops become one kernel each, if
    /// the driver runs programs.
    ///
    /// # Errors
    /// If the driver cannot be initialized.
    pub fn new(driver: D) -> Result<Self> {
        Self::over(Box::new(driver), true)
    }

    /// Like [`ComputeDevice::new`], but with nothing fused: fused ops are decomposed, and each op runs by itself as
    /// soon as it is called. For comparison, and for finding faults.
    ///
    /// # Errors
    /// As for [`ComputeDevice::new`].
    pub fn unfused(driver: D) -> Result<Self> {
        Self::over(Box::new(driver), false)
    }

    pub(crate) fn over(driver: Box<dyn ComputeBackend>, fuses: bool) -> Result<Self> {
        let context = Context::new(driver, fuses)?;
        Ok(Self(Arc::new(context), PhantomData))
    }

    pub(crate) fn of(context: &Arc<Context>) -> Self {
        Self(Arc::clone(context), PhantomData)
    }

    /// The driver.
    pub fn driver(&self) -> &dyn ComputeBackend {
        &*self.0.driver
    }

    /// The counters.
    pub fn stats(&self) -> DeviceStats {
        DeviceStats {
            launches: self.0.launches(),
            host_ops: self.0.on_host.load(Ordering::Relaxed),
            replays: self.0.replays.load(Ordering::Relaxed),
            memory: self.0.memory(),
        }
    }

    /// Returns the memory that is cached for later tensors to the driver.
    pub fn release_cache(&self) {
        self.0.release();
    }

    pub(crate) fn synchronize(&self) -> Result<()> {
        self.0.synchronize()
    }
}

impl<D> Clone for ComputeDevice<D> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0), PhantomData)
    }
}

impl<D> PartialEq for ComputeDevice<D> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<D> fmt::Display for ComputeDevice<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0.driver.name();
        match self.0.fuses {
            true => f.write_str(name),
            false => {
                let separator = if name.contains('=') { ',' } else { ':' };
                write!(f, "{name}{separator}fusion=off")
            }
        }
    }
}

impl<D> fmt::Debug for ComputeDevice<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ComputeDevice({:?})", self.0.driver)
    }
}
