//! Gradient checkpointing: memory for time.

use polygrad_core::{Backend, DType, Result, SavedTensor};
use smallvec::SmallVec;

use crate::autocast::{autocast_dtype, in_mode};
use crate::graph::{Rule, is_grad_enabled, record_rule};
use crate::random::{GeneratorState, with_generator_state};
use crate::{Tensor, enable_grad, no_grad};

type Function<B> = dyn Fn(&[Tensor<B>]) -> Result<Tensor<B>> + Send + Sync;

/// A part of the forward pass that the backward pass computes again, so that its intermediate values need not be kept.
pub(crate) struct Segment<B: Backend> {
    function: Box<Function<B>>,
    generator: GeneratorState,
    autocast: Option<DType>,
}

impl<B: Backend> Segment<B> {
    /// Computes the output again, this time with its graph, with the random numbers and the autocast
    /// mode of the first time.
    pub(crate) fn recompute(&self, inputs: SmallVec<[Tensor<B>; 2]>) -> Result<Tensor<B>> {
        let again = || enable_grad(|| with_generator_state(self.generator, || (self.function)(&inputs)));
        in_mode(self.autocast, again)
    }
}

/// Computes `function(inputs)` without keeping what its gradient needs; the backward pass computes it again.
///
/// Tensors that `function` captures get their gradients as well. It must give the same result each time; random numbers
/// from the thread's generator are taken care of.
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
    let segment = Segment {
        function: Box::new(function),
        generator,
        autocast: autocast_dtype(),
    };
    let rule = Rule::Checkpoint(segment.into());
    Ok(record_rule(output.value, &[], inputs, rule, &[SavedTensor::Inputs]))
}
