//! User-defined ops with gradient rules.

use std::sync::Arc;

use polygrad_core::{AnyBackend, Backend, Error, Result, SavedTensor};

use crate::Tensor;
use crate::backward::InputGradients;
use crate::graph::{Call, Rule, needs_graph, record_rule};

/// A user-defined differentiable op: a forward function and a gradient rule.
///
/// If the rule only uses tensor ops, gradients of higher order work, too.
pub trait CustomOp<B: Backend = AnyBackend>: Send + Sync + 'static {
    /// Its name in error messages.
    fn name(&self) -> &str;

    /// Computes the output. Its ops are not recorded in the gradient graph.
    ///
    /// # Errors
    /// Whatever goes wrong.
    fn forward(&self, inputs: &[Tensor<B>]) -> Result<Tensor<B>>;

    /// The gradient wrt each input, in order and of the input's shape and dtype; `None` for an input that has none.
    ///
    /// # Errors
    /// Whatever goes wrong.
    fn backward(&self, inputs: &[Tensor<B>], output: &Tensor<B>, grad: &Tensor<B>) -> Result<Vec<Option<Tensor<B>>>>;
}

impl<B: Backend> Tensor<B> {
    /// Applies a user-defined op.
    ///
    /// # Errors
    /// Those of the op.
    pub fn custom(op: impl CustomOp<B>, inputs: &[&Self]) -> Result<Self> {
        let owned: Vec<_> = inputs.iter().map(|input| input.detach()).collect();
        let output = crate::no_grad(|| op.forward(&owned)).map_err(|e| e.with_op(op.name().to_owned()))?;
        if !needs_graph(inputs) {
            return Ok(output.detach());
        }
        let saved = [SavedTensor::Inputs, SavedTensor::Output(0)];
        Ok(record_rule(
            output.value,
            &[],
            inputs,
            Rule::Custom(Arc::new(op)),
            &saved,
        ))
    }
}

/// Runs a user's rule, and checks its gradients.
pub(crate) fn apply<B: Backend>(
    op: &dyn CustomOp<B>,
    call: &Call<B>,
    saved: &[Tensor<B>],
    grad: &Tensor<B>,
) -> Result<InputGradients<B>> {
    let context = |error: Error| error.with_op(format!("backward of {}", op.name()));
    let (output, inputs) = match saved {
        [inputs @ .., output] => (output, inputs),
        [] => unreachable!("the output was saved"),
    };
    let gradients = op.backward(inputs, output, grad).map_err(context)?;
    if gradients.len() != inputs.len() {
        return Err(context(Error::invalid(format!(
            "{} gradients were given for {} inputs",
            gradients.len(),
            inputs.len()
        ))));
    }
    for (i, (edge, gradient)) in call.inputs.iter().zip(&gradients).enumerate() {
        match gradient {
            Some(g) if g.shape() != edge.shape || g.dtype() != edge.dtype => {
                return Err(context(Error::shape(format!(
                    "the gradient of input {i} is {}{}, the input {}{}",
                    g.dtype(),
                    g.shape(),
                    edge.dtype,
                    edge.shape
                ))));
            }
            None if edge.node.is_some() => {
                return Err(context(Error::new(
                    polygrad_core::ErrorKind::NoGradient,
                    format!("input {i} requires a gradient and the rule gives none"),
                ))
                .with_hint("give one, or detach the input"));
            }
            _ => {}
        }
    }
    Ok(gradients.into())
}
