//! A driver that fails on request.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polygrad_core::compute::ComputeBackend;
use polygrad_core::{Error, ErrorKind, Result};

use super::{DriverCall, DriverHooks, Hooked};

/// A driver wrapped around another one, in which a chosen call fails.
///
/// ```
/// use polygrad_conformance::driver::{DriverFault, FaultyDriver};
/// use polygrad_core::ErrorKind;
/// use polygrad_core::compute::ComputeBackend;
/// use polygrad_null::NullDriver;
///
/// # fn main() -> polygrad_core::Result<()> {
/// let driver = FaultyDriver::over(NullDriver::default());
/// driver.init()?;
/// driver.hooks().arm(Some("alloc"), 2, DriverFault::Once(ErrorKind::OutOfMemory));
/// driver.alloc(1)?;
/// assert_eq!(driver.alloc(1).unwrap_err().kind(), ErrorKind::OutOfMemory);
/// driver.alloc(1)?;
/// driver.hooks().arm(None, 1, DriverFault::Lost);
/// assert_eq!(driver.synchronize().unwrap_err().kind(), ErrorKind::DeviceError);
/// assert_eq!(driver.alloc(1).unwrap_err().kind(), ErrorKind::DeviceError);
/// # Ok(())
/// # }
/// ```
pub type FaultyDriver<D> = Hooked<D, FaultPlan>;

impl<D: ComputeBackend + 'static> FaultyDriver<D> {
    /// Wraps a driver, without failures at first.
    pub fn over(driver: D) -> Self {
        Self::new(driver, Arc::default())
    }
}

/// How a [`FaultyDriver`] fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverFault {
    /// One call fails with an error of this kind; those after it do not.
    Once(ErrorKind),
    /// The device is lost: that call fails with [`ErrorKind::DeviceError`], and so do all calls after it.
    Lost,
}

/// When and how a [`FaultyDriver`] fails.
#[derive(Debug, Default)]
pub struct FaultPlan(Mutex<Progress>);

#[derive(Debug, Default)]
struct Progress {
    name: Option<&'static str>,
    counted: u64,
    armed: Option<(u64, DriverFault)>,
    struck: Option<&'static str>,
}

impl FaultPlan {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the `n`-th call from now fail, counted from 1 among those of a name ([`DriverCall::name`]) or among all.
    /// Resets the count.
    pub fn arm(&self, name: Option<&'static str>, n: u64, fault: DriverFault) {
        *self.lock() = Progress {
            name,
            armed: Some((n, fault)),
            ..Progress::default()
        };
    }

    /// Makes everything work again, and resets the count.
    pub fn disarm(&self) {
        *self.lock() = Progress::default();
    }

    /// The number of calls with the armed name since creation, arming or disarming, including failed ones.
    pub fn calls(&self) -> u64 {
        self.lock().counted
    }

    /// The name of the first call that failed since it was armed.
    pub fn struck(&self) -> Option<&'static str> {
        self.lock().struck
    }
}

impl DriverHooks for FaultPlan {
    fn before(&self, call: &DriverCall<'_>) -> Result<()> {
        let mut progress = self.lock();
        let lost = matches!(progress.armed, Some((_, DriverFault::Lost))) && progress.struck.is_some();
        let counts = progress.name.is_none_or(|name| name == call.name());
        if counts {
            progress.counted += 1;
        }
        let Some((n, fault)) = progress.armed else {
            return Ok(());
        };
        let struck = counts && progress.counted == n;
        if !lost && !struck {
            return Ok(());
        }
        progress.struck.get_or_insert(call.name());
        let kind = match fault {
            DriverFault::Once(kind) => kind,
            DriverFault::Lost => ErrorKind::DeviceError,
        };
        Err(Error::new(
            kind,
            format!("{} in {}, as was asked for", kind.as_str(), call.name()),
        ))
    }
}
