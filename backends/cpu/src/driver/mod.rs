//! The native kernels as a driver: the trait for devices, on the CPU. It is the reference for the drivers of other
//! devices.
//!
//! Memory is a table of allocations. Each pointer and extent is looked up there. The result is a tensor or a place that
//! is known to lie inside one allocation, and that no other call writes until this one is done. Calls on several
//! threads run at the same time if their memory allows it.

mod claims;
mod elementwise;
mod memory;
mod products;
mod steps;
mod strided;
mod tensors;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};

use polygrad_core::compute::{
    ArgReduce, Attention, Batch, Binary, ComputeBackend, Conv2d, CrossEntropy, CumSum, DevicePtr, Driver,
    DriverCapabilities, Elementwise, Fill, Gather, Gemm, Kernel, LayerNorm, Pool2d, Random, Reduce, ReduceAxes,
    Scatter, Softmax, Sort, Unary,
};
use polygrad_core::{Availability, DType, DeviceInfo, DeviceSpec, Error, ErrorKind, Result};

use crate::{CpuDevice, buffers};
use claims::{Claims, Memory};

/// The native CPU kernels behind the trait for drivers.
///
/// ```
/// use polygrad_core::compute::{ComputeBackend, Unary};
/// use polygrad_core::{DType, UnaryOp};
/// use polygrad_cpu::CpuDriver;
///
/// # fn main() -> polygrad_core::Result<()> {
/// let driver = CpuDriver::default();
/// driver.init()?;
/// let x = driver.alloc(8)?;
/// driver.copy_htod(x, &[(-1f32).to_ne_bytes(), 2f32.to_ne_bytes()].concat())?;
/// let (op, dtype) = (UnaryOp::Relu, DType::F32);
/// driver.unary(&Unary { op, dtype, len: 2, input: x, output: x })?;
/// let mut bytes = [0; 8];
/// driver.copy_dtoh(&mut bytes, x)?;
/// assert_eq!(bytes, [0f32.to_ne_bytes(), 2f32.to_ne_bytes()].concat()[..]);
/// driver.free(x)
/// # }
/// ```
#[derive(Debug)]
pub struct CpuDriver {
    name: String,
    device: CpuDevice,
    initialized: AtomicBool,
    memory: Memory,
}

impl CpuDriver {
    /// A driver that computes with the threads and kernels of a device, in memory of its own.
    pub fn new(device: CpuDevice) -> Self {
        Self {
            name: format!("compute-{device}"),
            device,
            initialized: AtomicBool::new(false),
            memory: Memory::default(),
        }
    }

    /// The driver for `compute-cpu`, with the options of `cpu`: `compute-cpu:threads=2,kernels=scalar`.
    ///
    /// # Errors
    /// When the string asks for anything else.
    pub fn open(spec: &DeviceSpec) -> Result<Self> {
        CpuDevice::open(spec).map(Self::new)
    }

    /// Runs a call, which keeps the memory that it looks up until it ends.
    fn call<T>(&self, name: &'static str, run: impl FnOnce(&Claims<'_>) -> Result<T>) -> Result<T> {
        self.checked(name, |memory| run(&memory.begin()))
    }

    /// Runs a memory operation.
    fn checked<T>(&self, name: &'static str, run: impl FnOnce(&Memory) -> Result<T>) -> Result<T> {
        let name = || (name, &self.name);
        if !self.is_initialized() {
            let (op, device) = name();
            return Err(
                Error::new(ErrorKind::NotInitialized, "the driver has not been initialized")
                    .with_op(op)
                    .with_device(device)
                    .with_hint("call init first"),
            );
        }
        run(&self.memory).map_err(|error| {
            let (op, device) = name();
            error.with_op(op).with_device(device)
        })
    }
}

impl Default for CpuDriver {
    /// On all cores.
    fn default() -> Self {
        Self::new(CpuDevice::default())
    }
}

impl Driver for CpuDriver {
    const NAME: &'static str = "compute-cpu";
}

impl ComputeBackend for CpuDriver {
    fn name(&self) -> &str {
        &self.name
    }

    fn init(&self) -> Result<()> {
        self.initialized.store(true, Ordering::Release);
        Ok(())
    }

    fn is_initialized(&self) -> bool {
        self.initialized.load(Ordering::Acquire)
    }

    fn capabilities(&self) -> DriverCapabilities {
        let device = format!("{} threads, {}", self.device.threads(), self.device.level().name());
        let mut out = DriverCapabilities::new(device, DType::ALL);
        out.unified_memory = true;
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
            _ => false,
        }
    }

    fn devices(&self) -> Vec<DeviceInfo> {
        vec![DeviceInfo {
            spec: Self::NAME.to_owned(),
            description: self.capabilities().device,
            availability: Availability::Available,
        }]
    }

    fn alloc(&self, bytes: usize) -> Result<DevicePtr> {
        self.checked("alloc", |memory| memory.alloc(bytes))
    }

    fn free(&self, ptr: DevicePtr) -> Result<()> {
        self.checked("free", |memory| memory.free(ptr))
    }

    fn copy_htod(&self, dst: DevicePtr, src: &[u8]) -> Result<()> {
        self.call("copy_htod", |memory| memory.write(dst, src))
    }

    fn copy_dtoh(&self, dst: &mut [u8], src: DevicePtr) -> Result<()> {
        self.call("copy_dtoh", |memory| memory.read(dst, src))
    }

    fn copy_dtod(&self, dst: DevicePtr, src: DevicePtr, bytes: usize) -> Result<()> {
        self.call("copy_dtod", |memory| memory.copy(dst, src, bytes))
    }

    fn synchronize(&self) -> Result<()> {
        self.checked("synchronize", |_| buffers::verdict())
    }

    fn gemm(&self, call: &Gemm) -> Result<()> {
        self.call("gemm", |memory| products::gemm(memory, call, &Batch::ONE, self.device))
    }

    fn batched_gemm(&self, call: &Gemm, batch: &Batch) -> Result<()> {
        self.call("batched_gemm", |memory| {
            products::gemm(memory, call, batch, self.device)
        })
    }

    fn conv2d_forward(&self, call: &Conv2d) -> Result<()> {
        self.call("conv2d_forward", |memory| tensors::conv2d(memory, call, self.device))
    }

    fn conv2d_input_grad(&self, call: &Conv2d) -> Result<()> {
        let run = |memory: &Claims<'_>| tensors::conv2d_input_grad(memory, call, self.device);
        self.call("conv2d_input_grad", run)
    }

    fn conv2d_weight_grad(&self, call: &Conv2d) -> Result<()> {
        let run = |memory: &Claims<'_>| tensors::conv2d_weight_grad(memory, call, self.device);
        self.call("conv2d_weight_grad", run)
    }

    fn attention(&self, call: &Attention) -> Result<()> {
        self.call("attention", |memory| tensors::attention(memory, call, self.device))
    }

    fn unary(&self, call: &Unary) -> Result<()> {
        call.by_elementwise(self)
    }

    fn binary(&self, call: &Binary) -> Result<()> {
        call.by_elementwise(self)
    }

    fn elementwise(&self, call: &Elementwise<'_>) -> Result<()> {
        let run = |memory: &Claims<'_>| elementwise::elementwise(memory, call, self.device);
        self.call("elementwise", run)
    }

    fn fill(&self, call: &Fill) -> Result<()> {
        call.by_elementwise(self)
    }

    fn random(&self, call: &Random) -> Result<()> {
        self.call("random", |memory| tensors::random(memory, call, self.device))
    }

    fn reduce(&self, call: &Reduce) -> Result<()> {
        self.call("reduce", |memory| tensors::reduce(memory, call, self.device))
    }

    fn reduce_axes(&self, call: &ReduceAxes) -> Result<()> {
        self.call("reduce_axes", |memory| tensors::reduce_axes(memory, call, self.device))
    }

    fn arg_reduce(&self, call: &ArgReduce) -> Result<()> {
        self.call("arg_reduce", |memory| tensors::arg_reduce(memory, call, self.device))
    }

    fn cumsum(&self, call: &CumSum) -> Result<()> {
        self.call("cumsum", |memory| tensors::cumsum(memory, call, self.device))
    }

    fn sort(&self, call: &Sort) -> Result<()> {
        self.call("sort", |memory| tensors::sort(memory, call, self.device))
    }

    fn softmax(&self, call: &Softmax) -> Result<()> {
        self.call("softmax", |memory| tensors::softmax(memory, call, self.device))
    }

    fn softmax_backward(&self, call: &Softmax) -> Result<()> {
        let run = |memory: &Claims<'_>| tensors::softmax_backward(memory, call, self.device);
        self.call("softmax_backward", run)
    }

    fn layer_norm(&self, call: &LayerNorm) -> Result<()> {
        self.call("layer_norm", |memory| tensors::layer_norm(memory, call, self.device))
    }

    fn cross_entropy(&self, call: &CrossEntropy) -> Result<()> {
        let run = |memory: &Claims<'_>| tensors::cross_entropy(memory, call, self.device);
        self.call("cross_entropy", run)
    }

    fn cross_entropy_backward(&self, call: &CrossEntropy) -> Result<()> {
        let run = |memory: &Claims<'_>| tensors::cross_entropy_backward(memory, call, self.device);
        self.call("cross_entropy_backward", run)
    }

    fn max_pool2d(&self, call: &Pool2d) -> Result<()> {
        self.call("max_pool2d", |memory| tensors::max_pool2d(memory, call, self.device))
    }

    fn avg_pool2d(&self, call: &Pool2d) -> Result<()> {
        self.call("avg_pool2d", |memory| tensors::avg_pool2d(memory, call, self.device))
    }

    fn gather(&self, call: &Gather) -> Result<()> {
        self.call("gather", |memory| tensors::gather(memory, call, self.device))
    }

    fn scatter(&self, call: &Scatter) -> Result<()> {
        let run = |memory: &Claims<'_>| tensors::scatter(memory, call, false, self.device);
        self.call("scatter", run)
    }

    fn scatter_add(&self, call: &Scatter) -> Result<()> {
        let run = |memory: &Claims<'_>| tensors::scatter(memory, call, true, self.device);
        self.call("scatter_add", run)
    }
}
