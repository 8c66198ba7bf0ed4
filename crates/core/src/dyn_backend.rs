//! The object-safe twin of [`Backend`].

use std::any::TypeId;
use std::fmt::{self, Debug, Display};

use crate::{
    AnyDevice, AnyTensor, Backend, Capabilities, DType, Distribution, Error, ErrorKind, HostTensor, Op, OpDesc,
    RandomKey, Result, Scalar, Shape, Support,
};

/// A backend as an object: implemented for every [`Backend`] by a blanket impl, and by hand for wrappers that watch or disturb the
/// calls of another one.
///
/// Ops arrive as values of [`Op`], so that a wrapper has one method to write, [`DynBackend::execute`], instead of one for each op.
/// Methods that take an [`AnyTensor`] or [`AnyDevice`] of another backend fail with [`ErrorKind::Device`].
pub trait DynBackend: Send + Sync + 'static {
    /// The backend's name, as in device strings.
    fn name(&self) -> &'static str;

    /// Tells backends apart.
    fn id(&self) -> TypeId;

    /// See [`Backend::capabilities`].
    fn capabilities(&self, device: &AnyDevice) -> Result<Capabilities>;

    /// See [`Backend::supports`].
    fn supports(&self, device: &AnyDevice, op: &OpDesc<'_>) -> Result<Support>;

    /// See [`Backend::synchronize`].
    fn synchronize(&self, device: &AnyDevice) -> Result<()>;

    /// See [`Backend::device`].
    fn device(&self, x: &AnyTensor) -> Result<AnyDevice>;

    /// See [`Backend::same_device`].
    fn same_device(&self, a: &AnyTensor, b: &AnyTensor) -> bool;

    /// See [`Backend::from_host`].
    #[allow(clippy::wrong_self_convention, reason = "named as in Backend")]
    fn from_host(&self, host: HostTensor, device: &AnyDevice) -> Result<AnyTensor>;

    /// See [`Backend::to_host`].
    fn to_host(&self, x: &AnyTensor) -> Result<HostTensor>;

    /// See [`Backend::full`].
    fn full(&self, shape: Shape, value: Scalar, dtype: DType, device: &AnyDevice) -> Result<AnyTensor>;

    /// See [`Backend::iota`].
    fn iota(&self, len: usize, start: Scalar, step: Scalar, dtype: DType, device: &AnyDevice) -> Result<AnyTensor>;

    /// See [`Backend::random`].
    fn random(
        &self,
        shape: Shape,
        distribution: Distribution,
        dtype: DType,
        key: RandomKey,
        device: &AnyDevice,
    ) -> Result<AnyTensor>;

    /// Computes an op on its tensors, in the order of the [`Backend`] method's parameters, absent optional ones left out.
    fn execute(&self, op: &Op, inputs: &[&AnyTensor]) -> Result<Outputs>;

    /// Computes an op that changes its first tensors: [`Op::AccumulateGrad`], [`Op::SgdStep`] and [`Op::AdamStep`]. `targets` are those that
    /// change, in the order of the [`Backend`] method's parameters, and `grad` is the gradient.
    fn update(&self, op: &Op, targets: &mut [&mut AnyTensor], grad: &AnyTensor) -> Result<()>;
}

/// The one to three results of an op.
#[derive(Default)]
pub struct Outputs([Option<AnyTensor>; 3]);

impl Outputs {
    /// One result.
    #[inline]
    pub fn one(a: AnyTensor) -> Self {
        Self([Some(a), None, None])
    }

    /// Two results.
    pub fn two(a: AnyTensor, b: AnyTensor) -> Self {
        Self([Some(a), Some(b), None])
    }

    /// Three results.
    pub fn three(a: AnyTensor, b: AnyTensor, c: AnyTensor) -> Self {
        Self([Some(a), Some(b), Some(c)])
    }

    /// The `i`-th result, taken out.
    ///
    /// # Errors
    /// When the op gave fewer.
    #[inline]
    pub fn take(&mut self, i: usize) -> Result<AnyTensor> {
        self.0
            .get_mut(i)
            .and_then(Option::take)
            .ok_or_else(|| Error::invalid(format!("the backend gave no result number {i}")))
    }

    /// The results in order.
    pub fn iter(&self) -> impl Iterator<Item = &AnyTensor> {
        self.0.iter().flatten()
    }

    /// The results in order, to change.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut AnyTensor> {
        self.0.iter_mut().flatten()
    }
}

impl<B: Backend> DynBackend for B {
    fn name(&self) -> &'static str {
        <B as Backend>::name()
    }

    fn id(&self) -> TypeId {
        TypeId::of::<B>()
    }

    fn capabilities(&self, device: &AnyDevice) -> Result<Capabilities> {
        Ok(<B as Backend>::capabilities(place::<B>(device)?))
    }

    fn supports(&self, device: &AnyDevice, op: &OpDesc<'_>) -> Result<Support> {
        Ok(<B as Backend>::supports(place::<B>(device)?, op))
    }

    fn synchronize(&self, device: &AnyDevice) -> Result<()> {
        <B as Backend>::synchronize(place::<B>(device)?)
    }

    fn device(&self, x: &AnyTensor) -> Result<AnyDevice> {
        Ok(AnyDevice::new::<B>(<B as Backend>::device(typed::<B>(x)?)))
    }

    fn same_device(&self, a: &AnyTensor, b: &AnyTensor) -> bool {
        match (a.downcast_ref::<B>(), b.downcast_ref::<B>()) {
            (Some(a), Some(b)) => <B as Backend>::same_device(a, b),
            _ => false,
        }
    }

    fn from_host(&self, host: HostTensor, device: &AnyDevice) -> Result<AnyTensor> {
        <B as Backend>::from_host(host, place::<B>(device)?).map(AnyTensor::new::<B>)
    }

    fn to_host(&self, x: &AnyTensor) -> Result<HostTensor> {
        <B as Backend>::to_host(typed::<B>(x)?)
    }

    fn full(&self, shape: Shape, value: Scalar, dtype: DType, device: &AnyDevice) -> Result<AnyTensor> {
        <B as Backend>::full(shape, value, dtype, place::<B>(device)?).map(AnyTensor::new::<B>)
    }

    fn iota(&self, len: usize, start: Scalar, step: Scalar, dtype: DType, device: &AnyDevice) -> Result<AnyTensor> {
        <B as Backend>::iota(len, start, step, dtype, place::<B>(device)?).map(AnyTensor::new::<B>)
    }

    fn random(
        &self,
        shape: Shape,
        distribution: Distribution,
        dtype: DType,
        key: RandomKey,
        device: &AnyDevice,
    ) -> Result<AnyTensor> {
        <B as Backend>::random(shape, distribution, dtype, key, place::<B>(device)?).map(AnyTensor::new::<B>)
    }

    fn execute(&self, op: &Op, inputs: &[&AnyTensor]) -> Result<Outputs> {
        execute::<B>(op, inputs)
    }

    fn update(&self, op: &Op, targets: &mut [&mut AnyTensor], grad: &AnyTensor) -> Result<()> {
        let grad = typed::<B>(grad)?;
        match (op, targets) {
            (Op::AccumulateGrad, [acc]) => {
                let taken = acc.take::<B>()?;
                **acc = AnyTensor::new::<B>(B::accumulate_grad(taken, grad)?);
                Ok(())
            }
            (Op::SgdStep(params), [param]) => B::sgd_step(param.typed_mut::<B>()?, grad, None, params),
            (Op::SgdStep(params), [param, momentum]) => {
                B::sgd_step(param.typed_mut::<B>()?, grad, Some(momentum.typed_mut::<B>()?), params)
            }
            (Op::AdamStep(params), [param, first, second, rest @ ..]) => B::adam_step(
                param.typed_mut::<B>()?,
                grad,
                first.typed_mut::<B>()?,
                second.typed_mut::<B>()?,
                match rest {
                    [] => None,
                    [largest, ..] => Some(largest.typed_mut::<B>()?),
                },
                params,
            ),
            (op, targets) => Err(malformed(op, targets.len() + 1)),
        }
    }
}

fn typed<B: Backend>(x: &AnyTensor) -> Result<&B::Tensor> {
    x.downcast_ref::<B>().ok_or_else(|| foreign::<B>(x.backend()))
}

fn place<B: Backend>(device: &AnyDevice) -> Result<&B::Device> {
    device.downcast_ref::<B>().ok_or_else(|| foreign::<B>(device.backend()))
}

#[cold]
pub(crate) fn foreign<B: Backend>(found: &dyn DynBackend) -> Error {
    Error::new(
        ErrorKind::Device,
        format!(
            "backend {} was given a tensor or device of backend {}",
            <B as Backend>::name(),
            found.name()
        ),
    )
    .with_hint("move it with to_device or to_backend first")
}

#[cold]
fn malformed(op: &Op, tensors: usize) -> Error {
    Error::invalid(format!("{op:?} does not take {tensors} tensors")).with_op(op.name())
}

/// Finds the typed method for an op.
fn execute<B: Backend>(op: &Op, inputs: &[&AnyTensor]) -> Result<Outputs> {
    let one = |x: B::Tensor| Outputs::one(AnyTensor::new::<B>(x));
    let two = |(x, y): (B::Tensor, B::Tensor)| Outputs::two(AnyTensor::new::<B>(x), AnyTensor::new::<B>(y));
    let three = |(x, y, z): (B::Tensor, B::Tensor, B::Tensor)| {
        Outputs::three(AnyTensor::new::<B>(x), AnyTensor::new::<B>(y), AnyTensor::new::<B>(z))
    };
    let t = |i: usize| match inputs.get(i) {
        Some(x) => typed::<B>(x),
        None => Err(malformed(op, inputs.len())),
    };
    let optional = |i: usize| inputs.get(i).map(|x| typed::<B>(x)).transpose();
    let both = |i: usize| match inputs.get(i) {
        Some(_) => Ok(Some([t(i)?, t(i + 1)?])),
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
            let xs = inputs.iter().map(|x| typed::<B>(x)).collect::<Result<Vec<_>>>()?;
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
            Err(malformed(op, inputs.len()).with_hint("this op changes its tensors: call update"))
        }
    }
}

impl Debug for dyn DynBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DynBackend({})", self.name())
    }
}

impl Display for dyn DynBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
