//! What a driver is held to.

use polygrad_core::Result;
use polygrad_core::compute::ComputeBackend;

/// How a driver is made anew.
pub type MakeDriver<'a> = &'a (dyn Fn() -> Result<Box<dyn ComputeBackend>> + Send + Sync);

/// What a driver is held to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverOptions {
    /// Whether it computes: else the cases run, and what they read back may be anything.
    pub values: bool,
    /// Terms of the longest sum; fewer for a slow driver.
    pub long: usize,
    /// The cases whose name contains this alone.
    pub case: Option<String>,
}

impl Default for DriverOptions {
    /// Everything, with sums of 20 million terms.
    fn default() -> Self {
        Self {
            values: true,
            long: 20_000_000,
            case: None,
        }
    }
}
