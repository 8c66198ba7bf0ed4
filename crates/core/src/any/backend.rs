//! A backend chosen at run time, which is a [`Backend`] again.

use super::calls::{Inputs, one, pair, three, two};
use super::{AnyDevice, AnyTensor};
use crate::program::{self, Action};
use crate::{
    Activation, AdamParams, ArgOp, Axes, Backend, BinaryOp, Capabilities, CompareOp, ConvParams, CrossEntropyParams,
    DType, Distribution, HostTensor, Op, OpDesc, PoolParams, Prepack, RandomKey, ReduceOp, Result, Scalar, SgdParams,
    Shape, SliceRange, Support, UnaryOp,
};

/// The backend of tensors whose real backend is known only at run time.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnyBackend;

type T = AnyTensor;

impl Backend for AnyBackend {
    type Tensor = AnyTensor;
    type Device = AnyDevice;

    fn name() -> &'static str {
        "any"
    }

    fn capabilities(device: &AnyDevice) -> Capabilities {
        device
            .backend()
            .capabilities(device)
            .unwrap_or_else(|_| Capabilities::host([]))
    }

    fn supports(device: &AnyDevice, op: &OpDesc<'_>) -> Support {
        device
            .backend()
            .supports(device, op)
            .unwrap_or_else(|e| Support::No(e.to_string()))
    }

    fn synchronize(device: &AnyDevice) -> Result<()> {
        device.backend().synchronize(device)
    }

    #[inline]
    fn shape(x: &T) -> Shape {
        x.shape()
    }

    #[inline]
    fn dtype(x: &T) -> DType {
        x.dtype()
    }

    fn device(x: &T) -> AnyDevice {
        match x.backend().device(x) {
            Ok(device) => device,
            Err(_) => unreachable!("an AnyTensor is paired with its own backend when it is made"),
        }
    }

    #[inline]
    fn same_device(a: &T, b: &T) -> bool {
        a.backend().same_device(a, b)
    }

    fn from_host(host: HostTensor, device: &AnyDevice) -> Result<T> {
        device.backend().from_host(host, device)
    }

    fn to_host(x: &T) -> Result<HostTensor> {
        program::refuse("it reads values on the host");
        x.backend().to_host(x)
    }

    fn full(shape: Shape, value: Scalar, dtype: DType, device: &AnyDevice) -> Result<T> {
        let x = device.backend().full(shape, value, dtype, device)?;
        if program::is_recording() {
            program::note(Action::Full { shape, value, dtype }, &[], std::iter::once(&x));
        }
        Ok(x)
    }

    fn iota(len: usize, start: Scalar, step: Scalar, dtype: DType, device: &AnyDevice) -> Result<T> {
        let x = device.backend().iota(len, start, step, dtype, device)?;
        if program::is_recording() {
            let action = Action::Iota {
                len,
                start,
                step,
                dtype,
            };
            program::note(action, &[], std::iter::once(&x));
        }
        Ok(x)
    }

    fn random(shape: Shape, distribution: Distribution, dtype: DType, key: RandomKey, device: &AnyDevice) -> Result<T> {
        let x = device.backend().random(shape, distribution, dtype, key, device)?;
        if program::is_recording() {
            let action = Action::Random {
                shape,
                distribution,
                dtype,
            };
            program::note_draw(action, key, &x);
        }
        Ok(x)
    }

    fn unary(op: UnaryOp, x: &T) -> Result<T> {
        one(Op::Unary(op), &[x])
    }

    #[inline]
    fn binary(op: BinaryOp, a: &T, b: &T) -> Result<T> {
        one(Op::Binary(op), &[a, b])
    }

    fn compare(op: CompareOp, a: &T, b: &T) -> Result<T> {
        one(Op::Compare(op), &[a, b])
    }

    fn select(condition: &T, a: &T, b: &T) -> Result<T> {
        one(Op::Select, &[condition, a, b])
    }

    fn cast(x: &T, dtype: DType) -> Result<T> {
        one(Op::Cast(dtype), &[x])
    }

    fn reduce(op: ReduceOp, x: &T, axes: Axes, keepdims: bool) -> Result<T> {
        one(Op::Reduce { op, axes, keepdims }, &[x])
    }

    fn arg_reduce(op: ArgOp, x: &T, axis: usize, keepdims: bool) -> Result<T> {
        one(Op::ArgReduce { op, axis, keepdims }, &[x])
    }

    fn cumsum(x: &T, axis: usize) -> Result<T> {
        one(Op::CumSum { axis }, &[x])
    }

    fn matmul(a: &T, b: &T) -> Result<T> {
        one(Op::Matmul, &[a, b])
    }

    fn reshape(x: &T, shape: Shape) -> Result<T> {
        one(Op::Reshape(shape), &[x])
    }

    fn permute(x: &T, axes: Axes) -> Result<T> {
        one(Op::Permute(axes), &[x])
    }

    fn expand(x: &T, shape: Shape) -> Result<T> {
        one(Op::Expand(shape), &[x])
    }

    fn slice(x: &T, ranges: &[SliceRange]) -> Result<T> {
        one(Op::Slice(ranges.into()), &[x])
    }

    fn pad(x: &T, padding: &[(usize, usize)], value: Scalar) -> Result<T> {
        let padding = padding.into();
        one(Op::Pad { padding, value }, &[x])
    }

    fn concat(xs: &[&T], axis: usize) -> Result<T> {
        one(Op::Concat { axis }, xs)
    }

    fn gather(x: &T, axis: usize, index: &T) -> Result<T> {
        one(Op::Gather { axis }, &[x, index])
    }

    fn scatter(x: &T, axis: usize, index: &T, src: &T) -> Result<T> {
        one(Op::Scatter { axis }, &[x, index, src])
    }

    fn scatter_add(x: &T, axis: usize, index: &T, src: &T) -> Result<T> {
        one(Op::ScatterAdd { axis }, &[x, index, src])
    }

    fn index_select(x: &T, axis: usize, index: &T) -> Result<T> {
        one(Op::IndexSelect { axis }, &[x, index])
    }

    fn sort(x: &T, axis: usize, descending: bool) -> Result<(T, T)> {
        two(Op::Sort { axis, descending }, &[x])
    }

    fn conv(x: &T, weight: &T, params: &ConvParams) -> Result<T> {
        one(Op::Conv(*params), &[x, weight])
    }

    fn max_pool(x: &T, params: &PoolParams) -> Result<(T, T)> {
        two(Op::MaxPool(Box::new(*params)), &[x])
    }

    fn avg_pool(x: &T, params: &PoolParams) -> Result<T> {
        one(Op::AvgPool(Box::new(*params)), &[x])
    }

    fn binary_scalar(op: BinaryOp, x: &T, scalar: Scalar, reverse: bool) -> Result<T> {
        one(Op::BinaryScalar { op, scalar, reverse }, &[x])
    }

    fn compare_scalar(op: CompareOp, x: &T, scalar: Scalar) -> Result<T> {
        one(Op::CompareScalar { op, scalar }, &[x])
    }

    fn index_add(x: &T, axis: usize, index: &T, src: &T) -> Result<T> {
        one(Op::IndexAdd { axis }, &[x, index, src])
    }

    fn sum_to(x: &T, shape: Shape) -> Result<T> {
        one(Op::SumTo(shape), &[x])
    }

    fn linear(x: &T, weight: &T, bias: Option<&T>) -> Result<T> {
        one(Op::Linear, Inputs::<4>::new([x, weight], [bias, None]).get())
    }

    fn linear_weight_grad(grad: &T, x: &T) -> Result<(T, T)> {
        two(Op::LinearWeightGrad, &[grad, x])
    }

    fn linear_activation(x: &T, weight: &T, bias: Option<&T>, op: Activation) -> Result<T> {
        one(
            Op::LinearActivation(op),
            Inputs::<4>::new([x, weight], [bias, None]).get(),
        )
    }

    fn conv_activation(
        x: &T,
        weight: &T,
        bias: &T,
        residual: Option<&T>,
        activation: Option<Activation>,
        params: &ConvParams,
    ) -> Result<T> {
        let params = Box::new(*params);
        let inputs = Inputs::<4>::new([x, weight, bias], [residual, None]);
        one(Op::ConvActivation { activation, params }, inputs.get())
    }

    fn max_pool_values(x: &T, params: &PoolParams) -> Result<T> {
        one(Op::MaxPoolValues(Box::new(*params)), &[x])
    }

    fn prepack(weight: &T, kind: Prepack) -> Result<T> {
        one(Op::Prepack(kind), &[weight])
    }

    fn activation(op: Activation, x: &T) -> Result<T> {
        one(Op::Activation(op), &[x])
    }

    fn activation_backward(op: Activation, grad: &T, saved: &T) -> Result<T> {
        one(Op::ActivationBackward(op), &[grad, saved])
    }

    fn softmax(x: &T, axis: usize) -> Result<T> {
        one(Op::Softmax { axis }, &[x])
    }

    fn softmax_backward(grad: &T, output: &T, axis: usize) -> Result<T> {
        one(Op::SoftmaxBackward { axis }, &[grad, output])
    }

    fn log_softmax(x: &T, axis: usize) -> Result<T> {
        one(Op::LogSoftmax { axis }, &[x])
    }

    fn log_softmax_backward(grad: &T, output: &T, axis: usize) -> Result<T> {
        one(Op::LogSoftmaxBackward { axis }, &[grad, output])
    }

    fn cross_entropy(logits: &T, target: &T, params: &CrossEntropyParams) -> Result<(T, T)> {
        two(Op::CrossEntropy(*params), &[logits, target])
    }

    fn cross_entropy_backward(
        grad: &T,
        logits: &T,
        target: &T,
        logsumexp: &T,
        params: &CrossEntropyParams,
    ) -> Result<T> {
        one(Op::CrossEntropyBackward(*params), &[grad, logits, target, logsumexp])
    }

    fn cross_entropy_mean(logits: &T, target: &T, params: &CrossEntropyParams) -> Result<(T, T)> {
        two(Op::CrossEntropyMean(*params), &[logits, target])
    }

    fn cross_entropy_mean_backward(
        grad: &T,
        logits: &T,
        target: &T,
        logsumexp: &T,
        params: &CrossEntropyParams,
    ) -> Result<T> {
        one(
            Op::CrossEntropyMeanBackward(*params),
            &[grad, logits, target, logsumexp],
        )
    }

    fn layer_norm(x: &T, weight: Option<&T>, bias: Option<&T>, axes: usize, eps: f64) -> Result<(T, T, T)> {
        three(Op::LayerNorm { axes, eps }, Inputs::<3>::new([x], [weight, bias]).get())
    }

    fn layer_norm_backward(grad: &T, x: &T, mean: &T, rstd: &T, weight: Option<&T>, axes: usize) -> Result<(T, T, T)> {
        let inputs = Inputs::<6>::new([grad, x, mean, rstd], [weight, None]);
        three(Op::LayerNormBackward { axes }, inputs.get())
    }

    fn rms_norm(x: &T, weight: Option<&T>, axes: usize, eps: f64) -> Result<(T, T)> {
        two(Op::RmsNorm { axes, eps }, Inputs::<3>::new([x], [weight, None]).get())
    }

    fn rms_norm_backward(grad: &T, x: &T, rstd: &T, weight: Option<&T>, axes: usize) -> Result<(T, T)> {
        let inputs = Inputs::<5>::new([grad, x, rstd], [weight, None]);
        two(Op::RmsNormBackward { axes }, inputs.get())
    }

    fn batch_norm(x: &T, weight: Option<&T>, bias: Option<&T>, eps: f64) -> Result<(T, T, T)> {
        three(Op::BatchNorm { eps }, Inputs::<3>::new([x], [weight, bias]).get())
    }

    fn batch_norm_backward(grad: &T, x: &T, mean: &T, var: &T, weight: Option<&T>, eps: f64) -> Result<(T, T, T)> {
        let inputs = Inputs::<6>::new([grad, x, mean, var], [weight, None]);
        three(Op::BatchNormBackward { eps }, inputs.get())
    }

    fn batch_norm_running(x: &T, mean: &T, var: &T, weight: Option<&T>, bias: Option<&T>, eps: f64) -> Result<T> {
        let inputs = Inputs::<5>::new([x, mean, var], [weight, bias]);
        one(Op::BatchNormRunning { eps }, inputs.get())
    }

    fn attention(q: &T, k: &T, v: &T, mask: Option<&T>, scale: f64, causal: bool) -> Result<T> {
        one(
            Op::Attention { scale, causal },
            Inputs::<5>::new([q, k, v], [mask, None]).get(),
        )
    }

    fn attention_backward(
        grad: &T,
        q: &T,
        k: &T,
        v: &T,
        mask: Option<&T>,
        scale: f64,
        causal: bool,
    ) -> Result<(T, T, T)> {
        let inputs = Inputs::<6>::new([grad, q, k, v], [mask, None]);
        three(Op::AttentionBackward { scale, causal }, inputs.get())
    }

    fn embedding(weight: &T, index: &T) -> Result<T> {
        one(Op::Embedding { padding_idx: None }, &[weight, index])
    }

    fn embedding_backward(grad: &T, index: &T, num_embeddings: usize, padding_idx: Option<usize>) -> Result<T> {
        let op = Op::EmbeddingBackward {
            num_embeddings,
            padding_idx,
        };
        one(op, &[grad, index])
    }

    fn lstm_cell(gates: &T, cell: &T) -> Result<(T, T)> {
        two(Op::LstmCell, &[gates, cell])
    }

    fn lstm_steps(x: &T, hidden: &T, cell: &T, weights: [&T; 2], bias: Option<&T>, reverse: bool) -> Result<(T, T)> {
        let inputs = Inputs::<7>::new([x, hidden, cell, weights[0], weights[1]], [bias, None]);
        two(Op::LstmSteps { reverse }, inputs.get())
    }

    fn lstm_steps_backward(
        grad: &T,
        cell: &T,
        weight_hh: &T,
        states: &T,
        activations: &T,
        reverse: bool,
    ) -> Result<(T, T, T)> {
        let inputs = [grad, cell, weight_hh, states, activations];
        three(Op::LstmStepsBackward { reverse }, &inputs)
    }

    fn gru_cell(input_gates: &T, hidden_gates: &T, hidden: &T) -> Result<T> {
        one(Op::GruCell, &[input_gates, hidden_gates, hidden])
    }

    fn rnn(
        x: &T,
        hidden: &T,
        weights: [&T; 2],
        biases: Option<[&T; 2]>,
        activation: Activation,
        reverse: bool,
    ) -> Result<(T, T)> {
        let inputs = Inputs::<6>::new([x, hidden, weights[0], weights[1]], pair(biases));
        two(Op::Rnn { activation, reverse }, inputs.get())
    }

    fn lstm(
        x: &T,
        hidden: &T,
        cell: &T,
        weights: [&T; 2],
        biases: Option<[&T; 2]>,
        reverse: bool,
    ) -> Result<(T, T, T)> {
        let inputs = Inputs::<7>::new([x, hidden, cell, weights[0], weights[1]], pair(biases));
        three(Op::Lstm { reverse }, inputs.get())
    }

    fn gru(x: &T, hidden: &T, weights: [&T; 2], biases: Option<[&T; 2]>, reverse: bool) -> Result<(T, T)> {
        let inputs = Inputs::<6>::new([x, hidden, weights[0], weights[1]], pair(biases));
        two(Op::Gru { reverse }, inputs.get())
    }

    fn conv_input_grad(grad: &T, weight: &T, input_shape: Shape, params: &ConvParams) -> Result<T> {
        let params = Box::new(*params);
        one(Op::ConvInputGrad { input_shape, params }, &[grad, weight])
    }

    fn conv_weight_grad(grad: &T, x: &T, weight_shape: Shape, params: &ConvParams) -> Result<T> {
        let params = Box::new(*params);
        one(Op::ConvWeightGrad { weight_shape, params }, &[grad, x])
    }

    fn max_pool_backward(grad: &T, indices: &T, input_shape: Shape) -> Result<T> {
        one(Op::MaxPoolBackward { input_shape }, &[grad, indices])
    }

    fn avg_pool_backward(grad: &T, input_shape: Shape, params: &PoolParams) -> Result<T> {
        let params = Box::new(*params);
        one(Op::AvgPoolBackward { input_shape, params }, &[grad])
    }

    fn accumulate_grad(mut acc: T, grad: &T) -> Result<T> {
        if program::is_recording() {
            let old = acc.clone();
            acc.backend().update(&Op::AccumulateGrad, &mut [&mut acc], grad)?;
            program::note(Action::Op(Op::AccumulateGrad), &[&old, grad], std::iter::once(&acc));
            return Ok(acc);
        }
        acc.backend().update(&Op::AccumulateGrad, &mut [&mut acc], grad)?;
        Ok(acc)
    }

    fn sgd_step(param: &mut T, grad: &T, momentum: Option<&mut T>, params: &SgdParams) -> Result<()> {
        program::refuse("an optimizer takes a step inside of it");
        let (backend, op) = (param.backend(), Op::SgdStep(*params));
        match momentum {
            None => backend.update(&op, &mut [param], grad),
            Some(momentum) => backend.update(&op, &mut [param, momentum], grad),
        }
    }

    fn adam_step(
        param: &mut T,
        grad: &T,
        first: &mut T,
        second: &mut T,
        max_second: Option<&mut T>,
        params: &AdamParams,
    ) -> Result<()> {
        program::refuse("an optimizer takes a step inside of it");
        let (backend, op) = (param.backend(), Op::AdamStep(*params));
        match max_second {
            None => backend.update(&op, &mut [param, first, second], grad),
            Some(largest) => backend.update(&op, &mut [param, first, second, largest], grad),
        }
    }
}
