//! The driver itself.

use std::sync::{Mutex, OnceLock};

use polygrad_core::compute::{
    ArgReduce, Attention, Batch, Binary, ComputeBackend, Conv2d, CrossEntropy, CumSum, DevicePtr, Driver,
    DriverCapabilities, Elementwise, Fill, Gather, Gemm, Kernel, LayerNorm, Pool2d, Random, Reduce, ReduceAxes,
    Scatter, Softmax, Sort, Unary,
};
use polygrad_core::{DType, DeviceInfo, DeviceSpec, Error, ErrorKind, Result, Shape, random_host};

use crate::adapter;
use crate::conv::Gives;
use crate::failure::lock;
use crate::gpu::{Gpu, Session};

/// A GPU, through Vulkan, Metal, DirectX 12 or WebGPU.
///
/// The adapter is opened only by [`init`](ComputeBackend::init). Calls are recorded and submitted in batches; only
/// calls that read wait.
///
/// ```no_run
/// use polygrad_core::compute::ComputeBackend;
/// use polygrad_wgpu::WgpuDriver;
///
/// # fn main() -> polygrad_core::Result<()> {
/// let driver = WgpuDriver::open(None);
/// driver.init()?;
/// println!("{}", driver.capabilities().device);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct WgpuDriver {
    index: Option<usize>,
    name: String,
    gpu: OnceLock<Gpu>,
    opening: Mutex<()>,
}

impl WgpuDriver {
    /// The adapter with this index in [`devices`](ComputeBackend::devices); without an index, the first one, which is
    /// the fastest.
    pub fn open(index: Option<usize>) -> Self {
        Self {
            index,
            name: adapter::spec(index.unwrap_or(0)),
            gpu: OnceLock::new(),
            opening: Mutex::new(()),
        }
    }

    /// The driver for a device string: `wgpu`, `wgpu:1`.
    ///
    /// # Errors
    /// If it asks for anything else.
    pub fn from_spec(spec: &DeviceSpec) -> Result<Self> {
        spec.expect(1, &[])?;
        let index = spec.path().first().map(|text| text.parse());
        match index.transpose() {
            Ok(index) => Ok(Self::open(index)),
            Err(_) => Err(spec
                .malformed("an adapter has a number".to_owned())
                .with_hint("write wgpu or wgpu:1; polygrad devices lists them")),
        }
    }

    /// The device string of the first adapter that is a GPU, for `auto`.
    ///
    /// # Errors
    /// The reason, if there is no adapter, or only software.
    pub fn choice() -> Result<String, String> {
        adapter::choice()
    }

    /// An initialized driver, also on a web page, where no thread may block.
    ///
    /// # Errors
    /// As [`init`](ComputeBackend::init).
    pub async fn new_async(index: Option<usize>) -> Result<Self> {
        let driver = Self::open(index);
        let gpu = adapter::open(index, &driver.name).await?;
        let _ = driver.gpu.set(gpu);
        Ok(driver)
    }

    /// Number of kernels launched so far.
    pub fn launches(&self) -> u64 {
        self.gpu.get().map_or(0, |gpu| lock(&gpu.state).launched)
    }

    fn gpu(&self) -> Result<&Gpu> {
        self.gpu.get().ok_or_else(|| {
            Error::new(ErrorKind::NotInitialized, "the driver is not initialized")
                .with_device(&self.name)
                .with_hint("call init first")
        })
    }

    pub(crate) fn session(&self) -> Result<Session<'_>> {
        self.gpu()?.session()
    }

    /// Reads the bytes at an address asynchronously: for web pages, where no thread may block.
    ///
    /// # Errors
    /// As [`copy_dtoh`](ComputeBackend::copy_dtoh).
    #[cfg(target_arch = "wasm32")]
    pub async fn read_async(&self, src: DevicePtr, bytes: usize) -> Result<Vec<u8>> {
        crate::browser::read(self.gpu()?, src, bytes).await
    }
}

impl Driver for WgpuDriver {
    const NAME: &'static str = "wgpu";
}

impl ComputeBackend for WgpuDriver {
    fn name(&self) -> &str {
        &self.name
    }

    fn init(&self) -> Result<()> {
        if cfg!(target_arch = "wasm32") && self.gpu.get().is_none() {
            return Err(Error::unsupported("a browser's page cannot wait for its GPU")
                .with_hint("WgpuDriver::new_async gives an open driver"));
        }
        let _opening = lock(&self.opening);
        if self.gpu.get().is_none() {
            let gpu = crate::wait::block_on(adapter::open(self.index, &self.name))?;
            let _ = self.gpu.set(gpu);
        }
        Ok(())
    }

    fn is_initialized(&self) -> bool {
        self.gpu.get().is_some()
    }

    fn capabilities(&self) -> DriverCapabilities {
        use DType::{BF16, Bool, F16, F32, I32, I64, U8};
        let gpu = self.gpu.get();
        let name = gpu.map_or_else(|| self.name.clone(), |gpu| gpu.info.name.clone());
        let mut out = DriverCapabilities::new(name, [F32, F16, BF16, I32, I64, U8, Bool]);
        out.asynchronous = true;
        if let Some(gpu) = gpu {
            out.max_elementwise_views = (gpu.limits.max_storage_buffers_per_shader_stage as usize).min(12);
        }
        out
    }

    fn supports(&self, kernel: Kernel, dtype: DType) -> bool {
        let there = dtype != DType::F64 && (dtype != DType::I64 || self.gpu.get().is_none_or(|gpu| gpu.int64));
        let float = there && dtype.is_float();
        match kernel {
            Kernel::Elementwise | Kernel::ReduceAxes | Kernel::Sort | Kernel::ArgReduce => there,
            Kernel::CumSum | Kernel::MaxPool2d => there && dtype != DType::Bool,
            // Moving elements needs no arithmetic.
            Kernel::Gather | Kernel::Scatter => dtype != DType::F64,
            Kernel::ScatterAdd => !matches!(dtype, DType::F64 | DType::Bool),
            Kernel::Conv2dForward
            | Kernel::Conv2dInputGrad
            | Kernel::Conv2dWeightGrad
            | Kernel::AvgPool2d
            | Kernel::Attention
            | Kernel::Softmax
            | Kernel::SoftmaxBackward
            | Kernel::LayerNorm
            | Kernel::CrossEntropy
            | Kernel::CrossEntropyBackward => float,
            _ => false,
        }
    }

    fn devices(&self) -> Vec<DeviceInfo> {
        adapter::devices()
    }

    fn alloc(&self, bytes: usize) -> Result<DevicePtr> {
        self.session()?.alloc(bytes).map_err(|error| error.with_op("alloc"))
    }

    fn free(&self, ptr: DevicePtr) -> Result<()> {
        self.session()?.state.space.remove(ptr).map(drop)
    }

    fn copy_htod(&self, dst: DevicePtr, src: &[u8]) -> Result<()> {
        self.session()?.upload(dst, src)
    }

    fn copy_dtoh(&self, dst: &mut [u8], src: DevicePtr) -> Result<()> {
        self.gpu()?.download(dst, Some(src))
    }

    fn copy_dtod(&self, dst: DevicePtr, src: DevicePtr, bytes: usize) -> Result<()> {
        self.session()?.copy_within(dst, src, bytes)
    }

    fn synchronize(&self) -> Result<()> {
        self.gpu()?.download(&mut [], None)
    }

    fn gemm(&self, call: &Gemm) -> Result<()> {
        self.batched_gemm(call, &Batch::ONE)
    }

    fn batched_gemm(&self, call: &Gemm, batch: &Batch) -> Result<()> {
        let mut session = self.session()?;
        session.gemm(call, batch).map_err(|error| error.with_op("gemm"))
    }

    fn conv2d_forward(&self, call: &Conv2d) -> Result<()> {
        named("conv2d_forward", self.session()?.conv(call, Gives::Output))
    }

    fn conv2d_input_grad(&self, call: &Conv2d) -> Result<()> {
        named("conv2d_input_grad", self.session()?.conv(call, Gives::Input))
    }

    fn conv2d_weight_grad(&self, call: &Conv2d) -> Result<()> {
        named("conv2d_weight_grad", self.session()?.conv(call, Gives::Weight))
    }

    fn attention(&self, call: &Attention) -> Result<()> {
        named("attention", self.session()?.attention(call))
    }

    fn unary(&self, call: &Unary) -> Result<()> {
        call.by_elementwise(self)
    }

    fn binary(&self, call: &Binary) -> Result<()> {
        call.by_elementwise(self)
    }

    fn elementwise(&self, call: &Elementwise<'_>) -> Result<()> {
        self.session()?.elementwise(call)
    }

    fn fill(&self, call: &Fill) -> Result<()> {
        call.by_elementwise(self)
    }

    fn random(&self, call: &Random) -> Result<()> {
        if self.session()?.random(call).map_err(|error| error.with_op("random"))? {
            return Ok(());
        }
        let host = random_host(Shape::new(&[call.len])?, call.distribution, call.dtype, call.key)?;
        self.copy_htod(call.output, host.bytes())
    }

    fn reduce(&self, call: &Reduce) -> Result<()> {
        named(call.op.name(), self.session()?.reduce(call))
    }

    fn reduce_axes(&self, call: &ReduceAxes) -> Result<()> {
        named(call.op.name(), self.session()?.reduce_axes(call))
    }

    fn arg_reduce(&self, call: &ArgReduce) -> Result<()> {
        named(call.op.name(), self.session()?.arg_reduce(call))
    }

    fn cumsum(&self, call: &CumSum) -> Result<()> {
        named("cumsum", self.session()?.cumsum(call))
    }

    fn sort(&self, call: &Sort) -> Result<()> {
        named("sort", self.session()?.sort(call))
    }

    fn softmax(&self, call: &Softmax) -> Result<()> {
        named("softmax", self.session()?.softmax(call, None))
    }

    fn softmax_backward(&self, call: &Softmax) -> Result<()> {
        named("softmax_backward", self.session()?.softmax_backward(call))
    }

    fn layer_norm(&self, call: &LayerNorm) -> Result<()> {
        named("layer_norm", self.session()?.layer_norm(call))
    }

    fn cross_entropy(&self, call: &CrossEntropy) -> Result<()> {
        named("cross_entropy", self.session()?.cross_entropy(call))
    }

    fn cross_entropy_backward(&self, call: &CrossEntropy) -> Result<()> {
        named("cross_entropy_backward", self.session()?.cross_entropy_backward(call))
    }

    fn max_pool2d(&self, call: &Pool2d) -> Result<()> {
        named("max_pool2d", self.session()?.pool(call, true))
    }

    fn avg_pool2d(&self, call: &Pool2d) -> Result<()> {
        named("avg_pool2d", self.session()?.pool(call, false))
    }

    fn gather(&self, call: &Gather) -> Result<()> {
        named("gather", self.session()?.gather(call))
    }

    fn scatter(&self, call: &Scatter) -> Result<()> {
        named("scatter", self.session()?.scatter(call, false))
    }

    fn scatter_add(&self, call: &Scatter) -> Result<()> {
        named("scatter_add", self.session()?.scatter(call, true))
    }
}

/// Adds the op to an error, unless a part of the call has already named another.
fn named(op: &'static str, result: Result<()>) -> Result<()> {
    result.map_err(|error| error.with_op(op))
}
