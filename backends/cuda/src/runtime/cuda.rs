//! CUDA itself: a context and a stream from cudarc, modules, pinned memory for reads, and cuBLAS.
#![allow(unsafe_code)]

use std::any::Any;
use std::cell::Cell;
use std::ffi::{CString, c_void};
use std::fmt;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use cudarc::cublas::{result as blas, sys as blas_sys};
use cudarc::driver::{CudaContext, CudaStream, result, sys};
use polygrad_core::{DType, Error, ErrorKind, Result};

use super::errors::{blas_failed, failed};
use super::handles::{Executable, Pinned, is_pinned};
use super::{Facts, Function, Product, Readback, Runtime, kept, libraries};

/// Threads per block.
const BLOCK: u32 = 256;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes of cuBLAS's workspace for recorded calls: NVIDIA's recommendation for its large devices. Without a workspace,
/// cuBLAS would allocate in each product.
const WORKSPACE: usize = 32 << 20;

thread_local! {
    /// The address of the [`Cuda`] whose calls this thread records; 0 for none.
    static RECORDS: Cell<usize> = const { Cell::new(0) };
}

/// A device and its stream.
pub(crate) struct Cuda {
    device: Device,
    lane: Lane,
    /// The stream on which calls are recorded, created at the first recording.
    recorder: OnceLock<Lane>,
    /// The memory that reads are copied to.
    pinned: Arc<Pinned>,
}

/// A stream, and cuBLAS on it.
struct Lane {
    stream: Arc<CudaStream>,
    blas: Mutex<Blas>,
}

impl Lane {
    fn new(context: &Arc<CudaContext>, workspace: Option<usize>) -> Result<Self> {
        let stream = context.new_stream().map_err(failed)?;
        let mut blas = Blas {
            handle: blas::create_handle().map_err(blas_failed)?,
            workspace: None,
        };
        // Sums over several parts are rounded once, at the end.
        let exact = blas_sys::cublasMath_t::CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
        // SAFETY: both were created above; the two types name the same stream.
        unsafe { blas::set_stream(blas.handle, stream.cu_stream().cast()) }.map_err(blas_failed)?;
        // SAFETY: as above.
        unsafe { blas_sys::cublasSetMathMode(blas.handle, exact) }
            .result()
            .map_err(blas_failed)?;
        if let Some(bytes) = workspace {
            // SAFETY: the context is bound, since cuBLAS was given a stream of it.
            let memory = unsafe { result::malloc_sync(bytes) }.map_err(failed)?;
            blas.workspace = Some(memory);
            // SAFETY: the memory has `bytes` bytes, and is freed after the handle.
            unsafe { blas_sys::cublasSetWorkspace_v2(blas.handle, memory as *mut c_void, bytes) }
                .result()
                .map_err(blas_failed)?;
        }
        Ok(Self {
            stream,
            blas: Mutex::new(blas),
        })
    }
}

/// The device and the modules that were loaded on it.
struct Device {
    context: Arc<CudaContext>,
    facts: Facts,
    capability: u32,
    modules: Mutex<Vec<Module>>,
}

/// A loaded module and its kernel.
struct Module {
    module: sys::CUmodule,
    function: sys::CUfunction,
}

// SAFETY: modules and functions belong to the context, and CUDA accepts them on any thread that the context is bound
// to.
unsafe impl Send for Module {}

struct Blas {
    handle: blas_sys::cublasHandle_t,
    /// The workspace that it was given, if not its own.
    workspace: Option<sys::CUdeviceptr>,
}

impl Drop for Blas {
    fn drop(&mut self) {
        // SAFETY: both were created, and are freed once, while the context is bound. Errors cannot be handled here.
        unsafe {
            let _ = blas::destroy_handle(self.handle);
            if let Some(memory) = self.workspace {
                let _ = result::free_sync(memory);
            }
        }
    }
}

// SAFETY: a handle may be used on any thread, but only one at a time, which the lock around it guarantees.
unsafe impl Send for Blas {}

/// Lets freed memory stay with the process: by default, all of it is returned to the driver each time that the host
/// waits for the device.
fn keep_freed_memory(context: &CudaContext) -> Result<()> {
    let mut pool = ptr::null_mut();
    let mut all = u64::MAX;
    let threshold = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
    // SAFETY: the pool is the device's own, which lives as long as the device; the attribute is a 64-bit number, which
    // is copied.
    unsafe {
        sys::cuDeviceGetDefaultMemPool(&raw mut pool, context.cu_device())
            .result()
            .and_then(|()| sys::cuMemPoolSetAttribute(pool, threshold, (&raw mut all).cast()).result())
    }
    .map_err(failed)
}

impl Cuda {
    /// Opens the device of this index.
    ///
    /// # Errors
    /// [`ErrorKind::BackendUnavailable`] if a library or the device is missing.
    pub(crate) fn open(index: usize) -> Result<Self> {
        libraries::present()?;
        libraries::check_index(index)?;
        let context = CudaContext::new(index).map_err(failed)?;
        let attribute = |attribute| context.attribute(attribute).map_err(failed);
        let processors = attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let (major, minor) = context.compute_capability().map_err(failed)?;
        if !context.has_async_alloc() {
            let message = "the device has no memory pools, which this driver allocates from";
            return Err(Error::new(ErrorKind::BackendUnavailable, message)
                .with_hint("update NVIDIA's driver; on virtual GPUs ask for one with memory pools"));
        }
        keep_freed_memory(&context)?;
        let facts = Facts {
            name: context.name().map_err(failed)?,
            block: BLOCK,
            busy: u32::try_from(processors).unwrap_or(1) * 8,
            matrices: major >= 8,
        };
        let device = Device {
            context,
            facts,
            capability: u32::try_from(major * 10 + minor).unwrap_or(0),
            modules: Mutex::default(),
        };
        Ok(Self {
            pinned: Pinned::new(&device.context),
            lane: Lane::new(&device.context, None)?,
            recorder: OnceLock::new(),
            device,
        })
    }

    fn records(&self) -> bool {
        RECORDS.get() == ptr::from_ref(self).addr()
    }

    /// The stream for this thread's calls.
    fn lane(&self) -> &Lane {
        match self.recorder.get() {
            Some(recorder) if self.records() => recorder,
            _ => &self.lane,
        }
    }

    fn bind(&self) -> Result<sys::CUstream> {
        self.device.context.bind_to_thread().map_err(failed)?;
        Ok(self.lane().stream.cu_stream())
    }

    /// Fails while this thread is recording, for operations that a graph cannot contain.
    fn not_recorded(&self, what: &str) -> Result<()> {
        match self.records() {
            false => Ok(()),
            true => Err(Error::unsupported(format!("{what} cannot be recorded"))
                .with_hint("copy to and from the host before and after what is recorded")),
        }
    }
}

impl fmt::Debug for Cuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cuda({}, sm_{})", self.device.facts.name, self.device.capability)
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        // The fields' drops need the context to be bound.
        let _ = self.bind();
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if self.context.bind_to_thread().is_ok() {
            for module in lock(&self.modules).drain(..) {
                // SAFETY: it was loaded, and is unloaded once, after the driver has waited for all its kernels.
                let _ = unsafe { result::module::unload(module.module) };
            }
        }
    }
}

impl Runtime for Cuda {
    fn facts(&self) -> &Facts {
        &self.device.facts
    }

    fn alloc(&self, bytes: usize) -> Result<u64> {
        let stream = self.bind()?;
        // SAFETY: the stream is this value's own.
        unsafe { result::malloc_async(stream, bytes) }.map_err(failed)
    }

    fn free(&self, address: u64) -> Result<()> {
        let stream = self.bind()?;
        // SAFETY: callers pass an address from `alloc`, once.
        unsafe { result::free_async(address, stream) }.map_err(failed)
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        self.not_recorded("a copy from the host")?;
        let stream = self.bind()?;
        // SAFETY: callers guarantee the address. From pageable memory, CUDA has copied the bytes when this returns.
        // From pinned memory it has when the stream is done, which is waited for below, before the borrow ends.
        unsafe { result::memcpy_htod_async(address, bytes, stream) }.map_err(failed)?;
        if is_pinned(bytes) {
            self.lane.stream.synchronize().map_err(failed)?;
        }
        Ok(())
    }

    fn read(&self, address: u64, bytes: usize) -> Result<Box<dyn Readback>> {
        self.not_recorded("a copy to the host")?;
        let stream = self.bind()?;
        // SAFETY: callers guarantee the address; the context was bound, and the stream belongs to it.
        unsafe { self.pinned.read(address, bytes, stream) }
    }

    fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<()> {
        let stream = self.bind()?;
        // SAFETY: callers guarantee the addresses.
        unsafe { result::memcpy_dtod_async(to, from, bytes, stream) }.map_err(failed)
    }

    fn compile(&self, source: &str, name: &str) -> Result<Function> {
        let image = kept::compile(source, self.device.capability)?;
        let name = CString::new(name).map_err(|_| Error::invalid("a kernel's name has a 0 in it"))?;
        self.bind()?;
        // SAFETY: the image is from NVRTC: a cubin, which contains its length, or a text that ends with a 0.
        let module = unsafe { result::module::load_data(image.bytes().as_ptr().cast()) }.map_err(failed)?;
        // SAFETY: the module was loaded above.
        let function = unsafe { result::module::get_function(module, name) }.map_err(failed)?;
        let mut modules = lock(&self.device.modules);
        modules.push(Module { module, function });
        Ok(Function(modules.len() - 1))
    }

    fn launch(&self, function: Function, blocks: u32, threads: u32, args: &[u64]) -> Result<()> {
        let stream = self.bind()?;
        let function = lock(&self.device.modules).get(function.0).map(|module| module.function);
        let function = function.ok_or_else(|| Error::invalid("a kernel that was not compiled here"))?;
        let mut parameters = [args.as_ptr().cast_mut().cast::<c_void>()];
        // SAFETY: the kernel has one parameter with the size of the arguments, which CUDA copies before it returns;
        // callers guarantee the addresses in it.
        unsafe { result::launch_kernel(function, (blocks, 1, 1), (threads, 1, 1), 0, stream, &mut parameters) }
            .map_err(failed)
    }

    fn gemm(&self, product: &Product) -> Result<()> {
        self.bind()?;
        let kind = |dtype: DType| match dtype {
            DType::F64 => Ok(blas_sys::cudaDataType::CUDA_R_64F),
            DType::F32 => Ok(blas_sys::cudaDataType::CUDA_R_32F),
            DType::F16 => Ok(blas_sys::cudaDataType::CUDA_R_16F),
            DType::BF16 => Ok(blas_sys::cudaDataType::CUDA_R_16BF),
            other => Err(Error::unsupported(format!("a product of {other} matrices"))),
        };
        let trans = |trans: polygrad_core::compute::Transpose| match trans.swaps() {
            true => blas_sys::cublasOperation_t::CUBLAS_OP_T,
            false => blas_sys::cublasOperation_t::CUBLAS_OP_N,
        };
        let compute = match (product.dtype, product.tf32) {
            (DType::F64, _) => blas_sys::cublasComputeType_t::CUBLAS_COMPUTE_64F,
            (DType::F32, true) => blas_sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
            _ => blas_sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
        };
        // cuBLAS takes the factors in the type of computation.
        let wide = [product.alpha, product.beta];
        let narrow = wide.map(|factor| factor as f32);
        let factors: [*const c_void; 2] = match product.dtype {
            DType::F64 => [(&raw const wide[0]).cast(), (&raw const wide[1]).cast()],
            _ => [(&raw const narrow[0]).cast(), (&raw const narrow[1]).cast()],
        };
        let (kind_a, kind_c) = (kind(product.dtype)?, kind(product.dtype_c)?);
        let ([m, n, k], [a, b, c]) = (product.dims, product.matrices);
        let blas = lock(&self.lane().blas);
        // SAFETY: callers guarantee addresses and extents; the factors outlive the call that reads them.
        unsafe {
            blas::gemm_strided_batched_ex(
                blas.handle,
                trans(product.trans_a),
                trans(product.trans_b),
                m,
                n,
                k,
                factors[0],
                a as *const c_void,
                kind_a,
                product.leading[0],
                product.strides[0],
                b as *const c_void,
                kind_a,
                product.leading[1],
                product.strides[1],
                factors[1],
                c as *mut c_void,
                kind_c,
                product.leading[2],
                product.strides[2],
                product.count,
                compute,
                blas_sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        }
        .map_err(blas_failed)
    }

    fn synchronize(&self) -> Result<()> {
        self.not_recorded("waiting")?;
        self.bind()?;
        self.lane.stream.synchronize().map_err(failed)
    }

    fn begin_capture(&self) -> Result<()> {
        self.not_recorded("recording itself")?;
        self.bind()?;
        let recorder = match self.recorder.get() {
            Some(recorder) => recorder,
            None => {
                let new = Lane::new(&self.device.context, Some(WORKSPACE))?;
                self.recorder.get_or_init(|| new)
            }
        };
        // In this mode, other threads may make calls that the other modes forbid.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the stream is this value's own.
        unsafe { result::stream::begin_capture(recorder.stream.cu_stream(), mode) }.map_err(failed)?;
        RECORDS.set(ptr::from_ref(self).addr());
        Ok(())
    }

    fn end_capture(&self) -> Result<Box<dyn Any + Send + Sync>> {
        let stream = self.bind()?;
        RECORDS.set(0);
        // SAFETY: the stream is this value's own; the graph is destroyed once, after it was made executable.
        unsafe {
            let graph = result::stream::end_capture(stream).map_err(failed)?;
            if graph.is_null() {
                return Err(Error::unsupported("what was called cannot be recorded"));
            }
            let executable = result::graph::instantiate(graph, sys::CUgraphInstantiate_flags_enum(0));
            let _ = result::graph::destroy(graph);
            let executable = executable.map_err(failed)?;
            Ok(Box::new(Executable::new(&self.device.context, executable)))
        }
    }

    fn aside(&self, calls: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        let records = RECORDS.replace(0);
        let done = calls();
        RECORDS.set(records);
        done
    }

    fn replay(&self, graph: &(dyn Any + Send + Sync)) -> Result<()> {
        let stream = self.bind()?;
        let foreign = || Error::invalid("a graph that another driver recorded");
        let graph: &Executable = graph.downcast_ref().ok_or_else(foreign)?;
        let graph = graph.of(&self.device.context).ok_or_else(foreign)?;
        // SAFETY: the graph belongs to this context, and callers guarantee the memory that it was recorded with.
        unsafe { result::graph::launch(graph, stream) }.map_err(failed)
    }
}
