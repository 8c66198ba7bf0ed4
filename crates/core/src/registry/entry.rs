//! Entries of the registry.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::{AnyDevice, DeviceSpec, Error, ErrorKind, Result, panic_message};

/// Whether a device can be used, and why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Availability {
    /// It can be used.
    Available,
    /// It cannot be used, for this reason.
    Unavailable(String),
}

/// A device that a backend found, or the reason why it found none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The device string that opens it.
    pub spec: String,
    /// A description for users.
    pub description: String,
    /// Whether it can be used.
    pub availability: Availability,
}

type Probe = dyn Fn() -> Vec<DeviceInfo> + Send + Sync;
type Open = dyn Fn(&DeviceSpec) -> Result<AnyDevice> + Send + Sync;
type Choose = dyn Fn() -> Result<String, String> + Send + Sync;

/// A backend that is registered, with its functions to list and open devices.
pub struct BackendEntry {
    pub(super) name: Cow<'static, str>,
    description: Cow<'static, str>,
    options: &'static str,
    pub(super) fix: Option<String>,
    pub(super) priority: Option<i32>,
    probe: Box<Probe>,
    open: Box<Open>,
    pub(super) choose: Box<Choose>,
}

impl BackendEntry {
    /// A backend that opens its devices with `open`. Without [`BackendEntry::with_probe`], one device is listed, under
    /// the backend's name.
    pub fn new(
        name: impl Into<Cow<'static, str>>,
        description: impl Into<Cow<'static, str>>,
        open: impl Fn(&DeviceSpec) -> Result<AnyDevice> + Send + Sync + 'static,
    ) -> Self {
        let (name, description) = (name.into(), description.into());
        let listed = DeviceInfo {
            spec: name.to_string(),
            description: description.to_string(),
            availability: Availability::Available,
        };
        let own = name.to_string();
        Self {
            name,
            description,
            options: "",
            fix: None,
            priority: None,
            probe: Box::new(move || vec![listed.clone()]),
            open: Box::new(open),
            choose: Box::new(move || Ok(own.clone())),
        }
    }

    /// A backend that this build or machine lacks, and why. [`BackendEntry::with_fix`] adds what to do about it.
    pub fn absent(
        name: impl Into<Cow<'static, str>>,
        description: impl Into<Cow<'static, str>>,
        reason: impl Into<String>,
    ) -> Self {
        let (name, reason) = (name.into(), reason.into());
        let unavailable = DeviceInfo {
            spec: name.to_string(),
            description: String::new(),
            availability: Availability::Unavailable(reason.clone()),
        };
        Self::new(name, description, move |spec| {
            Err(Error::new(
                ErrorKind::BackendUnavailable,
                format!("backend {} is not available: {reason}", spec.backend()),
            ))
        })
        .with_probe(move || vec![unavailable.clone()])
    }

    /// Sets the function that lists the devices.
    #[must_use]
    pub fn with_probe(mut self, probe: impl Fn() -> Vec<DeviceInfo> + Send + Sync + 'static) -> Self {
        self.probe = Box::new(probe);
        self
    }

    /// Describes the options of its device strings for users: `fusion=off: nothing is fused`.
    #[must_use]
    pub fn with_options(mut self, options: &'static str) -> Self {
        self.options = options;
        self
    }

    /// Sets the hint of the error if the backend is not available, unless the error has its own.
    #[must_use]
    pub fn with_fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    /// Lets `auto` choose this backend: the highest priority that opens wins.
    #[must_use]
    pub fn with_priority(mut self, priority: i32) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Sets the function that returns the device string that `auto` opens, or why it should open none. Default: the
    /// backend's name.
    #[must_use]
    pub fn with_choice(mut self, choose: impl Fn() -> Result<String, String> + Send + Sync + 'static) -> Self {
        self.choose = Box::new(choose);
        self
    }

    /// Its name, as in device strings.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A description for users.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The options of its device strings, described for users; empty if there are none.
    pub fn options(&self) -> &str {
        self.options
    }

    /// Its devices. A probe that panics is reported as a backend that is not available.
    pub fn devices(&self) -> Vec<DeviceInfo> {
        guarded(|| (self.probe)()).unwrap_or_else(|reason| {
            vec![DeviceInfo {
                spec: self.name.to_string(),
                description: String::new(),
                availability: Availability::Unavailable(reason),
            }]
        })
    }

    /// Why none of its devices can be used; `None` if one can.
    pub(super) fn absence(&self) -> Option<String> {
        let devices = self.devices();
        let reasons = devices.into_iter().map(|device| match device.availability {
            Availability::Available => None,
            Availability::Unavailable(reason) => Some(reason),
        });
        let reasons: Option<Vec<String>> = reasons.collect();
        let first = reasons?.into_iter().next();
        Some(first.unwrap_or_else(|| "no device found".to_owned()))
    }

    /// Opens a device.
    ///
    /// # Errors
    /// Those of the backend; a panic in it is an error too.
    pub fn open(&self, spec: &DeviceSpec) -> Result<AnyDevice> {
        guarded(|| (self.open)(spec)).unwrap_or_else(|reason| {
            Err(Error::new(
                ErrorKind::BackendUnavailable,
                format!("backend {} could not be started: {reason}", self.name),
            ))
        })
    }
}

/// Runs `f`, and returns a panic as an error: third-party engines may panic when a library is missing, which for the
/// user is one more reason for their absence.
pub(super) fn guarded<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(f))
        .map_err(|panic| format!("it panicked: {}", panic_message(&*panic).unwrap_or_default()))
}
