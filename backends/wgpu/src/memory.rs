//! Memory: allocation and copies.

use polygrad_core::compute::{DevicePtr, DeviceView, Elementwise, ElementwiseProgram};
use polygrad_core::{DType, Error, ErrorKind, Result, Shape};
use wgpu::{Buffer, BufferUsages, PollType, WasmNotSend};

use crate::failure;
use crate::gpu::{Gpu, Session};
use crate::state::{Block, Place};

/// The most bytes of mappable memory that are kept for later reads.
const MAX_STAGED: u64 = 64 << 20;

/// A submitted copy to the host: its staging buffer, and the wanted part of it.
#[derive(Debug)]
pub(crate) struct Ordered {
    staging: Buffer,
    skip: usize,
    len: usize,
    size: u64,
}

impl Session<'_> {
    pub(crate) fn alloc(&mut self, bytes: usize) -> Result<DevicePtr> {
        let buffer = self.gpu.buffer(bytes)?;
        let id = self.state.fresh_id();
        self.state.space.insert(bytes, Block { buffer, id })
    }

    pub(crate) fn upload(&mut self, dst: DevicePtr, src: &[u8]) -> Result<()> {
        if src.is_empty() {
            return Ok(());
        }
        let place = self.find(dst, src.len())?;
        self.write(&place, src)
    }

    /// The queue's writes come before all work that is recorded but not submitted.
    fn write(&mut self, place: &Place, src: &[u8]) -> Result<()> {
        if !place.at.is_multiple_of(4) || !src.len().is_multiple_of(4) {
            return self.write_ragged(place, src);
        }
        if self.state.used.contains(&place.id) {
            self.flush();
        }
        self.gpu.queue.write_buffer(&place.buffer, place.at as u64, src);
        Ok(())
    }

    /// Writes bytes that do not fill words by way of temporary memory.
    fn write_ragged(&mut self, place: &Place, src: &[u8]) -> Result<()> {
        let mut padded = src.to_vec();
        padded.resize(src.len().next_multiple_of(4), 0);
        let between = self.temporary(padded.len())?;
        self.write(&between, &padded)?;
        self.copy_bytes(place, &between, src.len())
    }

    /// Copies any bytes, by a kernel. Source and target do not overlap.
    fn copy_bytes(&mut self, dst: &Place, src: &Place, bytes: usize) -> Result<()> {
        let (from, to) = (self.address(src, bytes)?, self.address(dst, bytes)?);
        let shape = Shape::new(&[bytes])?;
        let mut program = ElementwiseProgram::default();
        let x = program.input(DType::U8);
        program.output(x);
        self.elementwise(&Elementwise {
            program: &program,
            shape,
            inputs: &[DeviceView::contiguous(from, DType::U8, shape)],
            scalars: &[],
            outputs: &[DeviceView::contiguous(to, DType::U8, shape)],
        })
    }

    pub(crate) fn copy_within(&mut self, dst: DevicePtr, src: DevicePtr, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let (to, from) = (self.find(dst, bytes)?, self.find(src, bytes)?);
        if to.id == from.id && to.at == from.at {
            return Ok(());
        }
        if to.id == from.id {
            let between = self.temporary(bytes)?;
            self.copy(&between, &from, bytes)?;
            return self.copy(&to, &between, bytes);
        }
        self.copy(&to, &from, bytes)
    }

    /// Copies between two buffers.
    fn copy(&mut self, to: &Place, from: &Place, bytes: usize) -> Result<()> {
        if !(to.at | from.at | bytes).is_multiple_of(4) {
            return self.copy_bytes(to, from, bytes);
        }
        self.state.used.extend([to.id, from.id]);
        self.encoder()
            .copy_buffer_to_buffer(&from.buffer, from.at as u64, &to.buffer, to.at as u64, bytes as u64);
        Ok(())
    }

    /// Submits a copy to the host of these bytes and of the word that records bad indices. Afterwards calls `done` with
    /// whether the memory could be mapped.
    pub(crate) fn order(
        &mut self,
        src: Option<DevicePtr>,
        len: usize,
        done: impl FnOnce(bool) + WasmNotSend + 'static,
    ) -> Result<Ordered> {
        let mut skip = 0;
        let mut size = 0;
        let place = match src {
            Some(src) if len > 0 => Some(self.find(src, len)?),
            _ => None,
        };
        if let Some(place) = &place {
            skip = place.at % 4;
            size = (skip + len).next_multiple_of(4) as u64;
        }
        let total = size + 16;
        let staging = match self.state.staging.take() {
            Some(staging) if staging.size() >= total => staging,
            _ => {
                let usage = BufferUsages::MAP_READ | BufferUsages::COPY_DST;
                self.gpu.any_buffer(total.next_power_of_two().max(4096), usage)?
            }
        };
        let status = self.state.status.buffer.clone();
        let encoder = self.encoder();
        if let Some(place) = &place {
            encoder.copy_buffer_to_buffer(&place.buffer, (place.at - skip) as u64, &staging, 0, size);
        }
        encoder.copy_buffer_to_buffer(&status, 0, &staging, size, 16);
        self.flush();
        staging
            .slice(..total)
            .map_async(wgpu::MapMode::Read, move |result| done(result.is_ok()));
        Ok(Ordered {
            staging,
            skip,
            len,
            size,
        })
    }

    /// Returns the bytes of a submitted copy that is done.
    pub(crate) fn take(&mut self, ordered: Ordered, out: &mut [u8]) -> Result<()> {
        failure::check(&self.gpu.failure)?;
        let lost = |error: wgpu::MapRangeError| {
            Error::new(
                ErrorKind::DeviceError,
                format!("what was computed cannot be read: {error}"),
            )
        };
        let Ordered {
            staging,
            skip,
            len,
            size,
        } = ordered;
        let view = staging.slice(..size + 16).get_mapped_range().map_err(lost)?;
        out.copy_from_slice(&view[skip..skip + len]);
        let mut status = [0u32; 4];
        bytemuck::cast_slice_mut(&mut status).copy_from_slice(&view[size as usize..]);
        drop(view);
        staging.unmap();
        if staging.size() <= MAX_STAGED {
            self.state.staging = Some(staging);
        }
        self.judge(status)
    }

    /// Fails if a kernel has reported a bad index.
    fn judge(&mut self, status: [u32; 4]) -> Result<()> {
        if status[0] == 0 {
            if self.state.launches == 0 {
                self.state.checked.clear();
            }
            return Ok(());
        }
        let call = self.state.checked.get(status[3] as usize).cloned();
        self.state.checked.clear();
        self.flush();
        self.gpu.queue.write_buffer(&self.state.status.buffer, 0, &[0; 16]);
        let index = (u64::from(status[2]) << 32 | u64::from(status[1])).cast_signed();
        let (op, extent) = call.map_or(("index", 0), |call| (call.op, call.extent));
        Err(Error::out_of_range(format!("index {index} on an axis of {extent}"))
            .with_op(op)
            .with_device(&self.gpu.name))
    }
}

impl Gpu {
    /// Waits for all submitted work.
    pub(crate) fn wait(&self) -> Result<()> {
        if cfg!(target_arch = "wasm32") {
            return Err(Error::unsupported("a browser's page cannot wait for its GPU")
                .with_hint("WgpuDriver::read_async gives a future"));
        }
        self.device
            .poll(PollType::wait_indefinitely())
            .map(drop)
            .map_err(|error| Error::new(ErrorKind::DeviceError, format!("the device does not finish: {error}")))
    }

    pub(crate) fn download(&self, dst: &mut [u8], src: Option<DevicePtr>) -> Result<()> {
        let ordered = self.session()?.order(src, dst.len(), drop)?;
        self.wait()?;
        self.session()?.take(ordered, dst)
    }
}
