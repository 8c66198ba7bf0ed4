//! The queue of a device: its stream, its memory and kernels, and their error reports.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polygrad_core::{DType, Error, Result};

use super::memory::{Allocation, Space, Tables};
use super::reports::{Reports, told};
use crate::runtime::{Readback, Runtime};
use crate::source::{Args, File, Source};

/// The queue of a device, see the [module](self).
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) runtime: Arc<dyn Runtime>,
    pub(super) tables: Tables,
    /// Errors reported by kernels.
    pub(super) reports: Reports,
    /// Whether f32 products may round their operands.
    pub(super) tf32: bool,
    /// Held by the thread that is recording.
    recording: Mutex<()>,
    /// Memory with bytes that were copied from the host since recording began.
    kept: Mutex<Vec<Allocation>>,
}

impl Queue {
    pub(super) fn new(runtime: Arc<dyn Runtime>, tf32: bool) -> Self {
        Self {
            runtime,
            tables: Tables::default(),
            reports: Reports::default(),
            tf32,
            recording: Mutex::default(),
            kept: Mutex::default(),
        }
    }

    /// Takes the bytes that were copied from the host while calls were recorded.
    pub(super) fn take_kept(&self) -> Vec<Allocation> {
        std::mem::take(&mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until no other thread is recording.
    pub(super) fn recording_alone(&self) -> MutexGuard<'_, ()> {
        self.recording.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Allocates memory that outlives a recording, even if calls are being recorded.
    pub(super) fn alloc(&self, bytes: usize) -> Result<Allocation> {
        let mut new = None;
        self.runtime.aside(&mut || {
            new = Some(Allocation::new(&self.runtime, bytes)?);
            Ok(())
        })?;
        new.ok_or_else(|| Error::invalid("nothing was allocated"))
    }

    /// Frees memory from [`Queue::alloc`].
    pub(super) fn free(&self, memory: Allocation) -> Result<()> {
        let mut memory = Some(memory);
        self.runtime
            .aside(&mut || memory.take().map_or(Ok(()), Allocation::release))
    }

    /// Copies bytes from the host. If calls are being recorded, each replay copies them again.
    pub(super) fn write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        if !self.reports.is_recording() {
            return self.runtime.write(address, bytes);
        }
        let kept = self.alloc(bytes.len())?;
        self.runtime.aside(&mut || self.runtime.write(kept.address(), bytes))?;
        self.runtime.copy(address, kept.address(), bytes.len())?;
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).push(kept);
        Ok(())
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

    /// Runs a kernel with one thread per element.
    pub(super) fn launch_each(&self, source: Source<'_>, count: usize, args: &Args) -> Result<()> {
        self.launch(
            source,
            (count as u64).div_ceil(u64::from(self.block())),
            self.block(),
            args,
        )
    }

    /// Scratch memory for the duration of a call.
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
        // Work in flight uses memory and kernels that are dropped with the queue. A drop cannot report an error.
        let _ = self.runtime.synchronize();
    }
}

/// A read that has been submitted.
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
