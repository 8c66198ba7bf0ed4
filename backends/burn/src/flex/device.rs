//! The device.

use std::fmt;

/// A device of Burn's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BurnDevice {
    /// The CPU, by burn-flex.
    #[default]
    Cpu,
}

impl fmt::Display for BurnDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("burn"),
        }
    }
}
