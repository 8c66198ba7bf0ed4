//! A backend chosen at run time, which is a [`Backend`] again.

use std::any::Any;
use std::fmt::{self, Debug, Display};
use std::sync::Arc;

use crate::dyn_backend::foreign;
use crate::{
    Activation, AdamParams, ArgOp, Axes, Backend, BinaryOp, Capabilities, CompareOp, ConvParams, CrossEntropyParams,
    DType, Distribution, DynBackend, HostTensor, Op, OpDesc, PoolParams, Prepack, RandomKey, ReduceOp, Result, Scalar,
    SgdParams, Shape, SliceRange, Support, UnaryOp,
};

/// The backend of tensors whose real backend is known only at run time.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnyBackend;

/// A tensor of any backend.
#[derive(Clone)]
pub struct AnyTensor {
    backend: &'static dyn DynBackend,
    erased: Arc<Erased<dyn Any + Send + Sync>>,
}

/// A tensor behind a pointer, with its shape and dtype beside it: these are asked for so often that going to the backend for them
/// would cost more than many an op.
struct Erased<T: ?Sized> {
    shape: Shape,
    dtype: DType,
    /// An `Option` of the backend's own tensor, which is none while [`AnyTensor::take`] has it out.
    slot: T,
}

impl AnyTensor {
    /// Erases the backend of a tensor.
    #[inline]
    pub fn new<B: Backend>(tensor: B::Tensor) -> Self {
        let (shape, dtype) = (B::shape(&tensor), B::dtype(&tensor));
        Self::from_parts(instance::<B>(), tensor, shape, dtype)
    }

    /// A tensor that a hand-written [`DynBackend`] recognises as its own by its type.
    #[inline]
    pub fn from_parts<T: Any + Send + Sync>(
        backend: &'static dyn DynBackend,
        tensor: T,
        shape: Shape,
        dtype: DType,
    ) -> Self {
        let slot = Some(tensor);
        Self {
            backend,
            erased: Arc::new(Erased { shape, dtype, slot }),
        }
    }

    /// Its backend.
    #[inline]
    pub fn backend(&self) -> &'static dyn DynBackend {
        self.backend
    }

    /// Its shape.
    #[inline]
    pub fn shape(&self) -> Shape {
        self.erased.shape
    }

    /// Its dtype.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.erased.dtype
    }

    /// What it wraps, if that is a `T`.
    #[inline]
    pub fn inner<T: Any>(&self) -> Option<&T> {
        self.erased.slot.downcast_ref::<Option<T>>()?.as_ref()
    }

    /// The tensor itself, if it is one of `B`.
    #[inline]
    pub fn downcast_ref<B: Backend>(&self) -> Option<&B::Tensor> {
        self.inner()
    }

    fn slot<B: Backend>(&mut self) -> Option<&mut Option<B::Tensor>> {
        Arc::get_mut(&mut self.erased)?.slot.downcast_mut()
    }

    fn cloned<B: Backend>(&self) -> Result<B::Tensor> {
        let tensor = self.downcast_ref::<B>().cloned();
        tensor.ok_or_else(|| foreign::<B>(self.backend))
    }

    /// The tensor itself, to change: copied first if the handle is shared (a cheap copy: backends share the memory).
    pub(crate) fn typed_mut<B: Backend>(&mut self) -> Result<&mut B::Tensor> {
        if self.slot::<B>().is_none() {
            *self = Self::new::<B>(self.cloned::<B>()?);
        }
        let backend = self.backend;
        self.slot::<B>()
            .and_then(Option::as_mut)
            .ok_or_else(|| foreign::<B>(backend))
    }

    /// Moves the tensor out, leaving a handle that holds none until a new one is put in its place.
    pub(crate) fn take<B: Backend>(&mut self) -> Result<B::Tensor> {
        match self.slot::<B>().and_then(Option::take) {
            Some(tensor) => Ok(tensor),
            None => self.cloned::<B>(),
        }
    }
}

impl Debug for AnyTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let backend = self.backend.name();
        write!(f, "AnyTensor({backend} {}{})", self.erased.dtype, self.erased.shape)
    }
}

/// A device of any backend.
#[derive(Clone)]
pub struct AnyDevice {
    backend: &'static dyn DynBackend,
    device: Arc<dyn DynDevice>,
}

impl AnyDevice {
    /// Erases the backend of a device.
    pub fn new<B: Backend>(device: B::Device) -> Self {
        Self {
            backend: instance::<B>(),
            device: Arc::new(device),
        }
    }

    /// A device of a hand-written [`DynBackend`].
    pub fn from_parts(backend: &'static dyn DynBackend, device: Arc<dyn DynDevice>) -> Self {
        Self { backend, device }
    }

    /// Its backend.
    pub fn backend(&self) -> &'static dyn DynBackend {
        self.backend
    }

    /// What it wraps.
    pub fn inner(&self) -> &dyn DynDevice {
        &*self.device
    }

    /// The device itself, if it is one of `B`.
    pub fn downcast_ref<B: Backend>(&self) -> Option<&B::Device> {
        self.device.as_any().downcast_ref()
    }
}

impl PartialEq for AnyDevice {
    fn eq(&self, other: &Self) -> bool {
        self.backend.id() == other.backend.id() && self.device.same(other.device.as_any())
    }
}

impl Display for AnyDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Display::fmt(&*self.device, f)
    }
}

impl Debug for AnyDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnyDevice({self})")
    }
}

/// What every backend's device can do; implemented by a blanket impl.
pub trait DynDevice: Any + Debug + Display + Send + Sync {
    /// For downcasts.
    fn as_any(&self) -> &dyn Any;

    /// Whether the other is the same device.
    fn same(&self, other: &dyn Any) -> bool;
}

impl<D: PartialEq + Debug + Display + Send + Sync + 'static> DynDevice for D {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn same(&self, other: &dyn Any) -> bool {
        other.downcast_ref::<D>() == Some(self)
    }
}

/// The one value of a backend, as an object. A backend is a type without fields, so that nothing is allocated here.
#[inline]
fn instance<B: Backend>() -> &'static dyn DynBackend {
    const {
        assert!(
            size_of::<B>() == 0,
            "a backend has no fields: state belongs into its devices"
        )
    };
    Box::leak(Box::<B>::default())
}

#[inline]
fn one(op: Op, inputs: &[&AnyTensor]) -> Result<AnyTensor> {
    inputs[0].backend.execute(&op, inputs)?.take(0)
}

fn two(op: Op, inputs: &[&AnyTensor]) -> Result<(AnyTensor, AnyTensor)> {
    let mut outputs = inputs[0].backend.execute(&op, inputs)?;
    Ok((outputs.take(0)?, outputs.take(1)?))
}

fn three(op: Op, inputs: &[&AnyTensor]) -> Result<(AnyTensor, AnyTensor, AnyTensor)> {
    let mut outputs = inputs[0].backend.execute(&op, inputs)?;
    Ok((outputs.take(0)?, outputs.take(1)?, outputs.take(2)?))
}

/// The tensors of a call whose last ones are optional: an absent one may only be followed by absent ones.
struct Inputs<'a, const N: usize>([&'a AnyTensor; N], usize);

impl<'a, const N: usize> Inputs<'a, N> {
    fn new<const R: usize>(required: [&'a AnyTensor; R], optional: [Option<&'a AnyTensor>; 2]) -> Self {
        let mut all = [required[0]; N];
        all[..R].copy_from_slice(&required);
        let mut len = R;
        for x in optional.into_iter().map_while(|x| x) {
            all[len] = x;
            len += 1;
        }
        Self(all, len)
    }

    fn get(&self) -> &[&'a AnyTensor] {
        &self.0[..self.1]
    }
}

/// Two operands that are there together, or not at all.
fn pair(operands: Option<[&AnyTensor; 2]>) -> [Option<&AnyTensor>; 2] {
    operands.map_or([None; 2], |both| both.map(Some))
}

type T = AnyTensor;

impl Backend for AnyBackend {
    type Tensor = AnyTensor;
    type Device = AnyDevice;

    fn name() -> &'static str {
        "any"
    }

    fn capabilities(device: &AnyDevice) -> Capabilities {
        device
            .backend
            .capabilities(device)
            .unwrap_or_else(|_| Capabilities::host([]))
    }

    fn supports(device: &AnyDevice, op: &OpDesc<'_>) -> Support {
        device
            .backend
            .supports(device, op)
            .unwrap_or_else(|e| Support::No(e.to_string()))
    }

    fn synchronize(device: &AnyDevice) -> Result<()> {
        device.backend.synchronize(device)
    }

    #[inline]
    fn shape(x: &T) -> Shape {
        x.erased.shape
    }

    #[inline]
    fn dtype(x: &T) -> DType {
        x.erased.dtype
    }

    fn device(x: &T) -> AnyDevice {
        match x.backend.device(x) {
            Ok(device) => device,
            Err(_) => unreachable!("an AnyTensor is paired with its own backend when it is made"),
        }
    }

    #[inline]
    fn same_device(a: &T, b: &T) -> bool {
        a.backend.same_device(a, b)
    }

    fn from_host(host: HostTensor, device: &AnyDevice) -> Result<T> {
        device.backend.from_host(host, device)
    }

    fn to_host(x: &T) -> Result<HostTensor> {
        x.backend.to_host(x)
    }

    fn full(shape: Shape, value: Scalar, dtype: DType, device: &AnyDevice) -> Result<T> {
        device.backend.full(shape, value, dtype, device)
    }

    fn iota(len: usize, start: Scalar, step: Scalar, dtype: DType, device: &AnyDevice) -> Result<T> {
        device.backend.iota(len, start, step, dtype, device)
    }

    fn random(shape: Shape, distribution: Distribution, dtype: DType, key: RandomKey, device: &AnyDevice) -> Result<T> {
        device.backend.random(shape, distribution, dtype, key, device)
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
        acc.backend.update(&Op::AccumulateGrad, &mut [&mut acc], grad)?;
        Ok(acc)
    }

    fn sgd_step(param: &mut T, grad: &T, momentum: Option<&mut T>, params: &SgdParams) -> Result<()> {
        let (backend, op) = (param.backend, Op::SgdStep(*params));
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
        let (backend, op) = (param.backend, Op::AdamStep(*params));
        match max_second {
            None => backend.update(&op, &mut [param, first, second], grad),
            Some(largest) => backend.update(&op, &mut [param, first, second, largest], grad),
        }
    }
}
