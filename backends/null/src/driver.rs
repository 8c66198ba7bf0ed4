//! A driver that computes nothing.

use std::sync::{Mutex, MutexGuard, PoisonError};

use polygrad_core::compute::{AddressSpace, Call, ComputeBackend, DevicePtr, Driver, DriverCapabilities, Kernel};
use polygrad_core::{Availability, DType, DeviceInfo, Error, ErrorKind, Result};

/// Counters of a [`NullDriver`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DriverStats {
    /// Allocations that have not been freed.
    pub live_allocations: usize,
    /// Their bytes.
    pub live_bytes: u64,
    /// The most [`DriverStats::live_bytes`] so far.
    pub peak_bytes: u64,
    /// Calls that compute: all except memory calls and [`ComputeBackend::synchronize`].
    pub kernels: u64,
}

/// A driver that accepts every call and computes nothing: allocations have addresses and sizes, but no memory.
///
/// Pointers, extents and shapes are checked as in every driver; reads return zeros.
///
/// ```
/// use polygrad_core::compute::{ComputeBackend, Unary};
/// use polygrad_core::{DType, ErrorKind, UnaryOp};
/// use polygrad_null::NullDriver;
///
/// # fn main() -> polygrad_core::Result<()> {
/// let driver = NullDriver::default();
/// driver.init()?;
/// // A terabyte is nothing.
/// let x = driver.alloc(1 << 40)?;
/// let call = Unary { op: UnaryOp::Exp, dtype: DType::F32, len: 1 << 38, input: x, output: x };
/// driver.unary(&call)?;
/// let error = driver.unary(&Unary { output: x.add(4), ..call }).unwrap_err();
/// assert_eq!((error.kind(), driver.stats().kernels), (ErrorKind::InvalidArgument, 1));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct NullDriver(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    initialized: bool,
    space: AddressSpace<()>,
    stats: DriverStats,
}

impl NullDriver {
    /// The counters.
    pub fn stats(&self) -> DriverStats {
        self.lock().stats
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self, name: &'static str) -> Result<MutexGuard<'_, State>> {
        let state = self.lock();
        if state.initialized {
            return Ok(state);
        }
        Err(
            Error::new(ErrorKind::NotInitialized, "the driver has not been initialized")
                .with_op(name)
                .with_device(self.name())
                .with_hint("call init first"),
        )
    }

    fn memory<T>(&self, name: &'static str, run: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        run(&mut *self.open(name)?).map_err(|error| error.with_op(name).with_device(self.name()))
    }

    fn kernel(&self, call: &Call<'_>) -> Result<()> {
        self.memory(call.name(), |state| {
            for operand in call.operands()? {
                state.space.operand(&operand)?;
            }
            state.stats.kernels += 1;
            Ok(())
        })
    }
}

impl Driver for NullDriver {
    const NAME: &'static str = "compute-null";
}

impl ComputeBackend for NullDriver {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn init(&self) -> Result<()> {
        self.lock().initialized = true;
        Ok(())
    }

    fn is_initialized(&self) -> bool {
        self.lock().initialized
    }

    fn capabilities(&self) -> DriverCapabilities {
        DriverCapabilities::new("nothing", DType::ALL)
    }

    fn supports(&self, _: Kernel, _: DType) -> bool {
        true
    }

    fn devices(&self) -> Vec<DeviceInfo> {
        vec![DeviceInfo {
            spec: Self::NAME.to_owned(),
            description: "computes nothing".to_owned(),
            availability: Availability::Available,
        }]
    }

    fn alloc(&self, bytes: usize) -> Result<DevicePtr> {
        self.memory("alloc", |state| {
            let ptr = state.space.insert(bytes, ())?;
            state.stats.live_allocations = state.space.len();
            state.stats.live_bytes = state.space.bytes();
            state.stats.peak_bytes = state.stats.peak_bytes.max(state.stats.live_bytes);
            Ok(ptr)
        })
    }

    fn free(&self, ptr: DevicePtr) -> Result<()> {
        self.memory("free", |state| {
            state.space.remove(ptr)?;
            state.stats.live_allocations = state.space.len();
            state.stats.live_bytes = state.space.bytes();
            Ok(())
        })
    }

    fn copy_htod(&self, dst: DevicePtr, src: &[u8]) -> Result<()> {
        self.memory("copy_htod", |state| match src.len() {
            0 => Ok(()),
            bytes => state.space.find(dst, bytes).map(|_| ()),
        })
    }

    fn copy_dtoh(&self, dst: &mut [u8], src: DevicePtr) -> Result<()> {
        self.memory("copy_dtoh", |state| {
            if !dst.is_empty() {
                state.space.find(src, dst.len())?;
            }
            dst.fill(0);
            Ok(())
        })
    }

    fn copy_dtod(&self, dst: DevicePtr, src: DevicePtr, bytes: usize) -> Result<()> {
        self.memory("copy_dtod", |state| {
            if bytes > 0 {
                state.space.find(src, bytes)?;
                state.space.find(dst, bytes)?;
            }
            Ok(())
        })
    }

    fn synchronize(&self) -> Result<()> {
        self.open("synchronize").map(drop)
    }

    polygrad_core::forward_calls!(kernel);
}
