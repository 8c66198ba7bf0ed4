//! A device that fails on request.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polygrad_core::{Backend, Error, ErrorKind, Result};
use polygrad_tensor::Device;

use crate::{Call, Hooks, Wrapped};

/// How a device fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// One call runs out of memory; those after it do not.
    OutOfMemory,
    /// The device is lost: that call and all after it fail.
    DeviceLost,
}

impl Fault {
    /// Both.
    pub const ALL: [Self; 2] = [Self::OutOfMemory, Self::DeviceLost];

    /// The kind of the errors.
    pub const fn kind(self) -> ErrorKind {
        match self {
            Self::OutOfMemory => ErrorKind::OutOfMemory,
            Self::DeviceLost => ErrorKind::DeviceError,
        }
    }
}

/// A device wrapped around another one, in which the n-th call fails, to test that code running on it reports the error
/// and leaks nothing.
///
/// ```
/// use polygrad_conformance::{Fault, Faults, reference};
/// use polygrad_tensor::{ErrorKind, Result, Tensor};
///
/// # fn main() -> Result<()> {
/// let faults = Faults::over(&reference());
/// let x = Tensor::ones([2, 3], &faults.device())?;
/// faults.arm(2, Fault::OutOfMemory);
/// let error = x.exp()?.sum_all().unwrap_err();
/// assert_eq!((error.kind(), faults.struck()), (ErrorKind::OutOfMemory, Some("sum")));
/// assert_eq!(faults.live_tensors(), 1);
/// # Ok(())
/// # }
/// ```
pub struct Faults {
    wrapped: Wrapped,
    plan: Arc<Plan>,
}

#[derive(Default)]
struct Plan(Mutex<Progress>);

#[derive(Default)]
struct Progress {
    calls: u64,
    armed: Option<(u64, Fault)>,
    struck: Option<&'static str>,
}

impl Faults {
    /// Wraps a device, without failures at first.
    pub fn over<B: Backend>(device: &Device<B>) -> Self {
        let plan = Arc::new(Plan::default());
        Self {
            wrapped: Wrapped::new(device, Arc::clone(&plan)),
            plan,
        }
    }

    /// The device, to make tensors on.
    pub fn device(&self) -> Device {
        self.wrapped.device()
    }

    /// Makes the `n`-th [`Call`] from now fail, counted from 1. Resets the count.
    pub fn arm(&self, n: u64, fault: Fault) {
        *self.plan.lock() = Progress {
            armed: Some((n, fault)),
            ..Progress::default()
        };
    }

    /// Makes everything work again, and resets the count.
    pub fn disarm(&self) {
        *self.plan.lock() = Progress::default();
    }

    /// The number of calls since creation, arming or disarming, including failed ones.
    pub fn calls(&self) -> u64 {
        self.plan.lock().calls
    }

    /// The name of the first call that failed since it was armed: [`Call::name`].
    pub fn struck(&self) -> Option<&'static str> {
        self.plan.lock().struck
    }

    /// The number of live tensors of the device. Clones of a tensor count as one.
    pub fn live_tensors(&self) -> usize {
        self.wrapped.live_tensors()
    }
}

impl Plan {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hooks for Plan {
    fn before(&self, call: &Call<'_>) -> Result<()> {
        let mut progress = self.lock();
        progress.calls += 1;
        let calls = progress.calls;
        let fault = progress.armed.filter(|&(n, fault)| match fault {
            Fault::OutOfMemory => calls == n,
            Fault::DeviceLost => calls >= n,
        });
        let Some((n, fault)) = fault else {
            return Ok(());
        };
        progress.struck.get_or_insert(call.name());
        let kind = fault.kind();
        // Further details are added by the layers above.
        let message = format!("{} in {}, call {n}, as was asked for", kind.as_str(), call.name());
        Err(Error::new(kind, message))
    }
}
