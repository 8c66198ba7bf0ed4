//! The queue of a device: its stream, its memory and kernels, and what these tell.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polygrad_core::{DType, Error, Result};

use super::memory::{Allocation, Space, Tables};
use super::reports::{Reports, told};
use crate::runtime::{Readback, Runtime};
use crate::source::{Args, File, Source};

/// See the module.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) runtime: Arc<dyn Runtime>,
    pub(super) tables: Tables,
    /// What its kernels tell.
    pub(super) reports: Reports,
    /// Whether f32 products may round their operands.
    pub(super) tf32: bool,
    /// Held by who records.
    recording: Mutex<()>,
}

impl Queue {
    pub(super) fn new(runtime: Arc<dyn Runtime>, tf32: bool) -> Self {
        Self {
            runtime,
            tables: Tables::default(),
            reports: Reports::default(),
            tf32,
            recording: Mutex::default(),
        }
    }

    /// Waits until nobody else records.
    pub(super) fn recording_alone(&self) -> MutexGuard<'_, ()> {
        self.recording.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is allocated while calls are recorded would be there in the graph alone.
    pub(super) fn not_recording(&self) -> Result<()> {
        match self.reports.is_recording() {
            false => Ok(()),
            true => {
                Err(Error::unsupported("an allocation cannot be recorded")
                    .with_hint("allocate before what is recorded"))
            }
        }
    }

    pub(super) fn block(&self) -> u32 {
        self.runtime.facts().block
    }

    pub(super) fn source(&self, file: File, dtype: DType) -> Source<'static> {
        Source::new(file, dtype, self.block())
    }

    /// Runs a kernel.
    pub(super) fn launch(&self, source: Source<'_>, blocks: u64, threads: u32, args: &Args) -> Result<()> {
        if blocks == 0 {
            return Ok(());
        }
        let function = self.tables.function(&*self.runtime, source)?;
        let blocks = u32::try_from(blocks)
            .ok()
            .filter(|&blocks| blocks <= i32::MAX.cast_unsigned());
        let Some(blocks) = blocks else {
            return Err(Error::unsupported("more than 2^31 blocks of threads")
                .with_hint("compute it in parts, each of fewer elements"));
        };
        self.runtime.launch(function, blocks, threads, args.get()?)
    }

    /// Runs a kernel with a thread for each of so many elements.
    pub(super) fn launch_each(&self, source: Source<'_>, count: usize, args: &Args) -> Result<()> {
        self.launch(
            source,
            (count as u64).div_ceil(u64::from(self.block())),
            self.block(),
            args,
        )
    }

    /// Memory for the time of a call.
    pub(super) fn scratch(&self, bytes: usize) -> Result<Allocation> {
        Allocation::new(&self.runtime, bytes)
    }

    pub(super) fn read(
        &self,
        space: &Space<'_>,
        from: polygrad_core::compute::DevicePtr,
        bytes: usize,
    ) -> Result<Read> {
        let address = space.bytes(from, bytes)?;
        let data = match bytes {
            0 => None,
            _ => Some(self.runtime.read(address, bytes)?),
        };
        Ok(Read {
            data,
            reports: self.reports.read(&*self.runtime)?,
        })
    }

    pub(super) fn synchronize(&self) -> Result<()> {
        let reports = self.reports.read(&*self.runtime)?;
        self.runtime.synchronize()?;
        told(reports)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // What is under way uses memory and kernels that go away with it. Nobody is left to tell.
        let _ = self.runtime.synchronize();
    }
}

/// A read that was ordered.
pub(super) struct Read {
    data: Option<Box<dyn Readback>>,
    reports: Vec<Box<dyn Readback>>,
}

impl Read {
    pub(super) fn wait(self) -> Result<Vec<u8>> {
        let data = self.data.map_or(Ok(Vec::new()), Readback::wait);
        told(self.reports)?;
        data
    }
}
