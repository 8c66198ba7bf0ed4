//! The driver of a chip that computes nothing.

use std::sync::{Mutex, MutexGuard, PoisonError};

use polygrad_core::compute::{
    AddressSpace, ArgReduce, Attention, Batch, Binary, ComputeBackend, Conv2d, CumSum, DevicePtr, DeviceView, Driver,
    DriverCapabilities, Elementwise, Fill, Gather, Gemm, Kernel, LayerNorm, Pool2d, Random, Reduce, ReduceAxes,
    Scatter, Softmax, Sort, Unary,
};
use polygrad_core::{Availability, Axes, DType, DeviceInfo, Error, ErrorKind, ReduceOp, Result};

use crate::operands::{aligned, axis, bytes, conv, index_fits, pool, reduced, refuse, scatter, softmax, whole};

/// What a [`NullDriver`] has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DriverStats {
    /// Allocations that were not freed yet.
    pub live_allocations: usize,
    /// Their bytes.
    pub live_bytes: u64,
    /// The most [`DriverStats::live_bytes`] so far.
    pub peak_bytes: u64,
    /// Calls that compute: all but those for memory and [`ComputeBackend::synchronize`].
    pub kernels: u64,
}

/// A driver that takes every call and computes nothing: allocations have addresses and sizes, and no memory.
///
/// Pointers, extents and shapes are checked as everywhere; what is read back is zeros.
///
/// ```
/// use polygrad_core::compute::{ComputeBackend, Unary};
/// use polygrad_core::{DType, ErrorKind, UnaryOp};
/// use polygrad_null::NullDriver;
///
/// # fn main() -> polygrad_core::Result<()> {
/// let driver = NullDriver::default();
/// driver.init()?;
/// // A terabyte is nothing.
/// let x = driver.alloc(1 << 40)?;
/// let call = Unary { op: UnaryOp::Exp, dtype: DType::F32, len: 1 << 38, input: x, output: x };
/// driver.unary(&call)?;
/// let error = driver.unary(&Unary { output: x.add(4), ..call }).unwrap_err();
/// assert_eq!((error.kind(), driver.stats().kernels), (ErrorKind::InvalidArgument, 1));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct NullDriver(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    initialized: bool,
    space: AddressSpace<()>,
    stats: DriverStats,
}

impl NullDriver {
    /// What it has counted so far.
    pub fn stats(&self) -> DriverStats {
        self.lock().stats
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self, name: &'static str) -> Result<MutexGuard<'_, State>> {
        let state = self.lock();
        if state.initialized {
            return Ok(state);
        }
        Err(
            Error::new(ErrorKind::NotInitialized, "the driver has not been initialized")
                .with_op(name)
                .with_device(self.name())
                .with_hint("call init first"),
        )
    }

    fn memory<T>(&self, name: &'static str, run: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        run(&mut *self.open(name)?).map_err(|error| error.with_op(name).with_device(self.name()))
    }

    /// A call that computes, and whose operands are these.
    fn kernel(&self, name: &'static str, operands: impl FnOnce() -> Result<Vec<DeviceView>>) -> Result<()> {
        self.memory(name, |state| {
            for view in operands()? {
                let span = view.span()?;
                if !span.is_empty() {
                    aligned(&view)?;
                    state.space.find(view.ptr, span.end)?;
                }
            }
            state.stats.kernels += 1;
            Ok(())
        })
    }
}

impl Driver for NullDriver {
    const NAME: &'static str = "compute-null";
}

impl ComputeBackend for NullDriver {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn init(&self) -> Result<()> {
        self.lock().initialized = true;
        Ok(())
    }

    fn is_initialized(&self) -> bool {
        self.lock().initialized
    }

    fn capabilities(&self) -> DriverCapabilities {
        DriverCapabilities::new("nothing", DType::ALL)
    }

    fn supports(&self, kernel: Kernel, _: DType) -> bool {
        kernel != Kernel::Queues
    }

    fn devices(&self) -> Vec<DeviceInfo> {
        vec![DeviceInfo {
            spec: Self::NAME.to_owned(),
            description: "computes nothing".to_owned(),
            availability: Availability::Available,
        }]
    }

    fn alloc(&self, bytes: usize) -> Result<DevicePtr> {
        self.memory("alloc", |state| {
            let ptr = state.space.insert(bytes, ())?;
            state.stats.live_allocations = state.space.len();
            state.stats.live_bytes = state.space.bytes();
            state.stats.peak_bytes = state.stats.peak_bytes.max(state.stats.live_bytes);
            Ok(ptr)
        })
    }

    fn free(&self, ptr: DevicePtr) -> Result<()> {
        self.memory("free", |state| {
            state.space.remove(ptr)?;
            state.stats.live_allocations = state.space.len();
            state.stats.live_bytes = state.space.bytes();
            Ok(())
        })
    }

    fn copy_htod(&self, dst: DevicePtr, src: &[u8]) -> Result<()> {
        self.memory("copy_htod", |state| match src.len() {
            0 => Ok(()),
            bytes => state.space.find(dst, bytes).map(|_| ()),
        })
    }

    fn copy_dtoh(&self, dst: &mut [u8], src: DevicePtr) -> Result<()> {
        self.memory("copy_dtoh", |state| {
            if !dst.is_empty() {
                state.space.find(src, dst.len())?;
            }
            dst.fill(0);
            Ok(())
        })
    }

    fn copy_dtod(&self, dst: DevicePtr, src: DevicePtr, bytes: usize) -> Result<()> {
        self.memory("copy_dtod", |state| {
            if bytes > 0 {
                state.space.find(src, bytes)?;
                state.space.find(dst, bytes)?;
            }
            Ok(())
        })
    }

    fn synchronize(&self) -> Result<()> {
        self.open("synchronize").map(drop)
    }

    fn gemm(&self, call: &Gemm) -> Result<()> {
        let one = Batch {
            count: 1,
            stride_a: 0,
            stride_b: 0,
            stride_c: 0,
        };
        self.batched_gemm(call, &one)
    }

    fn batched_gemm(&self, call: &Gemm, batch: &Batch) -> Result<()> {
        self.kernel("gemm", || {
            let [a, b, c] = batch.spans(call)?;
            Ok(vec![
                bytes(call.a, call.dtype, a)?,
                bytes(call.b, call.dtype, b)?,
                bytes(call.c, call.dtype_c, c)?,
            ])
        })
    }

    fn conv2d_forward(&self, call: &Conv2d) -> Result<()> {
        self.kernel("conv2d_forward", || conv(call))
    }

    fn conv2d_input_grad(&self, call: &Conv2d) -> Result<()> {
        self.kernel("conv2d_input_grad", || conv(call))
    }

    fn conv2d_weight_grad(&self, call: &Conv2d) -> Result<()> {
        self.kernel("conv2d_weight_grad", || conv(call))
    }

    fn attention(&self, call: &Attention) -> Result<()> {
        self.kernel("attention", || {
            let [q, k, v, output] = call.spans()?;
            let all = [(call.q, q), (call.k, k), (call.v, v), (call.output, output)];
            all.into_iter()
                .map(|(ptr, span)| bytes(ptr, call.dtype, span))
                .collect()
        })
    }

    fn unary(&self, call: &Unary) -> Result<()> {
        let result = if call.op.is_predicate() {
            DType::Bool
        } else {
            call.dtype
        };
        self.kernel(call.op.name(), || {
            refuse(call.op.accepts(call.dtype), call.dtype)?;
            Ok(vec![
                whole(call.input, call.dtype, &[call.len])?,
                whole(call.output, result, &[call.len])?,
            ])
        })
    }

    fn binary(&self, call: &Binary) -> Result<()> {
        let Binary { op, dtype, len, .. } = *call;
        self.kernel(op.name(), || {
            refuse(op.accepts(dtype), dtype)?;
            let all = [call.a, call.b, call.output];
            all.into_iter().map(|ptr| whole(ptr, dtype, &[len])).collect()
        })
    }

    fn elementwise(&self, call: &Elementwise<'_>) -> Result<()> {
        self.kernel("elementwise", || {
            call.check()?;
            Ok(call.inputs.iter().chain(call.outputs).copied().collect())
        })
    }

    fn fill(&self, call: &Fill) -> Result<()> {
        self.kernel("fill", || Ok(vec![whole(call.output, call.dtype, &[call.len])?]))
    }

    fn random(&self, call: &Random) -> Result<()> {
        self.kernel("random", || Ok(vec![whole(call.output, call.dtype, &[call.len])?]))
    }

    fn reduce(&self, call: &Reduce) -> Result<()> {
        self.kernel("reduce", || {
            refuse(call.op.accepts(call.dtype), call.dtype)?;
            let [input, output] = call.spans()?;
            Ok(vec![
                bytes(call.input, call.dtype, input)?,
                bytes(call.output, call.dtype, output)?,
            ])
        })
    }

    fn reduce_axes(&self, call: &ReduceAxes) -> Result<()> {
        self.kernel("reduce_axes", || {
            let shape = call.input.shape();
            refuse(call.op.accepts(call.input.dtype), call.input.dtype)?;
            call.axes.iter().try_for_each(|i| axis(shape, i))?;
            reduced(call.op, shape, call.axes)?;
            let output = whole(call.output, call.input.dtype, &shape.reduced(call.axes, false))?;
            Ok(vec![call.input, output])
        })
    }

    fn arg_reduce(&self, call: &ArgReduce) -> Result<()> {
        self.kernel("arg_reduce", || {
            let shape = call.input.shape();
            axis(shape, call.axis)?;
            reduced(ReduceOp::Max, shape, Axes::one(call.axis))?;
            let kept = shape.reduced(Axes::one(call.axis), false);
            Ok(vec![call.input, whole(call.output, DType::I64, &kept)?])
        })
    }

    fn cumsum(&self, call: &CumSum) -> Result<()> {
        self.kernel("cumsum", || {
            axis(call.input.shape(), call.axis)?;
            Ok(vec![
                call.input,
                whole(call.output, call.input.dtype, call.input.shape())?,
            ])
        })
    }

    fn sort(&self, call: &Sort) -> Result<()> {
        self.kernel("sort", || {
            axis(call.input.shape(), call.axis)?;
            Ok(vec![
                call.input,
                whole(call.values, call.input.dtype, call.input.shape())?,
                whole(call.positions, DType::I64, call.input.shape())?,
            ])
        })
    }

    fn softmax(&self, call: &Softmax) -> Result<()> {
        self.kernel("softmax", || softmax(call, false))
    }

    fn softmax_backward(&self, call: &Softmax) -> Result<()> {
        self.kernel("softmax_backward", || softmax(call, true))
    }

    fn layer_norm(&self, call: &LayerNorm) -> Result<()> {
        self.kernel("layer_norm", || {
            let mut out = Vec::new();
            for ptr in [call.input, call.output] {
                out.push(whole(ptr, call.dtype, &[call.rows, call.columns])?);
            }
            for ptr in [call.mean, call.rstd] {
                out.push(whole(ptr, call.dtype, &[call.rows])?);
            }
            for ptr in [call.weight, call.bias].into_iter().flatten() {
                out.push(whole(ptr, call.dtype, &[call.columns])?);
            }
            Ok(out)
        })
    }

    fn max_pool2d(&self, call: &Pool2d) -> Result<()> {
        self.kernel("max_pool2d", || pool(call, true))
    }

    fn avg_pool2d(&self, call: &Pool2d) -> Result<()> {
        self.kernel("avg_pool2d", || pool(call, false))
    }

    fn gather(&self, call: &Gather) -> Result<()> {
        self.kernel("gather", || {
            index_fits(call.input.shape(), call.axis, &call.index)?;
            let output = whole(call.output, call.input.dtype, call.index.shape())?;
            Ok(vec![call.input, call.index, output])
        })
    }

    fn scatter(&self, call: &Scatter) -> Result<()> {
        self.kernel("scatter", || scatter(call))
    }

    fn scatter_add(&self, call: &Scatter) -> Result<()> {
        self.kernel("scatter_add", || scatter(call))
    }
}
