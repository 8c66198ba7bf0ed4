//! The gradient rules: one table, written in tensor ops.
//!
//! Each row passes the gradient of an op's output on to its inputs. Rows of fused ops call the backend's fused
//! gradient; where the gradient itself is to be differentiated, they use its decomposition, or compute the op again
//! from core ops and go through those.

mod elementwise;
mod fused;
mod movement;
mod reduction;

use polygrad_core::{Backend, BinaryOp, Error, ErrorKind, Op, Result, Shape};
use smallvec::{SmallVec, smallvec};

use crate::Tensor;
use crate::backward::InputGradients;
use crate::custom;
use crate::graph::{Call, Rule};
use crate::ops::blocks;

/// Where a gradient goes.
pub(crate) enum Passed<B: Backend> {
    /// To the inputs.
    Inputs(InputGradients<B>),
    /// To a range of one axis of the only input, beginning at `start`; the gradient is zero elsewhere.
    Stretch {
        axis: usize,
        start: usize,
        gradient: Tensor<B>,
    },
    /// To the same output, computed again from other ops.
    Through(Tensor<B>, Tensor<B>),
}

impl<B: Backend> Passed<B> {
    fn one(gradient: Tensor<B>) -> Result<Self> {
        Ok(Self::Inputs(smallvec![Some(gradient)]))
    }
}

/// What a rule may ask.
pub(crate) struct Context<'a, B: Backend> {
    call: &'a Call<B>,
    saved: &'a [Tensor<B>],
    grad: Tensor<B>,
    create_graph: bool,
}

impl<B: Backend> Context<'_, B> {
    /// Whether input `i` wants a gradient.
    fn wants(&self, i: usize) -> bool {
        self.call.inputs[i].node.is_some()
    }

    /// Shape of input `i`.
    fn shape(&self, i: usize) -> Shape {
        self.call.inputs[i].shape
    }

    /// Computes the gradient of input `i` if it is wanted.
    fn when(&self, i: usize, gradient: impl FnOnce() -> Result<Tensor<B>>) -> Result<Option<Tensor<B>>> {
        if self.wants(i) { gradient().map(Some) } else { Ok(None) }
    }

    /// Gradients of two inputs.
    fn two(
        &self,
        first: impl FnOnce() -> Result<Tensor<B>>,
        second: impl FnOnce() -> Result<Tensor<B>>,
    ) -> Result<Passed<B>> {
        Ok(Passed::Inputs(smallvec![self.when(0, first)?, self.when(1, second)?]))
    }
}

/// Passes the gradient of a call's output on.
pub(crate) fn apply<B: Backend>(
    call: &Call<B>,
    saved: &[Tensor<B>],
    grad: Tensor<B>,
    create_graph: bool,
) -> Result<Passed<B>> {
    match &call.rule {
        Rule::Op(op) => {
            let context = Context {
                call,
                saved,
                grad,
                create_graph,
            };
            let dtype = context.grad.dtype();
            let passed = if dtype.wide() == dtype {
                table(op, &context)
            } else {
                narrow(op, &context)
            };
            passed.map_err(|e| e.with_op(format!("backward of {}", op.name())))
        }
        Rule::Custom(op) => custom::apply(&**op, call, saved, &grad).map(Passed::Inputs),
        Rule::Checkpoint(_) => unreachable!("the backward pass computes checkpoints again before it comes here"),
    }
}

/// The rules for f16 and bf16: those of several steps run in f32, as the ops themselves do, and round once.
#[cold]
fn narrow<B: Backend>(op: &Op, c: &Context<'_, B>) -> Result<Passed<B>> {
    // A product's gradient is another one, and its sum where an input was broadcast.
    let is_product =
        || matches!(op, Op::Binary(BinaryOp::Mul)) && c.call.inputs.iter().all(|x| x.shape == c.grad.shape());
    if !op.gradient_takes_steps() || is_product() {
        return table(op, c);
    }
    let dtype = c.grad.dtype();
    let saved = c
        .saved
        .iter()
        .map(Tensor::widened)
        .collect::<Result<SmallVec<[_; 4]>>>()?;
    let wide = Context {
        call: c.call,
        saved: &saved,
        grad: c.grad.widened()?,
        create_graph: c.create_graph,
    };
    let mut passed = table(op, &wide)?;
    if let Passed::Inputs(gradients) = &mut passed {
        for gradient in gradients.iter_mut().flatten() {
            *gradient = gradient.to_dtype(dtype)?;
        }
    }
    Ok(passed)
}

fn table<B: Backend>(op: &Op, c: &Context<'_, B>) -> Result<Passed<B>> {
    match op {
        Op::Unary(op) => elementwise::unary(*op, c),
        Op::Binary(op) => elementwise::binary(*op, c),
        Op::BinaryScalar { op, scalar, reverse } => elementwise::binary_scalar(*op, *scalar, *reverse, c),
        Op::Select => elementwise::select(c),
        Op::Cast(_) => Passed::one(c.grad.to_dtype(c.call.inputs[0].dtype)?),

        Op::Reduce { op, axes, .. } => reduction::reduce(*op, *axes, c),
        Op::CumSum { axis } => reduction::cumsum(*axis, c),
        Op::SumTo(_) => Passed::one(c.grad.expand(c.shape(0))?),
        Op::Matmul => reduction::matmul(c),
        Op::Linear { activation } => reduction::linear(*activation, c),
        Op::QuantizedLinear { scheme, transposed } => {
            let weight = [&c.saved[0], &c.saved[1], &c.saved[2]];
            Passed::one(blocks::product(&c.grad, weight, *scheme, !transposed)?)
        }

        Op::Reshape(_) => Passed::one(c.grad.reshape(c.shape(0))?),
        Op::Permute(axes) => Passed::one(c.grad.permute_axes(axes.inverse())?),
        Op::Expand(_) => Passed::one(c.grad.sum_to(c.shape(0))?),
        Op::Slice(ranges) => movement::slice(ranges, c),
        Op::Pad { padding, .. } => movement::pad(padding, c),
        Op::Concat { axis } => movement::concat(*axis, c),
        Op::Gather { axis } => movement::gather(*axis, c),
        Op::Scatter { axis } => movement::scatter(*axis, c),
        Op::ScatterAdd { axis } => movement::scatter_add(*axis, c),
        Op::IndexSelect { axis } => movement::index_select(*axis, c),
        Op::IndexAdd { axis } => movement::index_add(*axis, c),
        Op::Sort { axis, .. } => movement::sort(*axis, c),

        Op::Conv {
            activation: None,
            params,
        } if c.call.inputs.len() < 4 => fused::conv(params, c),
        // Both gradients of a convolution are linear in the same three tensors as the convolution itself.
        Op::ConvInputGrad { params, .. } => c.two(
            || c.grad.conv(&c.saved[1], None, params),
            || c.saved[0].conv_weight_grad(&c.grad, c.shape(1), params),
        ),
        Op::ConvWeightGrad { params, .. } => c.two(
            || c.saved[1].conv(&c.grad, None, params),
            || c.saved[0].conv_input_grad(&c.grad, c.shape(1), params),
        ),

        Op::MaxPool { positions: true, .. } => fused::max_pool(c),
        Op::AvgPool(params) => fused::avg_pool(params, c),
        Op::Activation(op) => fused::activation(*op, c),
        Op::Softmax { axis } => fused::softmax(*axis, c),
        Op::LogSoftmax { axis } => fused::log_softmax(*axis, c),
        Op::CrossEntropy(params) => fused::cross_entropy(params, c),
        Op::LayerNorm { axes, eps } => fused::layer_norm(*axes, *eps, c),
        Op::RmsNorm { axes, eps } => fused::rms_norm(*axes, *eps, c),
        Op::BatchNorm { eps } => fused::batch_norm(*eps, c),
        Op::Attention { scale, causal } => fused::attention(*scale, *causal, c),
        Op::LstmSteps { reverse } => fused::lstm_steps(*reverse, c),
        Op::Embedding { padding_idx } => fused::embedding(*padding_idx, c),
        Op::FakeQuantize { bounds, axis } => elementwise::fake_quantize(*bounds, *axis, c),

        other => Err(missing(other.name())),
    }
}

/// A gradient that nobody wrote is an error, never a hole.
fn missing(op: &str) -> Error {
    Error::new(ErrorKind::NoGradient, format!("there is no gradient rule for {op}"))
}
