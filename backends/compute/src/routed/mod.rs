//! Two drivers as one: calls with little work go to one, the rest to the other.

mod held;
mod sides;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use polygrad_core::compute::{Access, Call, ComputeBackend, DevicePtr, DriverCapabilities, Kernel, Operand};
use polygrad_core::{DType, DeviceInfo, Error, ErrorKind, Result};

use sides::{Memory, Offers, Place, Sides};

/// One of the two drivers of a [`Routed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Small,
    Large,
}

impl Side {
    const fn index(self) -> usize {
        match self {
            Self::Small => 0,
            Self::Large => 1,
        }
    }

    const fn other(self) -> Self {
        match self {
            Self::Small => Self::Large,
            Self::Large => Self::Small,
        }
    }
}

/// What a [`Routed`] has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RouteStats {
    /// Calls that the driver for little work ran.
    pub small: u64,
    /// Calls that the other one ran.
    pub large: u64,
    /// Bytes that were copied from one to the other, because a call needed them there.
    pub moved_bytes: u64,
}

/// Counts, shared with whoever wants to see them.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    calls: [AtomicU64; 2],
    moved: AtomicU64,
}

impl Routes {
    pub(crate) fn stats(&self) -> RouteStats {
        let [small, large] = &self.calls;
        RouteStats {
            small: small.load(Ordering::Relaxed),
            large: large.load(Ordering::Relaxed),
            moved_bytes: self.moved.load(Ordering::Relaxed),
        }
    }
}

/// Two drivers as one: calls with less work than a threshold run on the first, such as the CPU's kernels, where starting a kernel costs
/// nothing; the rest on the second, such as a GPU's. Work is counted by [`Call::work`]; the work of a copy are its bytes, and a copy within the
/// device is made where its source is. What the driver of choice does not run, the other one does.
///
/// Memory lies with the second driver and, once a call has needed it there, also with the first. It is known of each byte who holds its
/// value: what a call reads and its driver lacks is copied over, through the host, and that is all that is copied.
///
/// ```
/// use polygrad_compute::Routed;
/// use polygrad_core::compute::{ComputeBackend, Fill};
/// use polygrad_core::{DType, Scalar};
/// use polygrad_cpu::CpuDriver;
///
/// # fn main() -> polygrad_core::Result<()> {
/// let driver = Routed::new(CpuDriver::default(), CpuDriver::default(), 100);
/// driver.init()?;
/// let output = driver.alloc(1000)?;
/// for len in [99, 100] {
///     driver.fill(&Fill { dtype: DType::U8, len, value: Scalar::Int(7), output })?;
/// }
/// assert_eq!((driver.stats().small, driver.stats().large), (1, 1));
/// assert_eq!(driver.name(), "compute-cpu:host-below=100");
/// # driver.free(output)
/// # }
/// ```
#[derive(Debug)]
pub struct Routed {
    name: String,
    sides: Sides,
    below: u64,
    offers: Arc<OnceLock<Offers>>,
    memory: Arc<Mutex<Memory>>,
    routes: Arc<Routes>,
}

/// A device string with one more option.
pub(crate) fn with_option(name: &str, option: impl std::fmt::Display) -> String {
    let separator = if name.contains('=') { ',' } else { ':' };
    format!("{name}{separator}{option}")
}

impl Routed {
    /// Over two drivers of their own, for nothing but this: `small` gets the calls of less work than `below`. Its name is that of `large`,
    /// with the option `host-below`.
    pub fn new(small: impl ComputeBackend + 'static, large: impl ComputeBackend + 'static, below: u64) -> Self {
        Self::over(Box::new(small), Box::new(large), below)
    }

    pub(crate) fn over(small: Box<dyn ComputeBackend>, large: Box<dyn ComputeBackend>, below: u64) -> Self {
        Self {
            name: with_option(large.name(), format_args!("host-below={below}")),
            sides: Sides::new(small, large),
            below,
            offers: Arc::default(),
            memory: Arc::default(),
            routes: Arc::default(),
        }
    }

    /// What it has done so far, its queues included.
    pub fn stats(&self) -> RouteStats {
        self.routes.stats()
    }

    pub(crate) fn routes(&self) -> Arc<Routes> {
        Arc::clone(&self.routes)
    }

    /// What both offer, and the memory, which a call has to itself.
    fn open(&self, op: &'static str) -> Result<(&Offers, MutexGuard<'_, Memory>)> {
        let Some(offers) = self.offers.get() else {
            return Err(
                Error::new(ErrorKind::NotInitialized, "the driver has not been initialized")
                    .with_op(op)
                    .with_device(&self.name)
                    .with_hint("call init first"),
            );
        };
        Ok((offers, self.memory.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Something about memory.
    fn memory<T>(&self, op: &'static str, run: impl FnOnce(&mut Memory) -> Result<T>) -> Result<T> {
        let (_, mut memory) = self.open(op)?;
        run(&mut memory).map_err(|error| self.about(op, error))
    }

    /// An error of a call. One that comes from a driver has its op and its device already.
    fn about(&self, op: &'static str, error: Error) -> Error {
        let error = if error.op().is_some() { error } else { error.with_op(op) };
        error.with_device(&self.name)
    }

    fn side(&self, work: u64) -> Side {
        if work < self.below { Side::Small } else { Side::Large }
    }

    fn kernel(&self, call: &Call<'_>) -> Result<()> {
        let (offers, mut memory) = self.open(call.name())?;
        self.route(call, offers, &mut memory)
            .map_err(|error| self.about(call.name(), error))
    }

    /// A call that computes, on the side that its work is for or, if that does not run it, on the other.
    fn route(&self, call: &Call<'_>, offers: &Offers, memory: &mut Memory) -> Result<()> {
        let operands = located(memory, call.operands()?)?;
        let first = self.side(call.work()?);
        let mut declined = None;
        for side in [first, first.other()] {
            let dtypes = &offers[side.index()].dtypes;
            let holds = operands.iter().all(|(operand, _)| dtypes.contains(&operand.dtype));
            if !holds || !call.is_supported(self.sides.of(side)) {
                continue;
            }
            let run = |driver: &dyn ComputeBackend, ptrs: &[DevicePtr]| call.run_at(driver, ptrs);
            match self.run(side, memory, &operands, run) {
                Err(error) if error.kind() == ErrorKind::Unsupported => declined = declined.or(Some(error)),
                done => return done,
            }
        }
        Err(declined.unwrap_or_else(|| Error::unsupported("neither driver runs it")))
    }

    fn run(
        &self,
        side: Side,
        memory: &mut Memory,
        operands: &[(Operand, Option<Place>)],
        call: impl FnOnce(&dyn ComputeBackend, &[DevicePtr]) -> Result<()>,
    ) -> Result<()> {
        self.sides.run(side, memory, operands, &self.routes.moved, call)?;
        self.routes.calls[side.index()].fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// Operands, and where each is; nowhere if it has no elements.
fn located(memory: &Memory, operands: Vec<Operand>) -> Result<Vec<(Operand, Option<Place>)>> {
    let all = operands.into_iter().map(|operand| {
        let place = memory.operand(&operand)?.map(|(base, at)| Place {
            base,
            at,
            bytes: at + operand.span.start..at + operand.span.end,
        });
        Ok((operand, place))
    });
    all.collect()
}

/// Bytes that are copied from or to.
fn bytes(name: &'static str, ptr: DevicePtr, bytes: usize, access: Access) -> Operand {
    Operand {
        name,
        ptr,
        dtype: DType::U8,
        span: 0..bytes,
        elements: bytes,
        access,
    }
}

impl ComputeBackend for Routed {
    fn name(&self) -> &str {
        &self.name
    }

    fn init(&self) -> Result<()> {
        self.sides.both().try_for_each(|driver| driver.init())?;
        let [small, large] = [Side::Small, Side::Large].map(|side| self.sides.of(side).capabilities());
        self.offers.get_or_init(|| [small, large]);
        Ok(())
    }

    fn is_initialized(&self) -> bool {
        self.offers.get().is_some()
    }

    fn capabilities(&self) -> DriverCapabilities {
        let [small, mut both] = [Side::Small, Side::Large].map(|side| self.sides.of(side).capabilities());
        both.device = format!("{}; below {}: {}", both.device, self.below, small.device);
        let added = small.dtypes.iter().filter(|dtype| !both.dtypes.contains(dtype));
        both.dtypes = both.dtypes.iter().chain(added).copied().collect();
        both.asynchronous |= small.asynchronous;
        both.unified_memory &= small.unified_memory;
        both.deterministic &= small.deterministic;
        both.max_buffer = both.max_buffer.into_iter().chain(small.max_buffer).min();
        both.max_elementwise_views = both.max_elementwise_views.min(small.max_elementwise_views);
        both
    }

    fn supports(&self, kernel: Kernel, dtype: DType) -> bool {
        let has = |driver: &dyn ComputeBackend, dtype| driver.supports(kernel, dtype);
        match kernel {
            Kernel::Queues => self.sides.both().all(|driver| has(driver, dtype)),
            // The values of a program may be of any of these dtypes at once, so all of them have to be one driver's.
            Kernel::Elementwise => {
                let count =
                    |driver: &dyn ComputeBackend| DType::ALL.iter().filter(|&&dtype| has(driver, dtype)).count();
                let [small, large] = [self.sides.of(Side::Small), self.sides.of(Side::Large)];
                has(if count(large) >= count(small) { large } else { small }, dtype)
            }
            _ => self.sides.both().any(|driver| has(driver, dtype)),
        }
    }

    fn devices(&self) -> Vec<DeviceInfo> {
        self.sides.of(Side::Large).devices()
    }

    fn alloc(&self, bytes: usize) -> Result<DevicePtr> {
        self.memory("alloc", |memory| self.sides.alloc(memory, bytes))
    }

    fn free(&self, ptr: DevicePtr) -> Result<()> {
        self.memory("free", |memory| self.sides.free(memory, ptr))
    }

    fn copy_htod(&self, dst: DevicePtr, src: &[u8]) -> Result<()> {
        self.memory("copy_htod", |memory| {
            let operands = located(memory, vec![bytes("dst", dst, src.len(), Access::Write)])?;
            if src.is_empty() {
                return Ok(());
            }
            let copy = |driver: &dyn ComputeBackend, ptrs: &[DevicePtr]| driver.copy_htod(ptrs[0], src);
            let side = self.side(src.len() as u64);
            self.sides.run(side, memory, &operands, &self.routes.moved, copy)
        })
    }

    fn copy_dtoh(&self, dst: &mut [u8], src: DevicePtr) -> Result<()> {
        self.memory("copy_dtoh", |memory| match dst.is_empty() {
            true => Ok(()),
            false => self.sides.copy_dtoh(memory, dst, src),
        })
    }

    fn copy_dtod(&self, dst: DevicePtr, src: DevicePtr, count: usize) -> Result<()> {
        self.memory("copy_dtod", |memory| {
            let from = bytes("src", src, count, Access::Read);
            let operands = located(memory, vec![from, bytes("dst", dst, count, Access::Write)])?;
            let Some(source) = &operands[0].1 else { return Ok(()) };
            let side = Sides::holder(memory, source)?.unwrap_or_else(|| self.side(count as u64));
            self.run(side, memory, &operands, |driver, ptrs| {
                driver.copy_dtod(ptrs[1], ptrs[0], count)
            })
        })
    }

    fn synchronize(&self) -> Result<()> {
        self.memory("synchronize", |_| self.sides.synchronize())
    }

    fn new_queue(&self) -> Result<Box<dyn ComputeBackend>> {
        self.memory("new_queue", |_| Ok(()))?;
        let [small, large] = [Side::Small, Side::Large].map(|side| self.sides.of(side).new_queue());
        Ok(Box::new(Self {
            name: self.name.clone(),
            sides: Sides::new(small?, large?),
            below: self.below,
            offers: Arc::clone(&self.offers),
            memory: Arc::clone(&self.memory),
            routes: Arc::clone(&self.routes),
        }))
    }

    polygrad_core::forward_calls!(kernel);
}
