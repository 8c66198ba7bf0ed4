//! What happens to gradients between the backward pass and the optimizer.

use std::sync::Arc;

use polygrad_tensor::{AnyBackend, Backend, BackwardOptions, Gradients, Result, Tensor};

/// Makes the gradients of several processes those of one: what stands between the backward pass and the optimizer where
/// a model is trained by more than one. `DataParallel` of polygrad-train is one.
///
/// All but [`finish`](Self::finish) runs as a part of the backward pass: a captured step records it. What is done
/// with values has to be in [calls](polygrad_core::program::call), which a replay makes as soon as their
/// gradients are ready.
pub trait GradientSync<B: Backend = AnyBackend>: Send + Sync {
    /// A backward pass begins; one before it may have failed. Default: nothing.
    fn begin(&self) {}

    /// Is given the gradient of a leaf, after its [place](polygrad_tensor::GradId), as soon as nothing more is added to
    /// it. Default: it waits for [`ready`](Self::ready).
    ///
    /// # Errors
    /// Whatever goes wrong.
    fn gradient(&self, _leaf: u64, _gradient: &Tensor<B>) -> Result<()> {
        Ok(())
    }

    /// Is given the loss, outside of the gradient graph, and all gradients.
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

impl<B: Backend> dyn GradientSync<B> {
    /// The backward pass of a loss, which tells of it: what a [`TrainStep`](crate::TrainStep) does.
    ///
    /// # Errors
    /// Those of [`Tensor::backward`], and of what is told.
    pub fn backward(self: &Arc<Self>, loss: &Tensor<B>) -> Result<Gradients<B>> {
        self.begin();
        let sync = Arc::clone(self);
        let options = BackwardOptions::default().hook(move |leaf, gradient| sync.gradient(leaf, gradient));
        let gradients = loss.backward_with(&options)?;
        self.ready(&loss.detach(), &gradients)?;
        Ok(gradients)
    }
}
