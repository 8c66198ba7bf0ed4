//! Synchronization of gradients between the backward pass and the optimizer.

use std::sync::Arc;

use polygrad_tensor::{AnyBackend, Backend, BackwardOptions, Gradients, Result, Tensor};

/// Combines the gradients of several processes, between the backward pass and the optimizer, when they train one model.
/// `DataParallel` of polygrad-train is one.
///
/// Everything except [`finish`](Self::finish) runs as part of the backward pass, and a captured step records it.
/// Operations on values have to be in [calls](polygrad_core::program::call), which a replay makes as soon as their
/// gradients are ready.
pub trait GradientSync<B: Backend = AnyBackend>: Send + Sync {
    /// Called when a backward pass begins; the one before it may have failed. Default: nothing.
    fn begin(&self) {}

    /// Called with the gradient of a leaf, identified by its [place](polygrad_tensor::GradId), as soon as it is
    /// complete. Default: nothing, and everything waits for [`ready`](Self::ready).
    ///
    /// # Errors
    /// Any error of the synchronization.
    fn gradient(&self, _leaf: u64, _gradient: &Tensor<B>) -> Result<()> {
        Ok(())
    }

    /// Called with the loss, outside of the gradient graph, and all gradients.
    ///
    /// # Errors
    /// Any error of the synchronization.
    fn ready(&self, loss: &Tensor<B>, gradients: &Gradients<B>) -> Result<()>;

    /// The gradients for the optimizer, instead of this process's own, once all are complete.
    ///
    /// # Errors
    /// Any error of the synchronization.
    fn finish(&self, gradients: Gradients<B>) -> Result<Gradients<B>>;
}

impl<B: Backend> dyn GradientSync<B> {
    /// The backward pass of a loss, reporting to this synchronization, as in a [`TrainStep`](crate::TrainStep).
    ///
    /// # Errors
    /// Those of [`Tensor::backward`], and of the synchronization.
    pub fn backward(self: &Arc<Self>, loss: &Tensor<B>) -> Result<Gradients<B>> {
        self.begin();
        let sync = Arc::clone(self);
        let options = BackwardOptions::default().hook(move |leaf, gradient| sync.gradient(leaf, gradient));
        let gradients = loss.backward_with(&options)?;
        self.ready(&loss.detach(), &gradients)?;
        Ok(gradients)
    }
}
