//! What a driver can do, queried before use.

use crate::DType;

/// Kernels of [`ComputeBackend`](super::ComputeBackend) that a driver may lack, for some dtypes or all. The provided
/// methods among them only return an error by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the method of the same name documents each")]
pub enum Kernel {
    Elementwise,
    ReduceAxes,
    ArgReduce,
    CumSum,
    Sort,
    Gather,
    Scatter,
    ScatterAdd,
    Conv2dForward,
    Conv2dInputGrad,
    Conv2dWeightGrad,
    MaxPool2d,
    AvgPool2d,
    Attention,
    AttentionBackward,
    Softmax,
    SoftmaxBackward,
    LayerNorm,
    CrossEntropy,
    CrossEntropyBackward,
}

impl Kernel {
    /// The method's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Elementwise => "elementwise",
            Self::ReduceAxes => "reduce_axes",
            Self::ArgReduce => "arg_reduce",
            Self::CumSum => "cumsum",
            Self::Sort => "sort",
            Self::Gather => "gather",
            Self::Scatter => "scatter",
            Self::ScatterAdd => "scatter_add",
            Self::Conv2dForward => "conv2d_forward",
            Self::Conv2dInputGrad => "conv2d_input_grad",
            Self::Conv2dWeightGrad => "conv2d_weight_grad",
            Self::MaxPool2d => "max_pool2d",
            Self::AvgPool2d => "avg_pool2d",
            Self::Attention => "attention",
            Self::AttentionBackward => "attention_backward",
            Self::Softmax => "softmax",
            Self::SoftmaxBackward => "softmax_backward",
            Self::LayerNorm => "layer_norm",
            Self::CrossEntropy => "cross_entropy",
            Self::CrossEntropyBackward => "cross_entropy_backward",
        }
    }
}

/// What a driver offers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DriverCapabilities {
    /// The vendor's name of the device.
    pub device: String,
    /// Dtypes that buffers can have.
    pub dtypes: Vec<DType>,
    /// Whether calls return before the work is done.
    pub asynchronous: bool,
    /// Whether the device computes in host memory.
    pub unified_memory: bool,
    /// Whether it records calls: [`ComputeBackend::record`](super::ComputeBackend::record).
    pub records: bool,
    /// The most inputs and outputs together that a program for
    /// [`ComputeBackend::elementwise`](super::ComputeBackend::elementwise) can have.
    pub max_elementwise_views: usize,
}

impl DriverCapabilities {
    /// Synchronous, with these dtypes, and without limits.
    pub fn new(device: impl Into<String>, dtypes: impl Into<Vec<DType>>) -> Self {
        Self {
            device: device.into(),
            dtypes: dtypes.into(),
            asynchronous: false,
            unified_memory: false,
            records: false,
            max_elementwise_views: usize::MAX,
        }
    }
}
