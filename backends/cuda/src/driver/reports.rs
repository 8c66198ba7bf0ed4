//! Reports of kernels that found an index outside its axis.
//!
//! A kernel writes three numbers to a slot in device memory: whether there was such an index, the index, and the axis's
//! extent. Every thread has a slot of its own, so that only the thread that made the faulty call gets the error.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ThreadId};

use polygrad_core::{Error, Result};

use super::memory::Allocation;
use crate::runtime::{Readback, Runtime};

/// Bytes of a slot.
const SLOT: usize = 3 * 8;

/// The slots of a queue.
#[derive(Debug, Default)]
pub(super) struct Reports(Mutex<Slots>);

#[derive(Debug, Default)]
struct Slots {
    own: HashMap<ThreadId, Arc<Allocation>>,
    /// By thread: slots that may have been written since they were last read.
    written: HashMap<ThreadId, Vec<Arc<Allocation>>>,
    /// The slot of a thread that is recording.
    recording: Option<(ThreadId, Arc<Allocation>)>,
}

fn slot(runtime: &Arc<dyn Runtime>) -> Result<Arc<Allocation>> {
    let slot = Allocation::new(runtime, SLOT)?;
    runtime.write(slot.address(), &[0; SLOT])?;
    Ok(Arc::new(slot))
}

impl Slots {
    fn note(&mut self, slot: &Arc<Allocation>) {
        let written = self.written.entry(thread::current().id()).or_default();
        if !written.iter().any(|known| Arc::ptr_eq(known, slot)) {
            written.push(Arc::clone(slot));
        }
    }
}

impl Reports {
    fn slots(&self) -> std::sync::MutexGuard<'_, Slots> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The address of the slot for the next kernel of this thread.
    pub(super) fn address(&self, runtime: &Arc<dyn Runtime>) -> Result<u64> {
        let mut slots = self.slots();
        let id = thread::current().id();
        if let Some((thread, slot)) = &slots.recording
            && *thread == id
        {
            return Ok(slot.address());
        }
        let own = match slots.own.get(&id) {
            Some(own) => Arc::clone(own),
            None => {
                let new = slot(runtime)?;
                slots.own.insert(id, Arc::clone(&new));
                new
            }
        };
        slots.note(&own);
        Ok(own.address())
    }

    /// Begins a recording: this thread's kernels get a slot that belongs to the recording.
    pub(super) fn begin(&self, runtime: &Arc<dyn Runtime>) -> Result<Arc<Allocation>> {
        let new = slot(runtime)?;
        self.slots().recording = Some((thread::current().id(), Arc::clone(&new)));
        Ok(new)
    }

    pub(super) fn end(&self) {
        self.slots().recording = None;
    }

    /// Whether this thread's kernels are recorded.
    pub(super) fn is_recording(&self) -> bool {
        let id = thread::current().id();
        self.slots().recording.as_ref().is_some_and(|(thread, _)| *thread == id)
    }

    /// Notes that this thread has replayed a recording, whose kernels write to `slot`.
    pub(super) fn replayed(&self, slot: &Arc<Allocation>) {
        self.slots().note(slot);
    }

    /// Submits reads of all slots that may hold reports for this thread, and resets them.
    pub(super) fn read(&self, runtime: &dyn Runtime) -> Result<Vec<Box<dyn Readback>>> {
        let mut slots = self.slots();
        let Some(written) = slots.written.get_mut(&thread::current().id()) else {
            return Ok(Vec::new());
        };
        let mut out = Vec::with_capacity(written.len());
        for slot in written.drain(..) {
            out.push(runtime.read(slot.address(), SLOT)?);
            runtime.write(slot.address(), &[0; SLOT])?;
        }
        Ok(out)
    }
}

/// Returns the error that the reports contain, if any.
pub(super) fn told(reports: Vec<Box<dyn Readback>>) -> Result<()> {
    for report in reports {
        let words: Vec<i64> = bytemuck::pod_collect_to_vec(&report.wait()?);
        if let [found, index, extent] = words[..]
            && found != 0
        {
            return Err(Error::out_of_range(format!(
                "index {index} is outside an axis of {extent}"
            )));
        }
    }
    Ok(())
}
