//! Recorded runs of calls: CUDA's graphs.

use std::any::Any;
use std::sync::Arc;

use polygrad_core::{Error, Result};

use super::CudaDriver;
use super::memory::Allocation;

/// A recorded run of calls: what [`CudaDriver::capture`] gives.
#[derive(Debug)]
pub struct Graph {
    recorded: Box<dyn Any + Send + Sync>,
    /// Where its kernels tell of an index outside its axis.
    reports: Arc<Allocation>,
}

impl CudaDriver {
    /// Records the calls that `record` makes through this driver instead of running them, so that [`CudaDriver::replay`] runs them all at
    /// once. What they read and write must be allocated before, and be there whenever they are run; none of them may copy from or to the
    /// host.
    ///
    /// # Errors
    /// When `record` fails, or calls something that cannot be recorded.
    pub fn capture(&self, record: impl FnOnce() -> Result<()>) -> Result<Graph> {
        let queue = self.opened("capture")?;
        let named = |error: Error| error.with_op("capture").with_device(&self.name);
        let reports = queue.reports.begin(&queue.runtime).map_err(named)?;
        let graph = queue.runtime.begin_capture().map_err(named).and_then(|()| {
            let done = record();
            // Recording ends whether it went well or not.
            let graph = queue.runtime.end_capture().map_err(named);
            done.and(graph)
        });
        queue.reports.end();
        graph.map(|recorded| Graph { recorded, reports })
    }

    /// Runs what was recorded.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn replay(&self, graph: &Graph) -> Result<()> {
        let queue = self.opened("replay")?;
        let started = queue.runtime.replay(&*graph.recorded);
        queue.reports.replayed(&graph.reports);
        started.map_err(|error| error.with_op("replay").with_device(&self.name))
    }
}
