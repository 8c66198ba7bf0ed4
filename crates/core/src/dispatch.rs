//! From an op as a value to the method of that name.

use crate::{Backend, Error, Op, Outputs, Result};

/// Calls the method for an op on `len` tensors, each of which `input` gives by its place, and hands its results to `wrap`.
#[inline]
pub(crate) fn call<'a, B: Backend, T>(
    op: &Op,
    len: usize,
    input: impl Fn(usize) -> Result<&'a B::Tensor>,
    wrap: impl Fn(B::Tensor) -> T,
) -> Result<Outputs<T>> {
    let one = |x: B::Tensor| Outputs::one(wrap(x));
    let two = |(x, y): (B::Tensor, B::Tensor)| Outputs::two(wrap(x), wrap(y));
    let three = |(x, y, z): (B::Tensor, B::Tensor, B::Tensor)| Outputs::three(wrap(x), wrap(y), wrap(z));
    let t = |i: usize| if i < len { input(i) } else { Err(malformed(op, len)) };
    let optional = |i: usize| (i < len).then(|| input(i)).transpose();
    let both = |i: usize| match optional(i)? {
        Some(first) => Ok(Some([first, t(i + 1)?])),
        None => Ok(None),
    };
    match op {
        Op::Unary(op) => B::unary(*op, t(0)?).map(one),
        Op::Binary(op) => B::binary(*op, t(0)?, t(1)?).map(one),
        Op::Compare(op) => B::compare(*op, t(0)?, t(1)?).map(one),
        Op::Select => B::select(t(0)?, t(1)?, t(2)?).map(one),
        Op::Cast(dtype) => B::cast(t(0)?, *dtype).map(one),
        Op::Reduce { op, axes, keepdims } => B::reduce(*op, t(0)?, *axes, *keepdims).map(one),
        Op::ArgReduce { op, axis, keepdims } => B::arg_reduce(*op, t(0)?, *axis, *keepdims).map(one),
        Op::CumSum { axis } => B::cumsum(t(0)?, *axis).map(one),
        Op::Matmul => B::matmul(t(0)?, t(1)?).map(one),
        Op::Reshape(shape) => B::reshape(t(0)?, *shape).map(one),
        Op::Permute(axes) => B::permute(t(0)?, *axes).map(one),
        Op::Expand(shape) => B::expand(t(0)?, *shape).map(one),
        Op::Slice(ranges) => B::slice(t(0)?, ranges).map(one),
        Op::Pad { padding, value } => B::pad(t(0)?, padding, *value).map(one),
        Op::Concat { axis } => {
            let xs = (0..len).map(&input).collect::<Result<Vec<_>>>()?;
            B::concat(&xs, *axis).map(one)
        }
        Op::Gather { axis } => B::gather(t(0)?, *axis, t(1)?).map(one),
        Op::Scatter { axis } => B::scatter(t(0)?, *axis, t(1)?, t(2)?).map(one),
        Op::ScatterAdd { axis } => B::scatter_add(t(0)?, *axis, t(1)?, t(2)?).map(one),
        Op::IndexSelect { axis } => B::index_select(t(0)?, *axis, t(1)?).map(one),
        Op::Sort { axis, descending } => B::sort(t(0)?, *axis, *descending).map(two),
        Op::Conv(params) => B::conv(t(0)?, t(1)?, params).map(one),
        Op::MaxPool(params) => B::max_pool(t(0)?, params).map(two),
        Op::AvgPool(params) => B::avg_pool(t(0)?, params).map(one),
        Op::BinaryScalar { op, scalar, reverse } => B::binary_scalar(*op, t(0)?, *scalar, *reverse).map(one),
        Op::CompareScalar { op, scalar } => B::compare_scalar(*op, t(0)?, *scalar).map(one),
        Op::IndexAdd { axis } => B::index_add(t(0)?, *axis, t(1)?, t(2)?).map(one),
        Op::SumTo(shape) => B::sum_to(t(0)?, *shape).map(one),
        Op::Linear => B::linear(t(0)?, t(1)?, optional(2)?).map(one),
        Op::LinearWeightGrad => B::linear_weight_grad(t(0)?, t(1)?).map(two),
        Op::LinearActivation(op) => B::linear_activation(t(0)?, t(1)?, optional(2)?, *op).map(one),
        Op::ConvActivation { activation, params } => {
            B::conv_activation(t(0)?, t(1)?, t(2)?, optional(3)?, *activation, params).map(one)
        }
        Op::MaxPoolValues(params) => B::max_pool_values(t(0)?, params).map(one),
        Op::Prepack(kind) => B::prepack(t(0)?, *kind).map(one),
        Op::Activation(op) => B::activation(*op, t(0)?).map(one),
        Op::ActivationBackward(op) => B::activation_backward(*op, t(0)?, t(1)?).map(one),
        Op::Softmax { axis } => B::softmax(t(0)?, *axis).map(one),
        Op::SoftmaxBackward { axis } => B::softmax_backward(t(0)?, t(1)?, *axis).map(one),
        Op::LogSoftmax { axis } => B::log_softmax(t(0)?, *axis).map(one),
        Op::LogSoftmaxBackward { axis } => B::log_softmax_backward(t(0)?, t(1)?, *axis).map(one),
        Op::CrossEntropy(params) => B::cross_entropy(t(0)?, t(1)?, params).map(two),
        Op::CrossEntropyBackward(params) => B::cross_entropy_backward(t(0)?, t(1)?, t(2)?, t(3)?, params).map(one),
        Op::CrossEntropyMean(params) => B::cross_entropy_mean(t(0)?, t(1)?, params).map(two),
        Op::CrossEntropyMeanBackward(params) => {
            B::cross_entropy_mean_backward(t(0)?, t(1)?, t(2)?, t(3)?, params).map(one)
        }
        Op::LayerNorm { axes, eps } => B::layer_norm(t(0)?, optional(1)?, optional(2)?, *axes, *eps).map(three),
        Op::LayerNormBackward { axes } => {
            B::layer_norm_backward(t(0)?, t(1)?, t(2)?, t(3)?, optional(4)?, *axes).map(three)
        }
        Op::RmsNorm { axes, eps } => B::rms_norm(t(0)?, optional(1)?, *axes, *eps).map(two),
        Op::RmsNormBackward { axes } => B::rms_norm_backward(t(0)?, t(1)?, t(2)?, optional(3)?, *axes).map(two),
        Op::BatchNorm { eps } => B::batch_norm(t(0)?, optional(1)?, optional(2)?, *eps).map(three),
        Op::BatchNormBackward { eps } => {
            B::batch_norm_backward(t(0)?, t(1)?, t(2)?, t(3)?, optional(4)?, *eps).map(three)
        }
        Op::BatchNormRunning { eps } => {
            B::batch_norm_running(t(0)?, t(1)?, t(2)?, optional(3)?, optional(4)?, *eps).map(one)
        }
        Op::Attention { scale, causal } => B::attention(t(0)?, t(1)?, t(2)?, optional(3)?, *scale, *causal).map(one),
        Op::AttentionBackward { scale, causal } => {
            B::attention_backward(t(0)?, t(1)?, t(2)?, t(3)?, optional(4)?, *scale, *causal).map(three)
        }
        Op::Embedding { .. } => B::embedding(t(0)?, t(1)?).map(one),
        Op::EmbeddingBackward {
            num_embeddings,
            padding_idx,
        } => B::embedding_backward(t(0)?, t(1)?, *num_embeddings, *padding_idx).map(one),
        Op::LstmCell => B::lstm_cell(t(0)?, t(1)?).map(two),
        Op::LstmSteps { reverse } => {
            B::lstm_steps(t(0)?, t(1)?, t(2)?, [t(3)?, t(4)?], optional(5)?, *reverse).map(two)
        }
        Op::LstmStepsBackward { reverse } => {
            B::lstm_steps_backward(t(0)?, t(1)?, t(2)?, t(3)?, t(4)?, *reverse).map(three)
        }
        Op::GruCell => B::gru_cell(t(0)?, t(1)?, t(2)?).map(one),
        Op::Rnn { activation, reverse } => {
            B::rnn(t(0)?, t(1)?, [t(2)?, t(3)?], both(4)?, *activation, *reverse).map(two)
        }
        Op::Lstm { reverse } => B::lstm(t(0)?, t(1)?, t(2)?, [t(3)?, t(4)?], both(5)?, *reverse).map(three),
        Op::Gru { reverse } => B::gru(t(0)?, t(1)?, [t(2)?, t(3)?], both(4)?, *reverse).map(two),
        Op::ConvInputGrad { input_shape, params } => B::conv_input_grad(t(0)?, t(1)?, *input_shape, params).map(one),
        Op::ConvWeightGrad { weight_shape, params } => {
            B::conv_weight_grad(t(0)?, t(1)?, *weight_shape, params).map(one)
        }
        Op::MaxPoolBackward { input_shape } => B::max_pool_backward(t(0)?, t(1)?, *input_shape).map(one),
        Op::AvgPoolBackward { input_shape, params } => B::avg_pool_backward(t(0)?, *input_shape, params).map(one),
        Op::AccumulateGrad | Op::SgdStep(_) | Op::AdamStep(_) => {
            Err(malformed(op, len).with_hint("this op changes its tensors: call update"))
        }
    }
}

#[cold]
pub(crate) fn malformed(op: &Op, tensors: usize) -> Error {
    Error::invalid(format!("{op:?} does not take {tensors} tensors")).with_op(op.name())
}
