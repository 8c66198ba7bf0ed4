//! Gradient checkpointing: saves memory at the cost of time.

use std::collections::HashSet;

use polygrad_core::{Backend, DType, Error, Result, SavedTensor};
use smallvec::SmallVec;

use crate::autocast::{autocast_dtype, in_mode};
use crate::graph::{Kind, Node, Rule, is_grad_enabled, record_rule};
use crate::random::{GeneratorState, with_generator_state};
use crate::{BackwardOptions, Tensor, enable_grad, no_grad};

type Function<B> = dyn Fn(&[Tensor<B>]) -> Result<Tensor<B>> + Send + Sync;

/// A part of the forward pass that the backward pass recomputes, so that its intermediate values need not be kept.
pub(crate) struct Segment<B: Backend> {
    function: Box<Function<B>>,
    generator: GeneratorState,
    autocast: Option<DType>,
    /// The gradient of each row of the only input with respect to its number of the output, if it was computed ahead.
    ahead: Option<Tensor<B>>,
}

impl<B: Backend> Segment<B> {
    /// The gradient of the input for one of the output `[N]`, if it can be had without computing the output again.
    pub(crate) fn ahead(&self, gradient: &Tensor<B>) -> Result<Option<Tensor<B>>> {
        let Some(ahead) = &self.ahead else {
            return Ok(None);
        };
        let mut dims = gradient.dims().to_vec();
        dims.resize(ahead.rank(), 1);
        let wide = ahead.to_dtype(gradient.dtype())?;
        wide.mul(&gradient.reshape(dims)?)?.to_dtype(ahead.dtype()).map(Some)
    }

    /// Computes the output again, this time with its graph, with the random numbers and the autocast
    /// mode of the first time.
    pub(crate) fn recompute(&self, inputs: SmallVec<[Tensor<B>; 2]>) -> Result<Tensor<B>> {
        let again = || enable_grad(|| with_generator_state(self.generator, || (self.function)(&inputs)));
        in_mode(self.autocast, again)
    }
}

/// Computes `function(inputs)` without saving tensors for its gradient; the backward pass recomputes it.
///
/// Tensors that `function` captures get their gradients as well. It must give the same result each time; random numbers
/// from the thread's generator are repeated.
///
/// # Errors
/// Those of `function`, here and again in the backward pass.
pub fn checkpoint<B: Backend>(
    function: impl Fn(&[Tensor<B>]) -> Result<Tensor<B>> + Send + Sync + 'static,
    inputs: &[&Tensor<B>],
) -> Result<Tensor<B>> {
    let generator = GeneratorState::current();
    let owned: Vec<_> = inputs.iter().map(|&input| input.clone()).collect();
    let output = no_grad(|| function(&owned))?;
    if !is_grad_enabled() {
        return Ok(output);
    }
    Ok(recorded(Box::new(function), generator, inputs, output, None))
}

/// [`checkpoint`] of a function that makes a number of each row of its input, and of nothing but that row and tensors
/// that it captures: `[N, …]` becomes `[N]`. If none of these takes a gradient, the input's is computed at once and
/// kept, which takes as much memory as the input, and nothing is computed again, unless the backward pass is itself
/// [recorded](crate::BackwardOptions::create_graph).
///
/// # Errors
/// Those of `function`, and when it gives another shape.
pub fn checkpoint_rows<B: Backend>(
    function: impl Fn(&Tensor<B>) -> Result<Tensor<B>> + Send + Sync + 'static,
    input: &Tensor<B>,
) -> Result<Tensor<B>> {
    let generator = GeneratorState::current();
    let leaf = match is_grad_enabled() && input.is_tracked() {
        true => input.detach().requires_grad()?,
        false => return checkpoint(move |x| function(&x[0]), &[input]),
    };
    let output = function(&leaf)?;
    if output.dims()[..] != input.dims()[..input.rank().min(1)] {
        let text = format!("the function makes {} of {}", output.shape(), input.shape());
        return Err(Error::shape(text)
            .with_op("checkpoint_rows")
            .with_hint("give one that makes a number of each row, or take `checkpoint`"));
    }
    let ahead = match goes_to_alone(&output, &leaf) {
        false => None,
        true => {
            let ones = output.ones_like()?;
            let gradients = output.backward_with(&BackwardOptions::default().gradient(&ones))?;
            Some(gradients.require(&leaf)?.clone())
        }
    };
    let function = Box::new(move |x: &[Tensor<B>]| function(&x[0]));
    Ok(recorded(function, generator, &[input], output, ahead))
}

fn recorded<B: Backend>(
    function: Box<Function<B>>,
    generator: GeneratorState,
    inputs: &[&Tensor<B>],
    output: Tensor<B>,
    ahead: Option<Tensor<B>>,
) -> Tensor<B> {
    let segment = Segment {
        function,
        generator,
        autocast: autocast_dtype(),
        ahead,
    };
    let rule = Rule::Checkpoint(segment.into());
    record_rule(output.value, &[], inputs, rule, &[SavedTensor::Inputs])
}

/// Whether gradients of a tensor go to this leaf and to no other. What a checkpoint inside uses is not known.
fn goes_to_alone<B: Backend>(output: &Tensor<B>, leaf: &Tensor<B>) -> bool {
    let (mut seen, mut found) = (HashSet::new(), false);
    let mut pending: Vec<&Node<B>> = output.graph_node().map(AsRef::as_ref).into_iter().collect();
    while let Some(node) = pending.pop() {
        match &node.kind {
            Kind::Leaf(_) if Some(node.id()) == leaf.node_id() => found = true,
            Kind::Op(call) if !matches!(call.rule, Rule::Checkpoint(_)) => {
                if seen.insert(node.id()) {
                    pending.extend(call.inputs.iter().filter_map(|edge| edge.node.as_deref()));
                }
            }
            Kind::Leaf(_) | Kind::Op(_) => return false,
            Kind::Cut(_) => {}
        }
    }
    found
}
