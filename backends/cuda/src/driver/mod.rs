//! The driver: checks pointers and extents, and turns calls into kernel launches.

mod attention;
mod conv;
mod elementwise;
mod index;
mod lines;
mod memory;
mod pool;
mod products;
mod queue;
mod random;
mod record;
mod reduce;
mod reports;
mod rows;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use polygrad_core::compute::{
    ArgReduce, Attention, AttentionBackward, Batch, Binary, ByteCopy, ComputeBackend, Conv2d, CrossEntropy, CumSum,
    DevicePtr, Driver, DriverCapabilities, Elementwise, Fill, Gather, Gemm, Kernel, LayerNorm, Pool2d, Random,
    Recording, Reduce, ReduceAxes, Scatter, Softmax, Sort, Unary,
};
use polygrad_core::{DType, DeviceInfo, DeviceSpec, Error, ErrorKind, Result};

use crate::runtime::{self, Cuda, Runtime};
use elementwise::floats;
use memory::Space;
use queue::Queue;

/// A driver for one NVIDIA GPU.
#[derive(Debug)]
pub struct CudaDriver {
    name: String,
    index: usize,
    tf32: bool,
    /// The runtime to open instead of CUDA, if one was given. The lock is held while it is opened.
    given: Mutex<Option<Box<dyn Runtime>>>,
    queue: OnceLock<Queue>,
}

impl CudaDriver {
    /// The driver for `cuda` or `cuda:1`. The option `tf32=on` allows f32 products to round their operands to fewer
    /// digits.
    ///
    /// # Errors
    /// If the string asks for anything else. Whether the device exists is checked by [`ComputeBackend::init`].
    pub fn open(spec: &DeviceSpec) -> Result<Self> {
        spec.expect(1, &["tf32"])?;
        let index = match spec.path().first() {
            None => 0,
            Some(text) => text.parse().map_err(|_| {
                spec.malformed(format!("{text:?} is no device index"))
                    .with_hint("write cuda or cuda:1")
            })?,
        };
        let tf32 = match spec.option("tf32") {
            None | Some("off") => false,
            Some("on") => true,
            Some(other) => {
                return Err(spec
                    .malformed(format!("tf32={other:?} means nothing"))
                    .with_hint("write tf32=on or tf32=off"));
            }
        };
        let mut name = match index {
            0 => Self::NAME.to_owned(),
            _ => format!("{}:{index}", Self::NAME),
        };
        if tf32 {
            name.push_str(":tf32=on");
        }
        Ok(Self {
            name,
            index,
            tf32,
            given: Mutex::default(),
            queue: OnceLock::new(),
        })
    }

    /// A driver over a runtime other than CUDA, for tests without a GPU.
    pub fn over(runtime: Box<dyn Runtime>) -> Self {
        Self {
            name: Self::NAME.to_owned(),
            index: 0,
            tf32: false,
            given: Mutex::new(Some(runtime)),
            queue: OnceLock::new(),
        }
    }

    /// The devices that are available on this machine.
    pub fn list() -> Vec<DeviceInfo> {
        runtime::devices()
    }

    fn opened(&self, name: &'static str) -> Result<&Queue> {
        self.queue.get().ok_or_else(|| {
            Error::new(ErrorKind::NotInitialized, "the driver has not been initialized")
                .with_op(name)
                .with_device(&self.name)
                .with_hint("call init first")
        })
    }

    /// Makes a call with the allocations locked, so that none of its operands is freed meanwhile.
    fn call<T>(&self, name: &'static str, run: impl FnOnce(&Queue, &mut Space<'_>) -> Result<T>) -> Result<T> {
        let queue = self.opened(name)?;
        let mut space = queue.tables.space();
        run(queue, &mut space).map_err(|error| error.with_op(name).with_device(&self.name))
    }
}

impl Driver for CudaDriver {
    const NAME: &'static str = "cuda";
}

impl ComputeBackend for CudaDriver {
    fn name(&self) -> &str {
        &self.name
    }

    fn init(&self) -> Result<()> {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        if self.queue.get().is_none() {
            let runtime: Arc<dyn Runtime> = match given.take() {
                Some(runtime) => Arc::from(runtime),
                None => {
                    let cuda = Cuda::open(self.index);
                    Arc::new(cuda.map_err(|error| error.with_op("init").with_device(&self.name))?)
                }
            };
            // Set only while the lock is held.
            let _ = self.queue.set(Queue::new(runtime, self.tf32));
        }
        Ok(())
    }

    fn is_initialized(&self) -> bool {
        self.queue.get().is_some()
    }

    fn capabilities(&self) -> DriverCapabilities {
        let facts = self.queue.get().map(|queue| queue.runtime.facts());
        let device = facts.map_or("an NVIDIA GPU", |facts| &facts.name);
        let mut out = DriverCapabilities::new(device, DType::ALL);
        out.asynchronous = true;
        out.records = true;
        out.max_elementwise_views = elementwise::MAX_VIEWS;
        out
    }

    fn supports(&self, kernel: Kernel, dtype: DType) -> bool {
        match kernel {
            Kernel::Elementwise
            | Kernel::ReduceAxes
            | Kernel::ArgReduce
            | Kernel::Sort
            | Kernel::Gather
            | Kernel::Scatter => true,
            Kernel::CumSum | Kernel::ScatterAdd | Kernel::MaxPool2d => dtype != DType::Bool,
            Kernel::Conv2dForward
            | Kernel::Conv2dInputGrad
            | Kernel::Conv2dWeightGrad
            | Kernel::AvgPool2d
            | Kernel::Attention
            | Kernel::Softmax
            | Kernel::SoftmaxBackward
            | Kernel::LayerNorm
            | Kernel::CrossEntropy
            | Kernel::CrossEntropyBackward => dtype.is_float(),
            Kernel::AttentionBackward => attention::has_gradient(self.queue.get(), dtype),
            _ => false,
        }
    }

    fn devices(&self) -> Vec<DeviceInfo> {
        Self::list()
    }

    fn alloc(&self, bytes: usize) -> Result<DevicePtr> {
        self.call("alloc", |queue, space| {
            let allocation = queue.alloc(bytes)?;
            Ok(space.insert(bytes, allocation))
        })
    }

    fn free(&self, ptr: DevicePtr) -> Result<()> {
        self.call("free", |queue, space| queue.free(space.remove(ptr)?))
    }

    fn copy_htod(&self, dst: DevicePtr, src: &[u8]) -> Result<()> {
        self.call("copy_htod", |queue, space| match space.bytes(dst, src.len())? {
            0 => Ok(()),
            address => queue.write(address, src),
        })
    }

    fn copy_dtoh(&self, dst: &mut [u8], src: DevicePtr) -> Result<()> {
        let name = "copy_dtoh";
        let read = self.call(name, |queue, space| queue.read(space, src, dst.len()))?;
        // The lock is released first, so that other threads can continue during the wait.
        let bytes = read.wait();
        let bytes = bytes.map_err(|error| error.with_op(name).with_device(&self.name))?;
        dst.copy_from_slice(&bytes);
        Ok(())
    }

    fn copy_dtod(&self, dst: DevicePtr, src: DevicePtr, bytes: usize) -> Result<()> {
        self.call("copy_dtod", |queue, space| {
            let (from, to) = (space.bytes(src, bytes)?, space.bytes(dst, bytes)?);
            if bytes == 0 || from == to {
                return Ok(());
            }
            if from.abs_diff(to) >= bytes as u64 {
                return queue.runtime.copy(to, from, bytes);
            }
            let scratch = queue.scratch(bytes)?;
            queue.runtime.copy(scratch.address(), from, bytes)?;
            queue.runtime.copy(to, scratch.address(), bytes)?;
            scratch.release()
        })
    }

    fn copy_each(&self, copies: &[ByteCopy]) -> Result<()> {
        self.call("copy_each", |queue, space| record::copy_each(queue, space, copies))
    }

    fn record(&self, calls: &mut dyn FnMut() -> Result<()>) -> Result<Recording> {
        // Without the lock that calls take.
        let graph = record::record(self.opened("record")?, calls);
        let graph = graph.map_err(|error| error.with_op("record").with_device(&self.name))?;
        Ok(Recording::new(graph))
    }

    fn replay(&self, recording: &Recording) -> Result<()> {
        self.call("replay", |queue, _| {
            let foreign = || Error::invalid("a recording that another driver made");
            record::replay(queue, recording.get().ok_or_else(foreign)?)
        })
    }

    fn synchronize(&self) -> Result<()> {
        let done = self.opened("synchronize")?.synchronize();
        done.map_err(|error| error.with_op("synchronize").with_device(&self.name))
    }

    fn gemm(&self, call: &Gemm) -> Result<()> {
        self.call("gemm", |queue, space| products::gemm(queue, space, call, &Batch::ONE))
    }

    fn batched_gemm(&self, call: &Gemm, batch: &Batch) -> Result<()> {
        self.call("batched_gemm", |queue, space| products::gemm(queue, space, call, batch))
    }

    fn conv2d_forward(&self, call: &Conv2d) -> Result<()> {
        let run = |queue: &Queue, space: &mut Space<'_>| conv::conv2d(queue, space, call, conv::Side::Output);
        self.call("conv2d_forward", run)
    }

    fn conv2d_input_grad(&self, call: &Conv2d) -> Result<()> {
        let run = |queue: &Queue, space: &mut Space<'_>| conv::conv2d(queue, space, call, conv::Side::Input);
        self.call("conv2d_input_grad", run)
    }

    fn conv2d_weight_grad(&self, call: &Conv2d) -> Result<()> {
        let run = |queue: &Queue, space: &mut Space<'_>| conv::conv2d(queue, space, call, conv::Side::Weight);
        self.call("conv2d_weight_grad", run)
    }

    fn attention(&self, call: &Attention) -> Result<()> {
        self.call("attention", |queue, space| attention::attention(queue, space, call))
    }

    fn attention_backward(&self, call: &AttentionBackward) -> Result<()> {
        self.call("attention_backward", |queue, space| {
            attention::attention_backward(queue, space, call)
        })
    }

    fn unary(&self, call: &Unary) -> Result<()> {
        call.by_elementwise(self)
    }

    fn binary(&self, call: &Binary) -> Result<()> {
        call.by_elementwise(self)
    }

    fn elementwise(&self, call: &Elementwise<'_>) -> Result<()> {
        self.call("elementwise", |queue, space| {
            elementwise::elementwise(queue, space, call)
        })
    }

    fn fill(&self, call: &Fill) -> Result<()> {
        call.by_elementwise(self)
    }

    fn random(&self, call: &Random) -> Result<()> {
        self.call("random", |queue, space| random::random(queue, space, call))
    }

    fn reduce(&self, call: &Reduce) -> Result<()> {
        self.call("reduce", |queue, space| reduce::reduce(queue, space, call))
    }

    fn reduce_axes(&self, call: &ReduceAxes) -> Result<()> {
        self.call("reduce_axes", |queue, space| reduce::reduce_axes(queue, space, call))
    }

    fn arg_reduce(&self, call: &ArgReduce) -> Result<()> {
        self.call("arg_reduce", |queue, space| lines::arg_reduce(queue, space, call))
    }

    fn cumsum(&self, call: &CumSum) -> Result<()> {
        self.call("cumsum", |queue, space| lines::cumsum(queue, space, call))
    }

    fn sort(&self, call: &Sort) -> Result<()> {
        self.call("sort", |queue, space| lines::sort(queue, space, call))
    }

    fn softmax(&self, call: &Softmax) -> Result<()> {
        self.call("softmax", |queue, space| rows::softmax(queue, space, call, false))
    }

    fn softmax_backward(&self, call: &Softmax) -> Result<()> {
        let run = |queue: &Queue, space: &mut Space<'_>| rows::softmax(queue, space, call, true);
        self.call("softmax_backward", run)
    }

    fn layer_norm(&self, call: &LayerNorm) -> Result<()> {
        self.call("layer_norm", |queue, space| rows::layer_norm(queue, space, call))
    }

    fn cross_entropy(&self, call: &CrossEntropy) -> Result<()> {
        let run = |queue: &Queue, space: &mut Space<'_>| rows::cross_entropy(queue, space, call, false);
        self.call("cross_entropy", run)
    }

    fn cross_entropy_backward(&self, call: &CrossEntropy) -> Result<()> {
        let run = |queue: &Queue, space: &mut Space<'_>| rows::cross_entropy(queue, space, call, true);
        self.call("cross_entropy_backward", run)
    }

    fn max_pool2d(&self, call: &Pool2d) -> Result<()> {
        self.call("max_pool2d", |queue, space| pool::pool2d(queue, space, call, true))
    }

    fn avg_pool2d(&self, call: &Pool2d) -> Result<()> {
        self.call("avg_pool2d", |queue, space| pool::pool2d(queue, space, call, false))
    }

    fn gather(&self, call: &Gather) -> Result<()> {
        self.call("gather", |queue, space| index::gather(queue, space, call))
    }

    fn scatter(&self, call: &Scatter) -> Result<()> {
        self.call("scatter", |queue, space| index::scatter(queue, space, call, false))
    }

    fn scatter_add(&self, call: &Scatter) -> Result<()> {
        self.call("scatter_add", |queue, space| index::scatter(queue, space, call, true))
    }
}
