//! A driver that records its calls.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polygrad_core::Result;
use polygrad_core::compute::ComputeBackend;

use super::{DriverCall, DriverHooks, Hooked};

/// A driver wrapped around another one that records its calls.
///
/// ```
/// use polygrad_conformance::driver::Recorder;
/// use polygrad_core::compute::{ComputeBackend, Unary};
/// use polygrad_core::{DType, UnaryOp};
/// use polygrad_null::NullDriver;
///
/// # fn main() -> polygrad_core::Result<()> {
/// let driver = Recorder::over(NullDriver::default());
/// driver.init()?;
/// let x = driver.alloc(8)?;
/// driver.unary(&Unary { op: UnaryOp::Exp, dtype: DType::F32, len: 2, input: x, output: x })?;
/// assert_eq!(driver.hooks().calls(), ["init", "alloc", "unary exp"]);
/// assert_eq!(driver.hooks().kernels(), 1);
/// # Ok(())
/// # }
/// ```
pub type Recorder<D> = Hooked<D, Log>;

impl<D: ComputeBackend + 'static> Recorder<D> {
    /// Wraps a driver, with an empty list.
    pub fn over(driver: D) -> Self {
        Self::new(driver, Arc::default())
    }
}

/// The list of a [`Recorder`].
#[derive(Debug, Default)]
pub struct Log(Mutex<Vec<(String, bool)>>);

impl Log {
    fn lock(&self) -> MutexGuard<'_, Vec<(String, bool)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every call in order: the method's name and, if the method is generic, what was computed: `elementwise
    /// mul+add+relu`.
    pub fn calls(&self) -> Vec<String> {
        self.lock().iter().map(|(name, _)| name.clone()).collect()
    }

    /// How often each call was made.
    pub fn counts(&self) -> BTreeMap<String, usize> {
        let mut out = BTreeMap::new();
        for name in self.calls() {
            *out.entry(name).or_default() += 1;
        }
        out
    }

    /// How many of them launch a kernel: [`DriverCall::is_kernel`].
    pub fn kernels(&self) -> usize {
        self.lock().iter().filter(|(_, kernel)| *kernel).count()
    }

    /// Clears the list.
    pub fn clear(&self) {
        self.lock().clear();
    }
}

impl DriverHooks for Log {
    fn before(&self, call: &DriverCall<'_>) -> Result<()> {
        let name = match call.detail() {
            Some(detail) => format!("{} {detail}", call.name()),
            None => call.name().to_owned(),
        };
        self.lock().push((name, call.is_kernel()));
        Ok(())
    }
}
