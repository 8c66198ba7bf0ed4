//! An open device, and the recording of its work.

use std::sync::{Arc, Mutex, MutexGuard};

use polygrad_core::compute::DevicePtr;
use polygrad_core::{DType, Error, ErrorKind, Result};
use wgpu::{
    AdapterInfo, BindGroupDescriptor, BindGroupEntry, BindGroupLayoutDescriptor, BindGroupLayoutEntry, BindingType,
    Buffer, BufferBindingType, BufferDescriptor, BufferUsages, ComputePassDescriptor, ComputePipelineDescriptor,
    Device, ErrorFilter, Limits, PipelineLayoutDescriptor, PollType, Queue, ShaderModuleDescriptor, ShaderSource,
    ShaderStages,
};

use crate::failure::{self, Failures, caught, lock};
use crate::kernel::Kernel;
use crate::source::{Access, Slots};
use crate::state::{Block, Checked, Compiled, Layouts, PARAMS_BUFFER, PARAMS_BYTES, PARAMS_STEP, Place, State};
use crate::wait::at_once;

/// Launches after which work is submitted, so that the device does not wait for the host.
const MAX_LAUNCHES: usize = 128;
/// The most bytes of temporary memory that are kept for later calls.
const MAX_POOLED: u64 = 256 << 20;

/// An open device.
#[derive(Debug)]
pub(crate) struct Gpu {
    pub(crate) name: String,
    pub(crate) device: Device,
    pub(crate) queue: Queue,
    pub(crate) info: AdapterInfo,
    pub(crate) limits: Limits,
    pub(crate) int64: bool,
    pub(crate) failure: Failures,
    pub(crate) state: Mutex<State>,
}

impl Gpu {
    /// Begins a call, which fails if there is a recorded error.
    pub(crate) fn session(&self) -> Result<Session<'_>> {
        failure::check(&self.failure).map_err(|error| error.with_device(&self.name))?;
        Ok(Session {
            gpu: self,
            state: lock(&self.state),
            temporaries: Vec::new(),
            addresses: Vec::new(),
        })
    }

    /// Size in bytes of the largest buffer that can be bound as a whole.
    pub(crate) fn max_buffer(&self) -> u64 {
        let limit = self.limits.max_storage_buffer_binding_size;
        limit.min(self.limits.max_buffer_size).min(u64::from(u32::MAX)) & !3
    }

    /// Memory for kernels, rounded up to a multiple of four bytes.
    pub(crate) fn buffer(&self, bytes: usize) -> Result<Buffer> {
        let usage = BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
        if bytes as u64 > self.max_buffer() {
            return Err(Error::new(
                ErrorKind::OutOfMemory,
                format!(
                    "{bytes} bytes in one piece, where {} lets a kernel see {}",
                    self.info.name,
                    self.max_buffer()
                ),
            )
            .with_hint("smaller batches, or a tensor in several parts"));
        }
        // The limit is a multiple of four, too.
        self.any_buffer((bytes.max(16) as u64).next_multiple_of(4), usage)
    }

    pub(crate) fn any_buffer(&self, size: u64, usage: BufferUsages) -> Result<Buffer> {
        let memory = self.device.push_error_scope(ErrorFilter::OutOfMemory);
        let buffer = self.device.create_buffer(&BufferDescriptor {
            label: None,
            size,
            usage,
            mapped_at_creation: false,
        });
        match at_once(memory.pop()) {
            Some(Some(error)) => Err(caught(&error, &format!("{size} bytes cannot be had"))),
            _ => Ok(buffer),
        }
    }
}

/// One call: the locked state, and the memory that lives as long as the call.
pub(crate) struct Session<'a> {
    pub(crate) gpu: &'a Gpu,
    pub(crate) state: MutexGuard<'a, State>,
    temporaries: Vec<(u64, Block)>,
    /// Addresses of temporary memory.
    addresses: Vec<DevicePtr>,
}

impl Drop for Session<'_> {
    /// Later calls are ordered after this one, so they may reuse its memory at once.
    fn drop(&mut self) {
        for ptr in std::mem::take(&mut self.addresses) {
            let _ = self.state.space.remove(ptr);
        }
        for (size, block) in std::mem::take(&mut self.temporaries) {
            if self.state.pooled + size <= MAX_POOLED {
                self.state.pooled += size;
                self.state.pool.entry(size).or_default().push(block);
            }
        }
    }
}

impl Session<'_> {
    /// The place of `bytes` bytes at a pointer.
    pub(crate) fn find(&self, ptr: DevicePtr, bytes: usize) -> Result<Place> {
        let (block, at) = self.state.space.find(ptr, bytes)?;
        Ok(Place {
            buffer: block.buffer.clone(),
            id: block.id,
            at,
        })
    }

    /// [`Session::find`] for elements of a dtype, to whose size they must be aligned.
    pub(crate) fn typed(&self, ptr: DevicePtr, bytes: usize, dtype: DType) -> Result<Place> {
        let place = self.find(ptr, bytes)?;
        if place.at % dtype.size() != 0 {
            return Err(Error::invalid(format!("{ptr:?} is no multiple of {dtype}'s size")));
        }
        Ok(place)
    }

    /// Memory that lives until the end of the call.
    pub(crate) fn temporary(&mut self, bytes: usize) -> Result<Place> {
        let size = (bytes.max(256) as u64).next_power_of_two().min(self.gpu.max_buffer());
        let size = size.max(bytes as u64);
        let block = match self.state.pool.get_mut(&size).and_then(Vec::pop) {
            Some(block) => {
                self.state.pooled -= size;
                block
            }
            None => Block {
                buffer: self.gpu.buffer(size as usize)?,
                id: self.state.fresh_id(),
            },
        };
        let place = Place {
            buffer: block.buffer.clone(),
            id: block.id,
            at: 0,
        };
        self.temporaries.push((size, block));
        Ok(place)
    }

    /// An address that is valid until the end of the call, for memory without one.
    pub(crate) fn address(&mut self, place: &Place, bytes: usize) -> Result<DevicePtr> {
        let block = Block {
            buffer: place.buffer.clone(),
            id: place.id,
        };
        let ptr = self.state.space.insert(place.at + bytes, block)?;
        self.addresses.push(ptr);
        Ok(ptr.add(place.at))
    }

    /// The word in which kernels report a bad index, and the number that identifies this call in it.
    pub(crate) fn checked(&mut self, op: &'static str, extent: usize) -> (Place, u32) {
        self.state.checked.push(Checked { op, extent });
        let status = &self.state.status;
        let place = Place {
            buffer: status.buffer.clone(),
            id: status.id,
            at: 0,
        };
        (place, self.state.checked.len() as u32 - 1)
    }

    /// Records a kernel.
    pub(crate) fn launch(
        &mut self,
        kernel: Box<dyn Kernel>,
        places: &[&Place],
        params: &[u32],
        groups: [u64; 2],
    ) -> Result<()> {
        let [linear, z] = groups;
        if linear == 0 || z == 0 {
            return Ok(());
        }
        let most = u64::from(self.gpu.limits.max_compute_workgroups_per_dimension);
        if params.len() * 4 >= PARAMS_BYTES || z > most || linear > most * most {
            return Err(Error::unsupported("a kernel of more parts than the device can count").with_op(kernel.name()));
        }
        let y = linear.div_ceil(most);
        let x = linear.div_ceil(y);
        let ids: Vec<u64> = places.iter().map(|place| place.id).collect();
        let accesses = kernel.accesses();
        let slots = Slots::new(&ids, &accesses);
        let compiled = self.compiled(kernel, slots.clone())?;

        if self.state.params.len() + params.len() * 4 + PARAMS_STEP > PARAMS_BUFFER
            || self.state.launches >= MAX_LAUNCHES
        {
            self.flush();
        }
        let firsts: Vec<usize> = slots.firsts().collect();
        let entries: Vec<_> = (firsts.iter().enumerate())
            .map(|(binding, &first)| BindGroupEntry {
                binding: binding as u32,
                resource: places[first].buffer.as_entire_binding(),
            })
            .collect();
        let group = self.gpu.device.create_bind_group(&BindGroupDescriptor {
            label: None,
            layout: &compiled.layout.group,
            entries: &entries,
        });
        let state = &mut *self.state;
        let offset = state.params.len().next_multiple_of(PARAMS_STEP);
        state.params.resize(offset, 0);
        state.params.extend_from_slice(&[0; 4]);
        state.params.extend_from_slice(bytemuck::cast_slice(params));
        let device = &self.gpu.device;
        let encoder = state
            .encoder
            .get_or_insert_with(|| device.create_command_encoder(&Default::default()));
        let pass = state.pass.get_or_insert_with(|| {
            encoder
                .begin_compute_pass(&ComputePassDescriptor::default())
                .forget_lifetime()
        });
        pass.set_pipeline(&compiled.pipeline);
        pass.set_bind_group(0, &state.params_group, &[offset as u32]);
        pass.set_bind_group(1, &group, &[]);
        pass.dispatch_workgroups(x as u32, y as u32, z as u32);
        state.launches += 1;
        state.launched += 1;
        state.used.extend(ids);
        Ok(())
    }

    /// The command encoder, for copies.
    pub(crate) fn encoder(&mut self) -> &mut wgpu::CommandEncoder {
        let device = &self.gpu.device;
        let state = &mut *self.state;
        state.pass = None;
        state
            .encoder
            .get_or_insert_with(|| device.create_command_encoder(&Default::default()))
    }

    /// Submits the recorded work.
    pub(crate) fn flush(&mut self) {
        let state = &mut *self.state;
        state.pass = None;
        let Some(encoder) = state.encoder.take() else { return };
        if !state.params.is_empty() {
            let padded = state.params.len().next_multiple_of(4);
            state.params.resize(padded, 0);
            self.gpu.queue.write_buffer(&state.params_buffer, 0, &state.params);
            state.params.clear();
        }
        self.gpu.queue.submit([encoder.finish()]);
        state.used.clear();
        state.launches = 0;
        // Lets wgpu free finished work; errors are reported by the next call that waits.
        let _ = self.gpu.device.poll(PollType::Poll);
    }

    fn compiled(&mut self, kernel: Box<dyn Kernel>, slots: Slots) -> Result<Arc<Compiled>> {
        let key = (kernel, slots);
        if let Some(found) = self.state.compiled.get(&key) {
            return Ok(Arc::clone(found));
        }
        let device = &self.gpu.device;
        if key.1.accesses().len() > self.gpu.limits.max_storage_buffers_per_shader_stage as usize {
            return Err(Error::unsupported(format!(
                "{} operands, where {} takes {}",
                key.1.accesses().len(),
                self.gpu.info.name,
                self.gpu.limits.max_storage_buffers_per_shader_stage
            ))
            .with_op(key.0.name()));
        }
        let text = key.0.source(&key.1)?;
        let layout = self.layout(key.1.accesses());
        let scope = device.push_error_scope(ErrorFilter::Validation);
        let inner = device.push_error_scope(ErrorFilter::Internal);
        let module = device.create_shader_module(ShaderModuleDescriptor {
            label: Some(key.0.name()),
            source: ShaderSource::Wgsl(text.into()),
        });
        let pipeline = device.create_compute_pipeline(&ComputePipelineDescriptor {
            label: Some(key.0.name()),
            layout: Some(&layout.pipeline),
            module: &module,
            entry_point: Some("main"),
            compilation_options: Default::default(),
            cache: None,
        });
        let internal = at_once(inner.pop()).flatten();
        if let Some(error) = internal.or(at_once(scope.pop()).flatten()) {
            return Err(caught(&error, "the device's driver refuses a kernel").with_op(key.0.name()));
        }
        let compiled = Arc::new(Compiled { pipeline, layout });
        self.state.compiled.insert(key, Arc::clone(&compiled));
        Ok(compiled)
    }

    fn layout(&mut self, accesses: &[Access]) -> Arc<Layouts> {
        if let Some(found) = self.state.layouts.get(accesses) {
            return Arc::clone(found);
        }
        let entry = |(binding, access): (usize, &Access)| BindGroupLayoutEntry {
            binding: binding as u32,
            visibility: ShaderStages::COMPUTE,
            ty: BindingType::Buffer {
                ty: BufferBindingType::Storage {
                    read_only: *access == Access::Read,
                },
                has_dynamic_offset: false,
                min_binding_size: None,
            },
            count: None,
        };
        let entries: Vec<_> = accesses.iter().enumerate().map(entry).collect();
        let group = self.gpu.device.create_bind_group_layout(&BindGroupLayoutDescriptor {
            label: None,
            entries: &entries,
        });
        let pipeline = self.gpu.device.create_pipeline_layout(&PipelineLayoutDescriptor {
            label: None,
            bind_group_layouts: &[Some(&self.state.params_layout), Some(&group)],
            immediate_size: 0,
        });
        let layouts = Arc::new(Layouts { group, pipeline });
        self.state.layouts.insert(accesses.to_vec(), Arc::clone(&layouts));
        layouts
    }
}
