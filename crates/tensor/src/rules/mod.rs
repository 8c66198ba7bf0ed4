//! The gradient rules: one table, written in tensor ops.
//!
//! Each rule computes the gradients of an op's inputs from the gradient of its output. Rules of fused ops call the
//! backend's fused gradient. If the gradient must itself be differentiable, they use its decomposition, or recompute
//! the op from core ops and continue through those.

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

/// The result of a rule.
pub(crate) enum Passed<B: Backend> {
    /// Gradients of the inputs.
    Inputs(InputGradients<B>),
    /// The gradient of the only input, which is zero outside a range of one axis that begins at `start`.
    Stretch {
        axis: usize,
        start: usize,
        gradient: Tensor<B>,
    },
    /// The output, recomputed from other ops, and its gradient, which continues through those.
    Through(Tensor<B>, Tensor<B>),
}

impl<B: Backend> Passed<B> {
    fn one(gradient: Tensor<B>) -> Result<Self> {
        Ok(Self::Inputs(smallvec![Some(gradient)]))
    }
}

/// The arguments of a rule.
pub(crate) struct Context<'a, B: Backend> {
    call: &'a Call<B>,
    saved: &'a [Tensor<B>],
    grad: Tensor<B>,
    create_graph: bool,
}

impl<B: Backend> Context<'_, B> {
    /// Whether input `i` needs a gradient.
    fn wants(&self, i: usize) -> bool {
        self.call.inputs[i].node.is_some()
    }

    /// Shape of input `i`.
    fn shape(&self, i: usize) -> Shape {
        self.call.inputs[i].shape
    }

    /// Computes the gradient of input `i` if it is needed.
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

/// Applies the rule of a call to the gradient of its output.
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

/// The rules for f16 and bf16: rules of several steps run in f32, as the ops themselves do, and round once.
#[cold]
fn narrow<B: Backend>(op: &Op, c: &Context<'_, B>) -> Result<Passed<B>> {
    // The gradient of a product is a single product, unless an input was broadcast, which adds a sum.
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

/// The rules are not inlined here: as one function they would take LLVM a sixth longer for the whole crate.
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
        // The angles have no gradient here: if they need one, the ops of the rotation are recorded instead.
        Op::Rotary => Passed::one(c.grad.rotary(&c.saved[0], &c.saved[1].neg()?)?),
        Op::LstmSteps { reverse } => fused::lstm_steps(*reverse, c),
        Op::Embedding { padding_idx } => fused::embedding(*padding_idx, c),
        Op::FakeQuantize { bounds, axis } => elementwise::fake_quantize(*bounds, *axis, c),

        other => Err(missing(other.name())),
    }
}

/// A missing gradient rule is an error; the gradient is never silently dropped.
fn missing(op: &str) -> Error {
    Error::new(ErrorKind::NoGradient, format!("there is no gradient rule for {op}"))
}
