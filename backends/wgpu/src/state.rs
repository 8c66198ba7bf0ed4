//! A device's state: memory, recorded work, compiled kernels.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use polygrad_core::compute::AddressSpace;
use wgpu::{
    BindGroup, BindGroupDescriptor, BindGroupEntry, BindGroupLayout, BindGroupLayoutDescriptor, BindGroupLayoutEntry,
    BindingResource, BindingType, Buffer, BufferBinding, BufferBindingType, BufferDescriptor, BufferSize, BufferUsages,
    CommandEncoder, ComputePass, ComputePipeline, Device, PipelineLayout, ShaderStages,
};

use crate::kernel::Kernel;
use crate::source::{Access, PARAMS, Slots};

/// A buffer with a unique number.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) buffer: Buffer,
    pub(crate) id: u64,
}

/// The place of a kernel's operand: a buffer, and an offset in bytes.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) buffer: Buffer,
    pub(crate) id: u64,
    pub(crate) at: usize,
}

/// A compiled kernel.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) pipeline: ComputePipeline,
    pub(crate) layout: Arc<Layouts>,
}

/// The layouts for one pattern of bindings.
#[derive(Debug)]
pub(crate) struct Layouts {
    pub(crate) group: BindGroupLayout,
    pub(crate) pipeline: PipelineLayout,
}

/// A call whose indices the device checks.
#[derive(Clone, Debug)]
pub(crate) struct Checked {
    pub(crate) op: &'static str,
    pub(crate) extent: usize,
}

/// The most bytes of parameters of one submission.
pub(crate) const PARAMS_BUFFER: usize = 64 << 10;
/// Bytes of parameters that a kernel can read.
pub(crate) const PARAMS_BYTES: usize = PARAMS * 4;
/// Alignment of parameters' offsets.
pub(crate) const PARAMS_STEP: usize = 256;

pub(crate) struct State {
    pub(crate) space: AddressSpace<Block>,
    /// Recorded, but not yet submitted. The pass is ended before the encoder is used.
    pub(crate) pass: Option<ComputePass<'static>>,
    pub(crate) encoder: Option<CommandEncoder>,
    pub(crate) launches: usize,
    /// Number of all launches, for statistics.
    pub(crate) launched: u64,
    /// Buffers that the recorded work uses.
    pub(crate) used: HashSet<u64>,
    pub(crate) params: Vec<u8>,
    pub(crate) params_buffer: Buffer,
    pub(crate) params_layout: BindGroupLayout,
    pub(crate) params_group: BindGroup,
    pub(crate) compiled: HashMap<(Box<dyn Kernel>, Slots), Arc<Compiled>>,
    pub(crate) layouts: HashMap<Vec<Access>, Arc<Layouts>>,
    /// Temporary memory that is free, by size.
    pub(crate) pool: HashMap<u64, Vec<Block>>,
    pub(crate) pooled: u64,
    pub(crate) staging: Option<Buffer>,
    /// The word in which kernels report a bad index.
    pub(crate) status: Block,
    pub(crate) checked: Vec<Checked>,
    pub(crate) next_id: u64,
}

impl State {
    pub(crate) fn new(device: &Device) -> Self {
        let params_buffer = device.create_buffer(&BufferDescriptor {
            label: Some("parameters"),
            size: (PARAMS_BUFFER + PARAMS_BYTES) as u64,
            usage: BufferUsages::UNIFORM | BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let params_layout = device.create_bind_group_layout(&BindGroupLayoutDescriptor {
            label: Some("parameters"),
            entries: &[BindGroupLayoutEntry {
                binding: 0,
                visibility: ShaderStages::COMPUTE,
                ty: BindingType::Buffer {
                    ty: BufferBindingType::Uniform,
                    has_dynamic_offset: true,
                    min_binding_size: BufferSize::new(PARAMS_BYTES as u64),
                },
                count: None,
            }],
        });
        let params_group = device.create_bind_group(&BindGroupDescriptor {
            label: Some("parameters"),
            layout: &params_layout,
            entries: &[BindGroupEntry {
                binding: 0,
                resource: BindingResource::Buffer(BufferBinding {
                    buffer: &params_buffer,
                    offset: 0,
                    size: BufferSize::new(PARAMS_BYTES as u64),
                }),
            }],
        });
        let status = device.create_buffer(&BufferDescriptor {
            label: Some("status"),
            size: 16,
            usage: BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        Self {
            space: AddressSpace::default(),
            pass: None,
            encoder: None,
            launches: 0,
            launched: 0,
            used: HashSet::new(),
            params: Vec::new(),
            params_buffer,
            params_layout,
            params_group,
            compiled: HashMap::new(),
            layouts: HashMap::new(),
            pool: HashMap::new(),
            pooled: 0,
            staging: None,
            status: Block { buffer: status, id: 0 },
            checked: Vec::new(),
            next_id: 1,
        }
    }

    /// A unique number for a new buffer.
    pub(crate) fn fresh_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("allocations", &self.space.len())
            .field("launches", &self.launches)
            .finish_non_exhaustive()
    }
}
