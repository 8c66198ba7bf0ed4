//! The interface for chips that have memory and kernels.

use std::fmt::Debug;

use super::{
    ArgReduce, Attention, AttentionBackward, Batch, Binary, ByteCopy, Conv2d, CrossEntropy, CumSum, DevicePtr,
    DeviceView, DriverCapabilities, Elementwise, ElementwiseProgram, Fill, Gather, Gemm, Kernel, LayerNorm, Pool2d,
    Random, Recording, Reduce, ReduceAxes, Scatter, Softmax, Sort, Step, Unary,
};
use crate::{
    BinaryOp, CompareOp, DType, DeviceInfo, Error, ErrorKind, Result, Scalar, Shape, UnaryOp, dispatch_dtype,
    random_host,
};

/// A chip that has memory and kernels, and no tensors: a driver.
///
/// `Compute<D>` of the crate `polygrad-compute` makes a full [`Backend`](crate::Backend) of any driver: allocation,
/// layouts, views, broadcasting and fusion are written there, once. A driver implements the required methods and, for
/// speed, provided ones, which [`ComputeBackend::supports`] then reports. If a driver lacks a kernel, `Compute`
/// composes it of others, or computes on the host. docs/driver.md shows a complete small one.
///
/// # Contract
///
/// - **Every buffer has a dtype**, passed in the call; an element takes [`DType::size`] bytes, a bool one byte of 0
///   or 1. Addresses count bytes and are multiples of their dtype's size; strides and leading dimensions count
///   elements. **Matrices are row-major.**
/// - **Pointers**: interior pointers are legal. An unknown or freed pointer, an extent beyond its allocation and a
///   double free are [`InvalidArgument`](crate::ErrorKind::InvalidArgument) errors, never undefined behaviour. A
///   call that touches no element ignores its pointers. [`Call::operands`](super::Call::operands) lists what a
///   call touches, and how.
/// - **Order**: calls through one driver value take effect in the order in which they were made. They may return before
///   they are done; a later failure is then reported by a later call, at the latest by [`ComputeBackend::synchronize`]
///   or a copy to the host.
/// - **Threads**: calls come from several threads at once. Calls of different threads share only operands that none of
///   them writes. A driver need not run them in parallel.
/// - **Overlap**: an output must not overlap an input unless the call allows it. If it does, only the values of the
///   output are undefined.
/// - **Products**: `beta == 0` never reads C, so that NaN there does not matter. `m`, `n` or the batch 0 is a no-op;
///   `k == 0` gives `beta · C`.
/// - **Attention** multiplies scores by `scale`; `causal` is aligned to the bottom right (query `i` of `seq_q` sees
///   keys up to `i + seq_kv − seq_q`); a row that sees nothing is 0.
/// - **Numbers**: as [`Backend`](crate::Backend) promises them: NaN propagates through max, min and relu; sums are
///   accurate; f16 and bf16 are computed in f32 and rounded once a step; integers wrap, and a division by zero
///   is 0. A reduction over nothing is the op's identity, and
///   [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for max, min and mean.
/// - **An index outside its axis** is [`OutOfRange`](crate::ErrorKind::OutOfRange), touches no memory outside the
///   call's operands, and may be reported late.
/// - **Before `init`** every call but `name`, `init`, `is_initialized`, `capabilities`, `supports` and `devices` is
///   [`NotInitialized`](crate::ErrorKind::NotInitialized). `init` twice is a no-op.
/// - A missing kernel is [`Unsupported`](crate::ErrorKind::Unsupported), a failed allocation
///   [`OutOfMemory`](crate::ErrorKind::OutOfMemory), and a device that fails or disappears
///   [`DeviceError`](crate::ErrorKind::DeviceError). Nothing panics.
pub trait ComputeBackend: Debug + Send + Sync {
    // The device.

    /// The device string that opens it: `wgpu`, `wgpu:1`.
    fn name(&self) -> &str;

    /// Opens the device. A second call is a no-op.
    ///
    /// # Errors
    /// [`BackendUnavailable`](crate::ErrorKind::BackendUnavailable) when there is no such device, or
    /// its library is missing.
    fn init(&self) -> Result<()>;

    /// Whether [`ComputeBackend::init`] has succeeded.
    fn is_initialized(&self) -> bool;

    /// What the device offers.
    fn capabilities(&self) -> DriverCapabilities;

    /// Whether the driver has a kernel for a dtype (of its first input; for [`Kernel::Elementwise`], of each value).
    fn supports(&self, kernel: Kernel, dtype: DType) -> bool {
        let _ = (kernel, dtype);
        false
    }

    /// The devices on this machine that the driver can open, or why there are none. Never fails, and returns quickly.
    fn devices(&self) -> Vec<DeviceInfo> {
        Vec::new()
    }

    // Memory.

    /// Allocates `bytes` bytes, which may be 0, with undefined contents.
    fn alloc(&self, bytes: usize) -> Result<DevicePtr>;

    /// Frees memory at an address that [`ComputeBackend::alloc`] returned. Earlier calls may still use it.
    fn free(&self, ptr: DevicePtr) -> Result<()>;

    /// Copies from the host to the device. `src` has been read when it returns.
    fn copy_htod(&self, dst: DevicePtr, src: &[u8]) -> Result<()>;

    /// Copies from the device to the host, after all earlier calls.
    fn copy_dtoh(&self, dst: &mut [u8], src: DevicePtr) -> Result<()>;

    /// Copies within the device. The two ranges may overlap, as with `memmove`.
    fn copy_dtod(&self, dst: DevicePtr, src: DevicePtr, bytes: usize) -> Result<()> {
        let mut host = host_copy(self, src, bytes)?;
        self.copy_dtoh(&mut host, src)?;
        self.copy_htod(dst, &host)
    }

    /// Waits until all earlier calls are done.
    ///
    /// # Errors
    /// When an earlier call failed.
    fn synchronize(&self) -> Result<()>;

    // Products.

    /// One matrix product.
    fn gemm(&self, call: &Gemm) -> Result<()>;

    /// Many matrix products of the same shape.
    fn batched_gemm(&self, call: &Gemm, batch: &Batch) -> Result<()>;

    /// A convolution over two axes.
    fn conv2d_forward(&self, call: &Conv2d) -> Result<()>;

    /// Writes the convolution's gradient wrt its input.
    fn conv2d_input_grad(&self, call: &Conv2d) -> Result<()> {
        let _ = call;
        Err(self.lacks(Kernel::Conv2dInputGrad))
    }

    /// Writes the convolution's gradient wrt its weight.
    fn conv2d_weight_grad(&self, call: &Conv2d) -> Result<()> {
        let _ = call;
        Err(self.lacks(Kernel::Conv2dWeightGrad))
    }

    /// Scaled dot-product attention.
    fn attention(&self, call: &Attention) -> Result<()>;

    /// The gradient of [`ComputeBackend::attention`].
    fn attention_backward(&self, call: &AttentionBackward) -> Result<()> {
        let _ = call;
        Err(self.lacks(Kernel::AttentionBackward))
    }

    // Element by element.

    /// A function of contiguous elements.
    fn unary(&self, call: &Unary) -> Result<()>;

    /// A function of two lists of contiguous elements.
    fn binary(&self, call: &Binary) -> Result<()>;

    /// A chain of ops over strided, broadcast elements, in one kernel.
    fn elementwise(&self, call: &Elementwise<'_>) -> Result<()> {
        let _ = call;
        Err(self.lacks(Kernel::Elementwise))
    }

    /// [`ComputeBackend::unary`] of any layout.
    fn unary_strided(&self, op: UnaryOp, input: &DeviceView, output: &DeviceView) -> Result<()> {
        let mut program = ElementwiseProgram::default();
        let x = program.input(input.dtype);
        let y = program.push(Step::Unary(op, x))?;
        run(self, program, y, &[*input], output)
    }

    /// [`ComputeBackend::binary`] of any layouts, broadcast to the output's shape.
    fn binary_strided(&self, op: BinaryOp, a: &DeviceView, b: &DeviceView, output: &DeviceView) -> Result<()> {
        let mut program = ElementwiseProgram::default();
        let (x, y) = (program.input(a.dtype), program.input(b.dtype));
        let z = program.push(Step::Binary(op, x, y))?;
        run(self, program, z, &[*a, *b], output)
    }

    /// Compares operands of any layouts, broadcast to the output's shape; the output is bool.
    fn compare_strided(&self, op: CompareOp, a: &DeviceView, b: &DeviceView, output: &DeviceView) -> Result<()> {
        let mut program = ElementwiseProgram::default();
        let (x, y) = (program.input(a.dtype), program.input(b.dtype));
        let z = program.push(Step::Compare(op, x, y))?;
        run(self, program, z, &[*a, *b], output)
    }

    /// `condition ? a : b` of any layouts, broadcast to the output's shape.
    fn select_strided(
        &self,
        condition: &DeviceView,
        a: &DeviceView,
        b: &DeviceView,
        output: &DeviceView,
    ) -> Result<()> {
        let mut program = ElementwiseProgram::default();
        let [c, x, y] = [condition, a, b].map(|view| program.input(view.dtype));
        let z = program.push(Step::Select(c, x, y))?;
        run(self, program, z, &[*condition, *a, *b], output)
    }

    /// Copies between any two layouts, broadcast to the output's shape and converted to its dtype.
    fn copy_strided(&self, input: &DeviceView, output: &DeviceView) -> Result<()> {
        let mut program = ElementwiseProgram::default();
        let x = program.input(input.dtype);
        let y = match input.dtype == output.dtype {
            true => x,
            false => program.push(Step::Cast(x, output.dtype))?,
        };
        run(self, program, y, &[*input], output)
    }

    /// Fills memory with one value.
    fn fill(&self, call: &Fill) -> Result<()> {
        let bytes = super::calls::bytes(Some(call.len), call.dtype)?;
        let mut host = host_copy(self, call.output, bytes)?;
        dispatch_dtype!(call.dtype, T => {
            let value = <T as crate::Element>::from_scalar(call.value);
            host.chunks_exact_mut(call.dtype.size()).for_each(|to| to.copy_from_slice(bytemuck::bytes_of(&value)));
        });
        self.copy_htod(call.output, &host)
    }

    /// Random numbers.
    fn random(&self, call: &Random) -> Result<()> {
        let host = random_host(Shape::new(&[call.len])?, call.distribution, call.dtype, call.key)?;
        self.copy_htod(call.output, host.bytes())
    }

    // Reductions.

    /// A reduction over one axis.
    fn reduce(&self, call: &Reduce) -> Result<()>;

    /// A reduction over several axes of any layout.
    fn reduce_axes(&self, call: &ReduceAxes) -> Result<()> {
        let _ = call;
        Err(self.lacks(Kernel::ReduceAxes))
    }

    /// Positions of extremes. The first wins a tie; NaN counts as the extreme.
    fn arg_reduce(&self, call: &ArgReduce) -> Result<()> {
        let _ = call;
        Err(self.lacks(Kernel::ArgReduce))
    }

    /// Running sums.
    fn cumsum(&self, call: &CumSum) -> Result<()> {
        let _ = call;
        Err(self.lacks(Kernel::CumSum))
    }

    /// A stable sort.
    fn sort(&self, call: &Sort) -> Result<()> {
        let _ = call;
        Err(self.lacks(Kernel::Sort))
    }

    /// Softmax of each row, or its logarithm.
    fn softmax(&self, call: &Softmax) -> Result<()> {
        let _ = call;
        Err(self.lacks(Kernel::Softmax))
    }

    /// The gradient of [`ComputeBackend::softmax`].
    fn softmax_backward(&self, call: &Softmax) -> Result<()> {
        let _ = call;
        Err(self.lacks(Kernel::SoftmaxBackward))
    }

    /// Layer normalisation of each row.
    fn layer_norm(&self, call: &LayerNorm) -> Result<()> {
        let _ = call;
        Err(self.lacks(Kernel::LayerNorm))
    }

    /// Cross entropy of each row against a class. A class outside the row is an index outside its axis.
    fn cross_entropy(&self, call: &CrossEntropy) -> Result<()> {
        let _ = call;
        Err(self.lacks(Kernel::CrossEntropy))
    }

    /// The gradient of [`ComputeBackend::cross_entropy`] wrt the logits.
    fn cross_entropy_backward(&self, call: &CrossEntropy) -> Result<()> {
        let _ = call;
        Err(self.lacks(Kernel::CrossEntropyBackward))
    }

    // Windows.

    /// The largest element of each window, and its position. The first wins a tie; NaN counts as the largest.
    fn max_pool2d(&self, call: &Pool2d) -> Result<()> {
        let _ = call;
        Err(self.lacks(Kernel::MaxPool2d))
    }

    /// The mean of each window.
    fn avg_pool2d(&self, call: &Pool2d) -> Result<()> {
        let _ = call;
        Err(self.lacks(Kernel::AvgPool2d))
    }

    // Indexing.

    /// Reads the elements that an index names.
    fn gather(&self, call: &Gather) -> Result<()> {
        let _ = call;
        Err(self.lacks(Kernel::Gather))
    }

    /// Writes to the elements that an index names. If several write to the same element, any may win.
    fn scatter(&self, call: &Scatter) -> Result<()> {
        let _ = call;
        Err(self.lacks(Kernel::Scatter))
    }

    /// Adds to the elements that an index names. If several add to the same element, all count.
    fn scatter_add(&self, call: &Scatter) -> Result<()> {
        let _ = call;
        Err(self.lacks(Kernel::ScatterAdd))
    }

    // Many at once.

    /// Copies within the device between ranges none of which overlap.
    fn copy_each(&self, copies: &[ByteCopy]) -> Result<()> {
        let copy = |copy: &ByteCopy| self.copy_dtod(copy.dst, copy.src, copy.bytes);
        copies.iter().try_for_each(copy)
    }

    /// Records the kernels and copies that `calls` requests on this thread, instead of running them. Bytes from
    /// the host are stored in the recording. Allocations and frees still happen at once, and other threads may go
    /// on using the driver.
    ///
    /// # Errors
    /// That of `calls`; [`Unsupported`](crate::ErrorKind::Unsupported) if the driver cannot record (see
    /// [`DriverCapabilities::records`]), or if `calls` waits or copies to the host.
    fn record(&self, calls: &mut dyn FnMut() -> Result<()>) -> Result<Recording> {
        let _ = calls;
        Err(self.records_nothing())
    }

    /// Runs a recording in the memory that it was recorded with, which must not have been freed.
    fn replay(&self, recording: &Recording) -> Result<()> {
        let _ = recording;
        Err(self.records_nothing())
    }

    /// The error of a driver that does not record.
    #[doc(hidden)]
    fn records_nothing(&self) -> Error {
        Error::unsupported(format!("the driver {} does not record calls", self.name())).with_device(self.name())
    }

    /// The error of a kernel that the driver lacks.
    fn lacks(&self, kernel: Kernel) -> Error {
        Error::unsupported(format!("the driver {} has no such kernel", self.name()))
            .with_op(kernel.name())
            .with_device(self.name())
    }
}

/// A concrete driver type, for `Compute<D>`.
pub trait Driver: ComputeBackend + 'static {
    /// The backend's name in device strings: `wgpu`.
    const NAME: &'static str;
}

/// Copies of more bytes than this are checked before memory is allocated for them.
const LARGE: usize = 1 << 30;

/// Allocates host memory for bytes of the device. A large extent is first checked against the allocation, so that an
/// invalid one fails before that much memory is requested.
fn host_copy<D: ComputeBackend + ?Sized>(driver: &D, ptr: DevicePtr, bytes: usize) -> Result<Vec<u8>> {
    if bytes > LARGE {
        driver.copy_dtoh(&mut [0], ptr.add(bytes - 1))?;
    }
    let mut host = Vec::new();
    host.try_reserve_exact(bytes)
        .map_err(|e| Error::new(ErrorKind::OutOfMemory, format!("no {bytes} bytes on the host")).with_source(e))?;
    host.resize(bytes, 0);
    Ok(host)
}

/// Runs a program with one output over inputs that broadcast to its shape.
fn run<D: ComputeBackend + ?Sized>(
    driver: &D,
    mut program: ElementwiseProgram,
    value: super::Value,
    inputs: &[DeviceView],
    output: &DeviceView,
) -> Result<()> {
    program.output(value);
    let shape = *output.shape();
    let mut expanded = Vec::with_capacity(inputs.len());
    for view in inputs {
        if !view.shape().broadcasts_to(&shape) {
            return Err(
                Error::invalid(format!("{} does not broadcast to {shape}", view.shape())).with_op(program.name()),
            );
        }
        expanded.push(DeviceView::new(view.ptr, view.dtype, view.layout.expand(shape)));
    }
    driver.elementwise(&Elementwise {
        program: &program,
        shape,
        inputs: &expanded,
        scalars: &[] as &[Scalar],
        outputs: &[*output],
    })
}

// The trait must stay object-safe: drivers are chosen at run time.
const _: fn(&dyn ComputeBackend) = |_| ();
