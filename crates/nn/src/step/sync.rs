//! What happens to gradients between the backward pass and the optimizer.

use polygrad_tensor::{AnyBackend, Backend, Gradients, Result, Tensor};

/// Makes the gradients of several processes those of one: what stands between the backward pass and the optimizer where a model is trained by more
/// than one. `DataParallel` of polygrad-train is one.
pub trait GradientSync<B: Backend = AnyBackend>: Send + Sync {
    /// Is given the loss, outside of the gradient graph, and the gradients. It runs as a part of the backward pass: a captured step records it. What it
    /// does with values has to be in [calls](polygrad_core::program::call), which are then made as soon as their gradients are ready.
    ///
    /// # Errors
    /// Whatever goes wrong.
    fn ready(&self, loss: &Tensor<B>, gradients: &Gradients<B>) -> Result<()>;

    /// The gradients for the optimizer, in place of this process's own, once all are there.
    ///
    /// # Errors
    /// Whatever goes wrong.
    fn finish(&self, gradients: Gradients<B>) -> Result<Gradients<B>>;
}
