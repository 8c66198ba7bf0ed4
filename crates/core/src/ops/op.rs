//! Any op as a value: for the gradient graph, for erased backends, and for asking what a backend supports.

use super::{
    Activation, AdamParams, ArgOp, BinaryOp, CompareOp, ConvParams, CrossEntropyParams, PoolParams, Prepack, ReduceOp,
    SgdParams, SliceRange, UnaryOp,
};
use crate::{Axes, DType, Scalar, Shape};

/// An op with its arguments, but for the tensors. Each variant is the [`Backend`](crate::Backend) method of the same name, whose
/// documentation says which tensors it takes and gives, in order; optional tensors come last.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
#[allow(
    missing_docs,
    reason = "the method of the same name documents the op and its arguments"
)]
pub enum Op {
    Unary(UnaryOp),
    Binary(BinaryOp),
    Compare(CompareOp),
    Select,
    Cast(DType),
    Reduce {
        op: ReduceOp,
        axes: Axes,
        keepdims: bool,
    },
    ArgReduce {
        op: ArgOp,
        axis: usize,
        keepdims: bool,
    },
    CumSum {
        axis: usize,
    },
    Matmul,
    Reshape(Shape),
    Permute(Axes),
    Expand(Shape),
    Slice(Box<[SliceRange]>),
    Pad {
        padding: Box<[(usize, usize)]>,
        value: Scalar,
    },
    Concat {
        axis: usize,
    },
    Gather {
        axis: usize,
    },
    Scatter {
        axis: usize,
    },
    ScatterAdd {
        axis: usize,
    },
    IndexSelect {
        axis: usize,
    },
    Sort {
        axis: usize,
        descending: bool,
    },
    Conv(ConvParams),
    MaxPool(Box<PoolParams>),
    AvgPool(Box<PoolParams>),

    BinaryScalar {
        op: BinaryOp,
        scalar: Scalar,
        reverse: bool,
    },
    CompareScalar {
        op: CompareOp,
        scalar: Scalar,
    },
    IndexAdd {
        axis: usize,
    },
    SumTo(Shape),
    Linear,
    LinearWeightGrad,
    LinearActivation(Activation),
    Activation(Activation),
    ActivationBackward(Activation),
    Softmax {
        axis: usize,
    },
    SoftmaxBackward {
        axis: usize,
    },
    LogSoftmax {
        axis: usize,
    },
    LogSoftmaxBackward {
        axis: usize,
    },
    CrossEntropy(CrossEntropyParams),
    CrossEntropyBackward(CrossEntropyParams),
    CrossEntropyMean(CrossEntropyParams),
    CrossEntropyMeanBackward(CrossEntropyParams),
    LayerNorm {
        axes: usize,
        eps: f64,
    },
    LayerNormBackward {
        axes: usize,
    },
    RmsNorm {
        axes: usize,
        eps: f64,
    },
    RmsNormBackward {
        axes: usize,
    },
    BatchNorm {
        eps: f64,
    },
    BatchNormBackward {
        eps: f64,
    },
    BatchNormRunning {
        eps: f64,
    },
    Attention {
        scale: f64,
        causal: bool,
    },
    AttentionBackward {
        scale: f64,
        causal: bool,
    },
    /// The forward ignores `padding_idx`; it says which row gets no gradient.
    Embedding {
        padding_idx: Option<usize>,
    },
    EmbeddingBackward {
        num_embeddings: usize,
        padding_idx: Option<usize>,
    },
    LstmCell,
    LstmSteps {
        reverse: bool,
    },
    LstmStepsBackward {
        reverse: bool,
    },
    GruCell,
    Rnn {
        activation: Activation,
        reverse: bool,
    },
    Lstm {
        reverse: bool,
    },
    Gru {
        reverse: bool,
    },
    ConvActivation {
        activation: Option<Activation>,
        params: Box<ConvParams>,
    },
    MaxPoolValues(Box<PoolParams>),
    Prepack(Prepack),
    ConvInputGrad {
        input_shape: Shape,
        params: Box<ConvParams>,
    },
    ConvWeightGrad {
        weight_shape: Shape,
        params: Box<ConvParams>,
    },
    MaxPoolBackward {
        input_shape: Shape,
    },
    AvgPoolBackward {
        input_shape: Shape,
        params: Box<PoolParams>,
    },
    AccumulateGrad,
    SgdStep(SgdParams),
    AdamStep(AdamParams),
}

impl Op {
    /// PyTorch's name for it where PyTorch has one.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Unary(op) => op.name(),
            Self::Binary(op) | Self::BinaryScalar { op, .. } => op.name(),
            Self::Compare(op) | Self::CompareScalar { op, .. } => op.name(),
            Self::Select => "where",
            Self::Cast(_) => "to_dtype",
            Self::Reduce { op, .. } => op.name(),
            Self::ArgReduce { op, .. } => op.name(),
            Self::CumSum { .. } => "cumsum",
            Self::Matmul => "matmul",
            Self::Reshape(_) => "reshape",
            Self::Permute(_) => "permute",
            Self::Expand(_) => "expand",
            Self::Slice(_) => "slice",
            Self::Pad { .. } => "pad",
            Self::Concat { .. } => "cat",
            Self::Gather { .. } => "gather",
            Self::Scatter { .. } => "scatter",
            Self::ScatterAdd { .. } => "scatter_add",
            Self::IndexSelect { .. } => "index_select",
            Self::Sort { .. } => "sort",
            Self::Conv(_) => "conv",
            Self::MaxPool(_) => "max_pool",
            Self::AvgPool(_) => "avg_pool",
            Self::IndexAdd { .. } => "index_add",
            Self::SumTo(_) => "sum_to",
            Self::Linear => "linear",
            Self::LinearWeightGrad => "linear_weight_grad",
            Self::LinearActivation(_) => "linear_activation",
            Self::ConvActivation { .. } => "conv_activation",
            Self::MaxPoolValues(_) => "max_pool_values",
            Self::Prepack(_) => "prepack",
            Self::Activation(op) => op.name(),
            Self::ActivationBackward(_) => "activation_backward",
            Self::Softmax { .. } => "softmax",
            Self::SoftmaxBackward { .. } => "softmax_backward",
            Self::LogSoftmax { .. } => "log_softmax",
            Self::LogSoftmaxBackward { .. } => "log_softmax_backward",
            Self::CrossEntropy(_) => "cross_entropy",
            Self::CrossEntropyBackward(_) => "cross_entropy_backward",
            Self::CrossEntropyMean(_) => "cross_entropy_mean",
            Self::CrossEntropyMeanBackward(_) => "cross_entropy_mean_backward",
            Self::LayerNorm { .. } => "layer_norm",
            Self::LayerNormBackward { .. } => "layer_norm_backward",
            Self::RmsNorm { .. } => "rms_norm",
            Self::RmsNormBackward { .. } => "rms_norm_backward",
            Self::BatchNorm { .. } => "batch_norm",
            Self::BatchNormBackward { .. } => "batch_norm_backward",
            Self::BatchNormRunning { .. } => "batch_norm_running",
            Self::Attention { .. } => "scaled_dot_product_attention",
            Self::AttentionBackward { .. } => "scaled_dot_product_attention_backward",
            Self::Embedding { .. } => "embedding",
            Self::EmbeddingBackward { .. } => "embedding_backward",
            Self::LstmCell => "lstm_cell",
            Self::LstmSteps { .. } => "lstm_steps",
            Self::LstmStepsBackward { .. } => "lstm_steps_backward",
            Self::GruCell => "gru_cell",
            Self::Rnn { .. } => "rnn",
            Self::Lstm { .. } => "lstm",
            Self::Gru { .. } => "gru",
            Self::ConvInputGrad { .. } => "conv_input_grad",
            Self::ConvWeightGrad { .. } => "conv_weight_grad",
            Self::MaxPoolBackward { .. } => "max_pool_backward",
            Self::AvgPoolBackward { .. } => "avg_pool_backward",
            Self::AccumulateGrad => "accumulate_grad",
            Self::SgdStep(_) => "sgd_step",
            Self::AdamStep(_) => "adam_step",
        }
    }
}

// Every node of a gradient graph carries an op.
const _: () = assert!(size_of::<Op>() <= 96);

/// One call, described: for [`Backend::supports`](crate::Backend::supports).
#[derive(Clone, Copy, Debug)]
pub struct OpDesc<'a> {
    /// The op.
    pub op: &'a Op,
    /// The dtype of its first input.
    pub dtype: DType,
}
