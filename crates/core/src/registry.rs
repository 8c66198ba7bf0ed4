//! Finding a backend by name at run time.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use crate::{AnyDevice, DeviceSpec, Error, ErrorKind, Result};

/// Whether a device can be used, and why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Availability {
    /// It can.
    Available,
    /// It cannot, for this reason.
    Unavailable(String),
}

/// A device that a backend found, or the reason why it found none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The device string that opens it.
    pub spec: String,
    /// What it is, for people.
    pub description: String,
    /// Whether it can be used.
    pub availability: Availability,
}

type Probe = dyn Fn() -> Vec<DeviceInfo> + Send + Sync;
type Open = dyn Fn(&DeviceSpec) -> Result<AnyDevice> + Send + Sync;

/// A backend as the registry knows it.
pub struct BackendEntry {
    name: Cow<'static, str>,
    description: Cow<'static, str>,
    priority: Option<i32>,
    probe: Box<Probe>,
    open: Box<Open>,
}

impl BackendEntry {
    /// A backend that opens its devices with `open`. Until [`BackendEntry::with_probe`] says better, one device is listed: its name.
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
        Self {
            name,
            description,
            priority: None,
            probe: Box::new(move || vec![listed.clone()]),
            open: Box::new(open),
        }
    }

    /// A backend that this build or machine lacks, and why.
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

    /// How to list the devices.
    #[must_use]
    pub fn with_probe(mut self, probe: impl Fn() -> Vec<DeviceInfo> + Send + Sync + 'static) -> Self {
        self.probe = Box::new(probe);
        self
    }

    /// Lets `auto` choose this backend: the highest priority that opens wins.
    #[must_use]
    pub fn with_priority(mut self, priority: i32) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Its name, as in device strings.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is, for people.
    pub fn description(&self) -> &str {
        &self.description
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

/// Foreign engines may panic when a library is missing: for the user that is one more reason why they are absent.
fn guarded<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|panic| {
        let text = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned());
        format!("it panicked: {}", text.unwrap_or_default())
    })
}

/// A function that lists backends to register when [`Registry::global`] is first used. The facade submits one; other crates call
/// [`Registry::register`].
pub struct BuiltIn(pub fn() -> Vec<BackendEntry>);

inventory::collect!(BuiltIn);

/// The backends that can be named at run time.
#[derive(Default)]
pub struct Registry {
    entries: RwLock<Vec<Arc<BackendEntry>>>,
}

static GLOBAL: LazyLock<Registry> = LazyLock::new(|| {
    let registry = Registry::default();
    for built_in in inventory::iter::<BuiltIn> {
        for entry in built_in.0() {
            // Two facades in one program would list the same backends: the first ones stay.
            let _ = registry.register(entry);
        }
    }
    registry
});

impl Registry {
    /// The registry behind device strings, with the built-in backends.
    pub fn global() -> &'static Self {
        &GLOBAL
    }

    /// Adds a backend.
    ///
    /// # Errors
    /// When one of that name is there already, or the name cannot stand in a device string.
    pub fn register(&self, entry: BackendEntry) -> Result<()> {
        let name = entry.name.to_string();
        if name.is_empty() || name == "auto" || name.contains([':', ',', '=', ' ']) {
            return Err(Error::invalid(format!("{name:?} cannot name a backend")));
        }
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        if entries.iter().any(|known| known.name == name) {
            return Err(Error::invalid(format!(
                "a backend named {name:?} is registered already"
            )));
        }
        entries.push(Arc::new(entry));
        Ok(())
    }

    /// The backends, in the order in which they were registered.
    pub fn entries(&self) -> Vec<Arc<BackendEntry>> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Opens the device that a string names; `auto` takes the best backend that opens.
    ///
    /// # Errors
    /// When the string is malformed, the backend unknown or absent (the error lists those present, and for the others why not), or the
    /// device cannot be opened.
    pub fn open(&self, device: &str) -> Result<AnyDevice> {
        let spec: DeviceSpec = device.parse()?;
        let entries = self.entries();
        if spec.backend() == "auto" {
            return Self::open_best(&entries, &spec);
        }
        match entries.iter().find(|entry| entry.name == spec.backend()) {
            Some(entry) => entry.open(&spec).map_err(|error| {
                if error.kind() == ErrorKind::BackendUnavailable {
                    error.with_hint(overview(&entries))
                } else {
                    error
                }
            }),
            None => Err(Error::new(
                ErrorKind::BackendUnavailable,
                format!("there is no backend named {:?}", spec.backend()),
            )
            .with_hint(overview(&entries))),
        }
    }

    fn open_best(entries: &[Arc<BackendEntry>], spec: &DeviceSpec) -> Result<AnyDevice> {
        spec.expect(0, &[])?;
        let mut candidates: Vec<_> = entries.iter().filter(|entry| entry.priority.is_some()).collect();
        candidates.sort_by_key(|entry| std::cmp::Reverse(entry.priority));
        for entry in candidates {
            if let Ok(device) = entry.open(&entry.name.parse()?) {
                return Ok(device);
            }
        }
        Err(Error::new(ErrorKind::BackendUnavailable, "no backend could be opened").with_hint(overview(entries)))
    }
}

fn overview(entries: &[Arc<BackendEntry>]) -> String {
    let mut present = Vec::new();
    let mut absent = Vec::new();
    for entry in entries {
        let devices = entry.devices();
        if devices
            .iter()
            .any(|device| device.availability == Availability::Available)
        {
            present.push(entry.name.to_string());
        } else {
            let reason = devices.iter().find_map(|device| match &device.availability {
                Availability::Unavailable(reason) => Some(reason.as_str()),
                Availability::Available => None,
            });
            absent.push(format!("{} ({})", entry.name, reason.unwrap_or("no device found")));
        }
    }
    let list = |names: Vec<String>| {
        if names.is_empty() {
            "none".to_owned()
        } else {
            names.join(", ")
        }
    };
    let mut text = format!("available backends: {}", list(present));
    if !absent.is_empty() {
        text += &format!("; not available: {}", list(absent));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failing(_: &DeviceSpec) -> Result<AnyDevice> {
        Err(Error::new(ErrorKind::OutOfMemory, "no memory"))
    }

    #[test]
    fn unknown_and_absent_backends_are_explained() {
        let registry = Registry::default();
        registry.register(BackendEntry::new("here", "a test", failing)).unwrap();
        registry
            .register(BackendEntry::absent("gone", "a test", "feature gone is off"))
            .unwrap();
        let error = registry.open("there").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BackendUnavailable);
        let text = error.to_string();
        assert!(
            text.contains("\"there\"") && text.contains("available backends: here"),
            "{text}"
        );
        assert!(text.contains("gone (feature gone is off)"), "{text}");
        assert!(
            registry
                .open("gone")
                .unwrap_err()
                .to_string()
                .contains("feature gone is off")
        );
        assert_eq!(registry.open("here").unwrap_err().kind(), ErrorKind::OutOfMemory);
        assert!(registry.register(BackendEntry::new("here", "again", failing)).is_err());
        assert!(registry.register(BackendEntry::new("a:b", "bad", failing)).is_err());
        assert_eq!(registry.open("auto").unwrap_err().kind(), ErrorKind::BackendUnavailable);
    }

    #[test]
    fn a_panicking_backend_is_absent() {
        let registry = Registry::default();
        let entry =
            BackendEntry::new("bad", "a test", |_| panic!("library missing")).with_probe(|| panic!("no library"));
        registry.register(entry).unwrap();
        let error = registry.open("bad").unwrap_err();
        assert!(error.to_string().contains("library missing"));
        assert!(matches!(&registry.entries()[0].devices()[0].availability,
            Availability::Unavailable(reason) if reason.contains("no library")));
    }
}
