//! The engines by name.

use std::fmt;
use std::str::FromStr;

use polygrad_core::{Error, ErrorKind, Result};

/// An engine that runs a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Engine {
    /// The nodes one by one, on the backend of the device, with gradients if requested.
    #[default]
    Native,
    /// ONNX Runtime on the CPU; needs the cargo feature `ort`, and its library when it runs.
    Ort,
    /// RTen on the CPU; needs the cargo feature `rten`.
    Rten,
}

impl Engine {
    /// All engines, whether or not this build has them.
    pub const ALL: [Self; 3] = [Self::Native, Self::Ort, Self::Rten];

    /// The name by which it is selected.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Ort => "ort",
            Self::Rten => "rten",
        }
    }

    /// Its name in prose.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Native => "Polygrad",
            Self::Ort => "ONNX Runtime",
            Self::Rten => "RTen",
        }
    }

    /// Checks that it can be used: it is in this build, and this machine has the library it needs.
    ///
    /// # Errors
    /// [`ErrorKind::BackendUnavailable`], which says why not and what to do about it.
    pub fn available(self) -> Result<()> {
        match self {
            Self::Native => Ok(()),
            #[cfg(feature = "ort")]
            Self::Ort => super::ort::environment().map(|_| ()),
            #[cfg(feature = "rten")]
            Self::Rten => Ok(()),
            #[cfg(not(all(feature = "ort", feature = "rten")))]
            _ => Err(Error::new(
                ErrorKind::BackendUnavailable,
                format!("the engine {self} is not in this build"),
            )
            .with_hint(format!("build with the cargo feature {self}, or take another engine"))),
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Engine {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|engine| engine.name() == name)
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::BackendUnavailable,
                    format!("there is no ONNX engine {name:?}"),
                )
                .with_hint(format!("the engines are {}", Self::ALL.map(Self::name).join(", ")))
            })
    }
}
