//! How a model is loaded and run.

use std::fmt;
use std::str::FromStr;

use polygrad_core::{Error, ErrorKind};

/// What runs a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Engine {
    /// The nodes one by one, on the backend of the device.
    #[default]
    Native,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Native => f.write_str("native"),
        }
    }
}

impl FromStr for Engine {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        match name {
            "native" => Ok(Self::Native),
            _ => {
                let message = format!("there is no ONNX engine {name:?}: the engines are native");
                Err(Error::new(ErrorKind::BackendUnavailable, message))
            }
        }
    }
}

/// How a model is loaded and run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// What runs it.
    pub engine: Engine,
    /// Compute what does not depend on the inputs once, when it is loaded; on by default.
    pub fold_constants: bool,
    /// The most bytes that one tensor may take: a few bytes of a file can ask for any size. 8 GiB by default.
    pub max_tensor_bytes: usize,
    /// The most nodes that one run may execute, those in loops counted each time. 2⁴⁰ by default.
    pub max_steps: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            engine: Engine::Native,
            fold_constants: true,
            max_tensor_bytes: 8 << 30,
            max_steps: 1 << 40,
        }
    }
}
