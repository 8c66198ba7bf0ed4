//! What kernels that check an index tell of one outside its axis, and to whom.
//!
//! A kernel writes to a slot in the device's memory: whether there was one, which, and the axis's extent. A thread
//! hears of its own calls, so that those of others do not fail for them.

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
    /// Those to which something may have been written since they were last read.
    written: HashMap<ThreadId, Vec<Arc<Allocation>>>,
    /// The one of the calls that a thread records.
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

    /// The address that a kernel is to write to.
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

    /// From here on this thread's kernels are recorded, and get a slot that stays with the record.
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

    /// Recorded kernels run for this thread.
    pub(super) fn replayed(&self, slot: &Arc<Allocation>) {
        self.slots().note(slot);
    }

    /// Orders that what there can be for this thread is read, and begins anew.
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

/// The error that reports tell of, if one does.
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
