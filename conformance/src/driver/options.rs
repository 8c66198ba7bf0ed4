//! Options of the driver suite.

use polygrad_core::Result;
use polygrad_core::compute::ComputeBackend;

/// Creates a driver.
pub type MakeDriver<'a> = &'a (dyn Fn() -> Result<Box<dyn ComputeBackend>> + Send + Sync);

/// Options of the driver suite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverOptions {
    /// Whether the driver computes values. If not, the cases run, but the results are not checked.
    pub values: bool,
    /// The number of terms of the longest sum; use fewer for a slow driver.
    pub long: usize,
    /// Only the cases whose name contains this.
    pub case: Option<String>,
}

impl Default for DriverOptions {
    /// All checks, with sums of 20 million terms.
    fn default() -> Self {
        Self {
            values: true,
            long: 20_000_000,
            case: None,
        }
    }
}
