//! The device: its threads and kernels.

use std::fmt;
use std::sync::{Mutex, OnceLock, PoisonError};

use polygrad_core::{DeviceSpec, Error, ErrorKind, Result};

use crate::simd::StorePolicy;
use crate::{Level, ThreadPool, available_threads};

/// No machine has more cores, so a larger number of threads must be a typing error.
const MAX_THREADS: usize = 1024;

/// Nanoseconds of work in one parallel chunk: much more than the pool's overhead, but small enough that all cores
/// finish at about the same time.
const CHUNK_NS: f32 = 5_000.0;

/// A set of kernels. All sets give the same results within rounding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kernels {
    /// Plain loops, functions computed in f64, and matrix products as three loops: slow, the reference for the others.
    Scalar,
    /// Vector instructions, as detected at run time.
    #[default]
    Simd,
    /// Like `Simd`, but with matrix products by a CBLAS library. Needs the cargo feature `blas`.
    Blas,
}

impl Kernels {
    const ALL: [Self; 3] = [Self::Scalar, Self::Simd, Self::Blas];

    /// Its name in device strings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Simd => "simd",
            Self::Blas => "blas",
        }
    }

    const fn is_built(self) -> bool {
        !matches!(self, Self::Blas) || cfg!(feature = "blas")
    }

    /// The names of the sets that are part of this build.
    pub fn built_names() -> String {
        let names: Vec<_> = Self::ALL.into_iter().filter(|k| k.is_built()).map(Self::name).collect();
        names.join(", ")
    }
}

/// The home of CPU tensors: host memory, with the threads and kernels that compute there.
///
/// There is one device for each choice of options; it lives as long as the process, and its threads sleep while there
/// is nothing to do. The handle is a pointer. An op may combine tensors of different CPU devices; it then runs on the
/// device of its first operand.
#[derive(Clone, Copy)]
pub struct CpuDevice(&'static Inner);

struct Inner {
    requested: usize,
    kernels: Kernels,
    level: Level,
    pool: ThreadPool,
}

static DEVICES: Mutex<Vec<CpuDevice>> = Mutex::new(Vec::new());

impl CpuDevice {
    /// A device on which `threads` threads compute with a set of kernels.
    ///
    /// # Errors
    /// If `threads` is 0 or above 1,024, or the kernels are not part of this build.
    pub fn new(threads: usize, kernels: Kernels) -> Result<Self> {
        if !(1..=MAX_THREADS).contains(&threads) {
            return Err(Error::invalid(format!(
                "threads={threads} is outside 1..={MAX_THREADS}"
            )));
        }
        if !kernels.is_built() {
            return Err(Error::new(
                ErrorKind::BackendUnavailable,
                format!("kernels={} is not part of this build", kernels.name()),
            )
            .with_hint(format!(
                "in Cargo.toml, give polygrad features = [\"blas\"], or choose one of: {}",
                Kernels::built_names()
            )));
        }
        let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = devices
            .iter()
            .find(|d| d.0.requested == threads && d.0.kernels == kernels)
        {
            return Ok(*device);
        }
        let device = Self(Box::leak(Box::new(Inner {
            requested: threads,
            kernels,
            level: Level::detect(),
            pool: ThreadPool::new(threads),
        })));
        devices.push(device);
        Ok(device)
    }

    /// The device for `cpu`, `cpu:threads=N` and `cpu:kernels=scalar|simd|blas`. The default of `threads` is the number
    /// that the system lets this process run at once; the default of `kernels` is `simd`.
    ///
    /// # Errors
    /// If the string asks for anything else.
    pub fn open(spec: &DeviceSpec) -> Result<Self> {
        spec.expect(0, &["threads", "kernels"])?;
        let threads = match spec.option("threads") {
            None => available_threads(),
            Some(text) => text
                .parse()
                .ok()
                .filter(|threads| (1..=MAX_THREADS).contains(threads))
                .ok_or_else(|| {
                    spec.malformed(format!("threads={text} is no number from 1 to {MAX_THREADS}"))
                        .with_hint("write it like cpu:threads=2")
                })?,
        };
        let kernels = match spec.option("kernels") {
            None => Kernels::default(),
            Some(text) => Kernels::ALL.into_iter().find(|k| k.name() == text).ok_or_else(|| {
                spec.malformed(format!("there are no kernels named {text:?}"))
                    .with_hint(format!("one of: {}", Kernels::built_names()))
            })?,
        };
        Self::new(threads, kernels)
    }

    /// The number of computing threads, including the calling one. It is lower than requested if the system refused to
    /// start some.
    #[inline]
    pub fn threads(self) -> usize {
        self.0.pool.threads()
    }

    /// The set of kernels.
    #[inline]
    pub fn kernels(self) -> Kernels {
        self.0.kernels
    }

    /// The detected instruction set, which the `scalar` kernels do not use.
    #[inline]
    pub fn level(self) -> Level {
        self.0.level
    }

    /// The instruction set of the vector kernels; `None` for the `scalar` kernels.
    #[inline]
    pub fn vectors(self) -> Option<Level> {
        match self.0.kernels {
            Kernels::Scalar => None,
            _ => Some(self.0.level),
        }
    }

    /// The store policy for element-wise loops with results of `bytes` bytes that are not among the operands.
    #[inline]
    pub fn store_policy(self, bytes: usize) -> StorePolicy {
        StorePolicy::new(self.vectors(), bytes)
    }

    /// Calls `task` for ranges that make up `0..n`, in parallel if it pays. An item costs about `ns` nanoseconds. The
    /// ranges depend only on `n` and `ns`, never on the number of threads, and begin at multiples of `multiple`.
    #[inline]
    pub fn split(self, n: usize, ns: f32, multiple: usize, task: impl Fn(usize, usize) + Sync) {
        if n as f32 * ns < 2.0 * CHUNK_NS {
            if n > 0 {
                task(0, n);
            }
            return;
        }
        self.split_dyn(n, ns, multiple, &task);
    }

    fn split_dyn(self, n: usize, ns: f32, multiple: usize, task: &(dyn Fn(usize, usize) + Sync)) {
        let chunk = ((CHUNK_NS / ns) as usize).max(1).next_multiple_of(multiple);
        self.0.pool.run_dyn(n.div_ceil(chunk), &|i| {
            let start = i * chunk;
            task(start, n.min(start + chunk));
        });
    }

    /// Calls `task(i)` for `i` in `0..n`, in parallel if that pays for calls of `ns` nanoseconds.
    #[inline]
    pub fn each(self, n: usize, ns: f32, task: impl Fn(usize) + Sync) {
        self.split(n, ns, 1, |start, end| (start..end).for_each(&task));
    }

    /// Does `count` products, `ns` nanoseconds each: side by side when they are small, else one after another,
    /// each on all threads.
    pub fn try_each(self, count: usize, ns: f32, one: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
        if count == 1 || ns > 2_000_000.0 {
            return (0..count).try_for_each(one);
        }
        let failed = OnceLock::new();
        self.each(count, ns.max(50.0), |i| {
            if let Err(error) = one(i) {
                let _ = failed.set(error);
            }
        });
        failed.into_inner().map_or(Ok(()), Err)
    }
}

impl Default for CpuDevice {
    /// All cores, vector kernels.
    fn default() -> Self {
        let threads = available_threads().clamp(1, MAX_THREADS);
        match Self::new(threads, Kernels::default()) {
            Ok(device) => device,
            Err(_) => unreachable!("vector kernels are in every build and the threads are in range"),
        }
    }
}

impl PartialEq for CpuDevice {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for CpuDevice {}

impl fmt::Display for CpuDevice {
    /// The device string, without options that have their default.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cpu")?;
        let mut separator = ':';
        if self.0.requested != available_threads() {
            write!(f, "{separator}threads={}", self.0.requested)?;
            separator = ',';
        }
        if self.0.kernels != Kernels::default() {
            write!(f, "{separator}kernels={}", self.0.kernels.name())?;
        }
        Ok(())
    }
}

impl fmt::Debug for CpuDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuDevice({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(text: &str) -> Result<CpuDevice> {
        CpuDevice::open(&text.parse()?)
    }

    #[test]
    fn opens_what_device_strings_ask_for() {
        let device = open("cpu:threads=2,kernels=scalar").unwrap();
        assert_eq!((device.threads(), device.kernels()), (2, Kernels::Scalar));
        assert_eq!(device, open("cpu:kernels=scalar:threads=2").unwrap());
        assert_ne!(device, open("cpu").unwrap());
        assert_eq!(open("cpu").unwrap(), CpuDevice::default());
        assert_eq!(open("cpu").unwrap().to_string(), "cpu");
        let odd = open("cpu:threads=7").unwrap();
        assert_eq!(open(&odd.to_string()).unwrap(), odd);
        assert_eq!(odd.to_string(), "cpu:threads=7");
    }

    #[test]
    fn says_what_is_wrong_with_a_device_string() {
        for (text, message) in [
            ("cpu:threads=0", "threads=0 is no number from 1 to 1024"),
            ("cpu:threads=two", "threads=two is no number"),
            ("cpu:kernels=fast", "one of: scalar, simd"),
            ("cpu:thread=2", "it takes threads, kernels"),
            ("cpu:0", "\"0\" means nothing"),
        ] {
            let error = open(text).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
        if !cfg!(feature = "blas") {
            let error = open("cpu:kernels=blas").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BackendUnavailable);
        }
    }

    #[test]
    fn chunks_do_not_depend_on_the_threads() {
        let ranges = |threads| {
            let ranges = Mutex::new(Vec::new());
            let device = CpuDevice::new(threads, Kernels::Simd).unwrap();
            device.split(1_000_003, 0.3, 64, |start, end| {
                ranges.lock().unwrap().push((start, end))
            });
            let mut ranges = ranges.into_inner().unwrap();
            ranges.sort_unstable();
            ranges
        };
        let one = ranges(1);
        assert!(one.len() > 1 && one.windows(2).all(|pair| pair[0].1 == pair[1].0));
        assert_eq!((one[0].0, one[one.len() - 1].1), (0, 1_000_003));
        assert_eq!(one, ranges(3));
    }
}
