//! Training steps: loss, gradients and optimizer as one value.

mod captured;

use std::fmt;
use std::marker::PhantomData;

use polygrad_tensor::{AnyBackend, Backend, Gradients, Result, Tensor};

pub use captured::CapturedStep;

use crate::{Module, Optimizer, clip_grad_norm};

/// A training step: a model, an optimizer of its parameters, and the loss of a batch.
///
/// ```
/// use polygrad_nn::{Adam, Linear, Module, TrainStep};
/// use polygrad_nn::loss::{Reduction, mse_loss};
/// use polygrad_tensor::{Device, Result, Tensor};
/// # fn run(device: &Device) -> Result<()> {
/// let model = Linear::new(3, 1, device)?;
/// let optimizer = Adam::new(model.parameters(), 1e-2)?;
/// let train_step = TrainStep::new(model, optimizer, |model: &Linear, batch: &[Tensor]| {
///     mse_loss(&model.forward(&batch[0])?, &batch[1], Reduction::Mean)
/// });
/// // Recorded in its first two steps, and replayed from the third on.
/// let mut step = train_step.captured();
/// let batch = [Tensor::ones([8, 3], device)?, Tensor::zeros([8, 1], device)?];
/// for _ in 0..100 {
///     let loss = step.step(&batch)?;
/// }
/// # Ok(())
/// # }
/// ```
pub struct TrainStep<M, O, L, B: Backend = AnyBackend> {
    model: M,
    optimizer: O,
    loss: L,
    max_norm: Option<f64>,
    backend: PhantomData<B>,
}

impl<M, O, L, B> TrainStep<M, O, L, B>
where
    B: Backend,
    M: Module<B>,
    O: Optimizer<B>,
    L: Fn(&M, &[Tensor<B>]) -> Result<Tensor<B>>,
{
    /// A step for a model, an optimizer of its parameters, and a function that computes the loss, of one element, of a batch.
    pub fn new(model: M, optimizer: O, loss: L) -> Self {
        Self {
            model,
            optimizer,
            loss,
            max_norm: None,
            backend: PhantomData,
        }
    }

    /// Scales the gradients to this norm where theirs is larger, as [`clip_grad_norm`]. Default: they stay as they are.
    #[must_use]
    pub fn clip_grad_norm(mut self, max_norm: f64) -> Self {
        self.max_norm = Some(max_norm);
        self
    }

    /// Trains on a batch; gives the loss before the step, outside the gradient graph.
    ///
    /// # Errors
    /// Those of the loss, of [`Tensor::backward`], of [`clip_grad_norm`] and of [`Optimizer::step`].
    pub fn step(&mut self, batch: &[Tensor<B>]) -> Result<Tensor<B>> {
        let (loss, gradients) = self.gradients(batch)?;
        self.update(gradients)?;
        Ok(loss)
    }

    /// The loss and its gradients. The graph is gone afterwards, so that parameters can be changed in place.
    fn gradients(&self, batch: &[Tensor<B>]) -> Result<(Tensor<B>, Gradients<B>)> {
        let loss = (self.loss)(&self.model, batch)?;
        Ok((loss.detach(), loss.backward()?))
    }

    fn update(&mut self, mut gradients: Gradients<B>) -> Result<()> {
        if let Some(max_norm) = self.max_norm {
            clip_grad_norm(&mut gradients, max_norm)?;
        }
        self.optimizer.step(&gradients)
    }

    /// The model.
    pub fn model(&self) -> &M {
        &self.model
    }

    /// The optimizer, for learning rates and checkpoints.
    pub fn optimizer(&mut self) -> &mut O {
        &mut self.optimizer
    }

    /// Takes the step apart.
    pub fn into_parts(self) -> (M, O) {
        (self.model, self.optimizer)
    }
}

impl<M, O, L> TrainStep<M, O, L>
where
    M: Module,
    O: Optimizer,
    L: Fn(&M, &[Tensor]) -> Result<Tensor>,
{
    /// The same step, whose loss and gradients are recorded in its first two runs and replayed from then on: see [`CapturedStep`].
    pub fn captured(self) -> CapturedStep<M, O, L> {
        CapturedStep::new(self)
    }
}

impl<M, O, L, B: Backend> fmt::Debug for TrainStep<M, O, L, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrainStep")
            .field("max_norm", &self.max_norm)
            .finish_non_exhaustive()
    }
}
