//! Recorded runs of calls, as CUDA graphs, and copies that share a launch.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use polygrad_core::compute::ByteCopy;
use polygrad_core::{DType, Result};

use super::memory::{Allocation, Space};
use super::queue::Queue;
use crate::source::{Args, File, file};

const COPIES: File = file!("copies");

/// The most copies per launch: their addresses and lengths must fit into a kernel's arguments.
const TOGETHER: usize = 128;
/// The most bytes per thread before more threads are used.
const EACH: usize = 64;
/// The most blocks per copy.
const MOST_BLOCKS: usize = 256;

/// A recorded run of calls.
pub(super) struct Graph {
    recorded: Box<dyn Any + Send + Sync>,
    /// The slot in which its kernels report an index outside its axis.
    reports: Arc<Allocation>,
    /// Memory with the bytes that the graph copies from the host.
    _kept: Vec<Allocation>,
}

/// See [`polygrad_core::compute::ComputeBackend::record`].
pub(super) fn record(queue: &Queue, calls: &mut dyn FnMut() -> Result<()>) -> Result<Graph> {
    let _alone = queue.recording_alone();
    let reports = queue.reports.begin(&queue.runtime)?;
    let recorded = queue.runtime.begin_capture().map(|()| {
        // Recording ends even after an error, so that this thread's later calls run again.
        let done = catch_unwind(AssertUnwindSafe(calls));
        (done, queue.runtime.end_capture())
    });
    queue.reports.end();
    let kept = queue.take_kept();
    let (done, graph) = recorded?;
    let graph = done.unwrap_or_else(|panic| resume_unwind(panic)).and(graph);
    graph.map(|recorded| Graph {
        recorded,
        reports,
        _kept: kept,
    })
}

/// See [`polygrad_core::compute::ComputeBackend::replay`].
pub(super) fn replay(queue: &Queue, graph: &Graph) -> Result<()> {
    let started = queue.runtime.replay(&*graph.recorded);
    queue.reports.replayed(&graph.reports);
    started
}

/// See [`polygrad_core::compute::ComputeBackend::copy_each`].
pub(super) fn copy_each(queue: &Queue, space: &Space<'_>, copies: &[ByteCopy]) -> Result<()> {
    for copies in copies.chunks(TOGETHER) {
        let count = copies.len().next_power_of_two();
        let (mut to, mut from, mut bytes) = (vec![0; count], vec![0; count], vec![0usize; count]);
        for (i, copy) in copies.iter().enumerate() {
            (to[i], from[i], bytes[i]) = (
                space.bytes(copy.dst, copy.bytes)?,
                space.bytes(copy.src, copy.bytes)?,
                copy.bytes,
            );
        }
        let largest = bytes.iter().copied().max().unwrap_or(0);
        let parts = largest.div_ceil(EACH * queue.block() as usize).min(MOST_BLOCKS);
        let source = queue.source(COPIES, DType::U8).define("COUNT", count);
        let args = Args::default().all(&to).all(&from).all(&bytes).push(parts);
        queue.launch(source, (copies.len() * parts) as u64, queue.block(), &args)?;
    }
    Ok(())
}
