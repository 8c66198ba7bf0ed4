//! A driver's calls as data, for those who watch them.

use polygrad_core::compute::{
    ArgReduce, Attention, Batch, Binary, Conv2d, CumSum, DevicePtr, DeviceView, Elementwise, Fill, Gather, Gemm,
    LayerNorm, Pool2d, Random, Reduce, ReduceAxes, Scatter, Softmax, Sort, Unary,
};
use polygrad_core::{Axes, BinaryOp, CompareOp, DType, Result, Shape, UnaryOp};

/// A call of a driver that does work. What only asks (names, capabilities, devices) is none.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the method of the same name documents each")]
pub enum DriverCall<'a> {
    Init,
    /// So many bytes.
    Alloc(usize),
    Free(DevicePtr),
    /// To there, so many bytes; also the asynchronous form.
    CopyHtod(DevicePtr, usize),
    /// From there, so many bytes; also the asynchronous form.
    CopyDtoh(DevicePtr, usize),
    /// To there, from there, so many bytes.
    CopyDtod(DevicePtr, DevicePtr, usize),
    Synchronize,
    NewQueue,
    Gemm(&'a Gemm),
    BatchedGemm(&'a Gemm, &'a Batch),
    Conv2dForward(&'a Conv2d),
    Conv2dInputGrad(&'a Conv2d),
    Conv2dWeightGrad(&'a Conv2d),
    Attention(&'a Attention),
    Unary(&'a Unary),
    Binary(&'a Binary),
    Elementwise(&'a Elementwise<'a>),
    UnaryStrided(UnaryOp, &'a DeviceView),
    BinaryStrided(BinaryOp, &'a DeviceView),
    CompareStrided(CompareOp, &'a DeviceView),
    SelectStrided(&'a DeviceView),
    CopyStrided(&'a DeviceView),
    Fill(&'a Fill),
    Random(&'a Random),
    Reduce(&'a Reduce),
    ReduceAxes(&'a ReduceAxes),
    ArgReduce(&'a ArgReduce),
    CumSum(&'a CumSum),
    Sort(&'a Sort),
    Softmax(&'a Softmax),
    SoftmaxBackward(&'a Softmax),
    LayerNorm(&'a LayerNorm),
    MaxPool2d(&'a Pool2d),
    AvgPool2d(&'a Pool2d),
    Gather(&'a Gather),
    Scatter(&'a Scatter),
    ScatterAdd(&'a Scatter),
}

impl DriverCall<'_> {
    /// The method's name.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::Alloc(_) => "alloc",
            Self::Free(_) => "free",
            Self::CopyHtod(..) => "copy_htod",
            Self::CopyDtoh(..) => "copy_dtoh",
            Self::CopyDtod(..) => "copy_dtod",
            Self::Synchronize => "synchronize",
            Self::NewQueue => "new_queue",
            Self::Gemm(_) => "gemm",
            Self::BatchedGemm(..) => "batched_gemm",
            Self::Conv2dForward(_) => "conv2d_forward",
            Self::Conv2dInputGrad(_) => "conv2d_input_grad",
            Self::Conv2dWeightGrad(_) => "conv2d_weight_grad",
            Self::Attention(_) => "attention",
            Self::Unary(_) => "unary",
            Self::Binary(_) => "binary",
            Self::Elementwise(_) => "elementwise",
            Self::UnaryStrided(..) => "unary_strided",
            Self::BinaryStrided(..) => "binary_strided",
            Self::CompareStrided(..) => "compare_strided",
            Self::SelectStrided(_) => "select_strided",
            Self::CopyStrided(_) => "copy_strided",
            Self::Fill(_) => "fill",
            Self::Random(_) => "random",
            Self::Reduce(_) => "reduce",
            Self::ReduceAxes(_) => "reduce_axes",
            Self::ArgReduce(_) => "arg_reduce",
            Self::CumSum(_) => "cumsum",
            Self::Sort(_) => "sort",
            Self::Softmax(_) => "softmax",
            Self::SoftmaxBackward(_) => "softmax_backward",
            Self::LayerNorm(_) => "layer_norm",
            Self::MaxPool2d(_) => "max_pool2d",
            Self::AvgPool2d(_) => "avg_pool2d",
            Self::Gather(_) => "gather",
            Self::Scatter(_) => "scatter",
            Self::ScatterAdd(_) => "scatter_add",
        }
    }

    /// What is computed, where the method is for many things: an op's name, a program's.
    pub fn detail(&self) -> Option<String> {
        Some(match self {
            Self::Unary(call) => call.op.name().to_owned(),
            Self::UnaryStrided(op, _) => op.name().to_owned(),
            Self::Binary(call) => call.op.name().to_owned(),
            Self::BinaryStrided(op, _) => op.name().to_owned(),
            Self::CompareStrided(op, _) => op.name().to_owned(),
            Self::Elementwise(call) => call.program.name(),
            Self::Reduce(call) => call.op.name().to_owned(),
            Self::ReduceAxes(call) => call.op.name().to_owned(),
            Self::ArgReduce(call) => call.op.name().to_owned(),
            _ => return None,
        })
    }

    /// Whether it launches a kernel: anything but memory, copies to and from the host, and waiting.
    pub const fn is_kernel(&self) -> bool {
        !matches!(
            self,
            Self::Init
                | Self::Alloc(_)
                | Self::Free(_)
                | Self::CopyHtod(..)
                | Self::CopyDtoh(..)
                | Self::Synchronize
                | Self::NewQueue
        )
    }

    /// What it writes.
    ///
    /// # Errors
    /// When its shapes make no sense.
    pub fn outputs(&self) -> Result<Vec<DeviceView>> {
        let whole = |ptr, dtype, dims: &[usize]| Ok(DeviceView::contiguous(ptr, dtype, Shape::new(dims)?));
        let one = |ptr, dtype, dims: &[usize]| whole(ptr, dtype, dims).map(|view| vec![view]);
        let product = |call: &Gemm, batch: &Batch| {
            let [.., bytes] = batch.spans(call)?;
            one(call.c, call.dtype_c, &[bytes / call.dtype_c.size()])
        };
        match self {
            Self::Gemm(call) => {
                let [.., bytes] = call.spans()?;
                one(call.c, call.dtype_c, &[bytes / call.dtype_c.size()])
            }
            Self::BatchedGemm(call, batch) => product(call, batch),
            Self::Conv2dForward(call) => one(call.output, call.dtype, &call.output_shape()?),
            Self::Conv2dInputGrad(call) => one(call.input, call.dtype, &call.input_shape),
            Self::Conv2dWeightGrad(call) => one(call.weight, call.dtype, &call.weight_shape),
            Self::Attention(call) => one(
                call.output,
                call.dtype,
                &[call.batch, call.heads, call.seq_q, call.value_dim],
            ),
            Self::Unary(call) => {
                let result = if call.op.is_predicate() {
                    DType::Bool
                } else {
                    call.dtype
                };
                one(call.output, result, &[call.len])
            }
            Self::Binary(call) => one(call.output, call.dtype, &[call.len]),
            Self::Elementwise(call) => Ok(call.outputs.to_vec()),
            Self::UnaryStrided(_, output)
            | Self::BinaryStrided(_, output)
            | Self::CompareStrided(_, output)
            | Self::SelectStrided(output)
            | Self::CopyStrided(output) => Ok(vec![**output]),
            Self::Fill(call) => one(call.output, call.dtype, &[call.len]),
            Self::Random(call) => one(call.output, call.dtype, &[call.len]),
            Self::Reduce(call) => one(call.output, call.dtype, &[call.outer, call.inner]),
            Self::ReduceAxes(call) => one(
                call.output,
                call.input.dtype,
                &call.input.shape().reduced(call.axes, false),
            ),
            Self::ArgReduce(call) => {
                let kept = call.input.shape().reduced(Axes::one(call.axis), false);
                one(call.output, DType::I64, &kept)
            }
            Self::CumSum(call) => one(call.output, call.input.dtype, call.input.shape()),
            Self::Sort(call) => Ok(vec![
                whole(call.values, call.input.dtype, call.input.shape())?,
                whole(call.positions, DType::I64, call.input.shape())?,
            ]),
            Self::Softmax(call) | Self::SoftmaxBackward(call) => {
                one(call.output, call.dtype, &[call.rows, call.columns])
            }
            Self::LayerNorm(call) => Ok(vec![
                whole(call.output, call.dtype, &[call.rows, call.columns])?,
                whole(call.mean, call.dtype, &[call.rows])?,
                whole(call.rstd, call.dtype, &[call.rows])?,
            ]),
            Self::MaxPool2d(call) | Self::AvgPool2d(call) => {
                let shape = call.params.output_shape(&Shape::new(&call.input_shape)?)?;
                one(call.output, call.dtype, &shape)
            }
            Self::Gather(call) => one(call.output, call.input.dtype, call.index.shape()),
            Self::Scatter(call) | Self::ScatterAdd(call) => Ok(vec![call.target]),
            Self::CopyDtod(dst, _, bytes) | Self::CopyHtod(dst, bytes) => one(*dst, DType::U8, &[*bytes]),
            Self::Init | Self::Alloc(_) | Self::Free(_) | Self::CopyDtoh(..) | Self::Synchronize | Self::NewQueue => {
                Ok(Vec::new())
            }
        }
    }
}
