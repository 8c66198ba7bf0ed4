//! Finds a backend by name at run time.

mod auto;
mod entry;

use std::fmt;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

pub use auto::Candidate;
use auto::{Wanted, candidates};
pub use entry::{Availability, BackendEntry, DeviceInfo};

use crate::{AnyDevice, DeviceSpec, Error, ErrorKind, Result, nearest};

/// A function that lists backends to register when [`Registry::global`] is first used. The facade submits one; other
/// crates call [`Registry::register`].
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
            // Two facades in one program list the same backends; the first registration wins.
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
    /// When one of that name is registered already, or the name cannot be part of a device string.
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

    /// Opens the device that a string names. `auto` opens the backend of the highest priority that works,
    /// `auto:dtype=f64` the one that also has that dtype.
    ///
    /// # Errors
    /// When the string is malformed, the backend is unknown (the error suggests a similar name, or else lists the
    /// available backends, and why the others are not) or absent (the error says why, and lists the available ones), or
    /// the device cannot be opened.
    pub fn open(&self, device: &str) -> Result<AnyDevice> {
        let spec: DeviceSpec = device.parse()?;
        let entries = self.entries();
        if spec.backend() == "auto" {
            return Self::open_best(&entries, &spec);
        }
        match entries.iter().find(|entry| entry.name == spec.backend()) {
            Some(entry) => entry.open(&spec).map_err(|error| {
                if error.kind() != ErrorKind::BackendUnavailable {
                    return error;
                }
                let present = Overview::new(&entries).present();
                error.with_hint(match &entry.fix {
                    Some(fix) => format!("{fix}; {present}"),
                    None => present,
                })
            }),
            None => {
                let overview = Overview::new(&entries);
                let (wanted, names) = (spec.backend(), || entries.iter().map(|entry| entry.name()));
                let same = names().find(|name| name.eq_ignore_ascii_case(wanted));
                // In a word of three letters, one different letter makes another word: gpu is not a typo of cpu.
                let like = || (wanted.len() > 3).then(|| nearest(wanted, names())).flatten();
                let hint = match same.or_else(like) {
                    Some(name) => format!("perhaps {name}; {}", overview.present()),
                    None => overview.to_string(),
                };
                let text = format!("there is no backend named {:?}", spec.backend());
                Err(Error::new(ErrorKind::BackendUnavailable, text).with_hint(hint))
            }
        }
    }

    /// The candidates of `auto`, in the order in which it tries them. It opens the first that is not passed over.
    ///
    /// # Errors
    /// When the string does not begin with `auto`.
    pub fn explain(&self, device: &str) -> Result<Vec<Candidate>> {
        let wanted = Wanted::parse(&device.parse()?)?;
        Ok(candidates(&self.entries())
            .into_iter()
            .map(|entry| match wanted.open(&entry) {
                Ok((spec, _)) => Candidate {
                    spec,
                    passed_over: None,
                },
                Err(reason) => Candidate {
                    spec: entry.name.to_string(),
                    passed_over: Some(reason),
                },
            })
            .collect())
    }

    fn open_best(entries: &[Arc<BackendEntry>], spec: &DeviceSpec) -> Result<AnyDevice> {
        let wanted = Wanted::parse(spec)?;
        let mut reasons = Vec::new();
        for entry in candidates(entries) {
            match wanted.open(&entry) {
                Ok((_, device)) => return Ok(device),
                Err(reason) => reasons.push(format!("{}: {reason}", entry.name)),
            }
        }
        let message = match &reasons[..] {
            [] => "no backend lets itself be chosen".to_owned(),
            reasons => format!("no backend fits {spec}: {}", reasons.join("; ")),
        };
        Err(Error::new(ErrorKind::BackendUnavailable, message).with_hint(Overview::new(entries).to_string()))
    }
}

/// Which backends can be used, and why the others cannot.
struct Overview {
    present: Vec<String>,
    /// Backends by the reason of their absence.
    absent: Vec<(String, Vec<String>)>,
}

impl Overview {
    fn new(entries: &[Arc<BackendEntry>]) -> Self {
        let (mut present, mut absent) = (Vec::new(), Vec::<(String, Vec<String>)>::new());
        for entry in entries {
            let name = entry.name.to_string();
            let Some(reason) = entry.absence() else {
                present.push(name);
                continue;
            };
            match absent.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, names)) => names.push(name),
                None => absent.push((reason, vec![name])),
            }
        }
        Self { present, absent }
    }

    fn present(&self) -> String {
        let names = match &self.present[..] {
            [] => "none".to_owned(),
            names => names.join(", "),
        };
        format!("available backends: {names}")
    }
}

impl fmt::Display for Overview {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.present())?;
        for (i, (reason, names)) in self.absent.iter().enumerate() {
            let lead = if i == 0 { "; not available: " } else { ", " };
            write!(f, "{lead}{} ({reason})", names.join(", "))?;
        }
        Ok(())
    }
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
            .register(BackendEntry::absent("gone", "a test", "its feature is off").with_fix("switch it on"))
            .unwrap();
        registry
            .register(BackendEntry::absent("lost", "a test", "its feature is off").with_fix("switch it on"))
            .unwrap();
        let error = registry.open("nowhere").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BackendUnavailable);
        let text = error.to_string();
        assert!(
            text.contains("\"nowhere\"") && text.contains("available backends: here"),
            "{text}"
        );
        assert!(text.contains("gone, lost (its feature is off)"), "{text}");
        let text = registry.open("HERE").unwrap_err().to_string();
        assert_eq!(
            text,
            "there is no backend named \"HERE\"; perhaps here; available backends: here"
        );
        let text = registry.open("gone").unwrap_err().to_string();
        assert_eq!(
            text,
            "backend gone is not available: its feature is off; switch it on; available backends: here"
        );
        assert_eq!(registry.open("here").unwrap_err().kind(), ErrorKind::OutOfMemory);
        assert!(registry.register(BackendEntry::new("here", "again", failing)).is_err());
        assert!(registry.register(BackendEntry::new("a:b", "bad", failing)).is_err());
        assert_eq!(registry.open("auto").unwrap_err().kind(), ErrorKind::BackendUnavailable);
    }

    #[test]
    fn auto_says_why_it_passes_over_a_backend() {
        let registry = Registry::default();
        let add = |entry: BackendEntry, priority| registry.register(entry.with_priority(priority)).unwrap();
        add(BackendEntry::new("slow", "a test", failing), 1);
        let weak = BackendEntry::new("weak", "a test", failing);
        add(weak.with_choice(|| Err("it is no GPU".to_owned())), 2);
        let panics = BackendEntry::new("bad", "a test", failing);
        add(panics.with_choice(|| panic!("no library")), 0);
        let reasons: Vec<_> = registry
            .explain("auto")
            .unwrap()
            .into_iter()
            .map(|candidate| (candidate.spec, candidate.passed_over.unwrap()))
            .collect();
        assert_eq!(reasons[0], ("weak".to_owned(), "it is no GPU".to_owned()));
        assert!(reasons[1].0 == "slow" && reasons[1].1.contains("no memory"));
        assert!(reasons[2].0 == "bad" && reasons[2].1.contains("no library"));
        let error = registry.open("auto").unwrap_err().to_string();
        assert!(
            error.contains("weak: it is no GPU") && error.contains("slow: "),
            "{error}"
        );
        let error = registry.open("auto:dtype=f12").unwrap_err().to_string();
        assert!(error.contains("f12") && error.contains("bf16"), "{error}");
        assert!(registry.explain("weak").is_err());
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
