//! Training steps: loss, gradients and optimizer as one value.

mod captured;
mod outputs;
mod sync;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use polygrad_tensor::{AnyBackend, Backend, Error, Gradients, Result, Tensor};

pub use captured::CapturedStep;
pub use outputs::StepOutputs;
pub use sync::GradientSync;

use crate::Module;
use crate::locate::locate;
use crate::optim::{Optimizer, clip_grad_norm};

/// A training step: a model, an optimizer of its parameters, and the loss of a batch.
///
/// Numbers that change from step to step, such as a clip range or a coefficient of the loss, are tensors of rank 0 in
/// the batch; the learning rate is the optimizer's.
///
/// ```
/// use polygrad_nn::{Linear, Module, TrainStep};
/// use polygrad_nn::optim::Adam;
/// use polygrad_nn::loss::{Reduction, mse_loss};
/// use polygrad_tensor::{Device, Result, Tensor};
/// # fn run(device: &Device) -> Result<()> {
/// let model = Linear::new(3, 1, device)?;
/// let optimizer = Adam::new(model.parameters(), 1e-2)?;
/// let train_step = TrainStep::new(model, optimizer, |model: &Linear, batch: &[Tensor]| {
///     mse_loss(&model.forward(&batch[0])?, &batch[1])
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
    sync: Option<Arc<dyn GradientSync<B>>>,
    backend: PhantomData<B>,
}

impl<M, O, L, R, B> TrainStep<M, O, L, B>
where
    B: Backend,
    M: Module<B>,
    O: Optimizer<B>,
    L: Fn(&M, &[Tensor<B>]) -> Result<R>,
    R: StepOutputs<B>,
{
    /// A step for a model, an optimizer of its parameters, and a function that computes the loss (one element) of a
    /// batch. It may also return other tensors that the caller wants to see, such as the model's output, in a tuple
    /// after the loss.
    pub fn new(model: M, optimizer: O, loss: L) -> Self {
        Self {
            model,
            optimizer,
            loss,
            max_norm: None,
            sync: None,
            backend: PhantomData,
        }
    }

    /// Scales the gradients down if their norm exceeds this, as [`clip_grad_norm`]. Default: no clipping.
    #[must_use]
    pub fn clip_grad_norm(mut self, max_norm: f64) -> Self {
        self.max_norm = Some(max_norm);
        self
    }

    /// Trains together with other processes: the optimizer gets the gradients that `sync` computes from those of all
    /// ranks. Default: this process only.
    #[must_use]
    pub fn gradient_sync(mut self, sync: Arc<dyn GradientSync<B>>) -> Self {
        self.sync = Some(sync);
        self
    }

    /// Trains on a batch; returns the loss function's outputs from before the step, outside the gradient graph.
    ///
    /// # Errors
    /// Those of [`TrainStep::backward`] and of [`TrainStep::update`].
    pub fn step(&mut self, batch: &[Tensor<B>]) -> Result<R> {
        let (outputs, gradients) = self.backward(batch)?;
        self.update(gradients)?;
        Ok(outputs)
    }

    /// The first half of [`TrainStep::step`]: the loss function's outputs, outside the gradient graph, and the
    /// gradients. The graph is dropped afterwards, so that parameters can be changed in place.
    ///
    /// # Errors
    /// Those of the loss function and of [`Tensor::backward`].
    pub fn backward(&self, batch: &[Tensor<B>]) -> Result<(R, Gradients<B>)> {
        let (outputs, gradients) = self.computed(batch)?;
        Ok((R::from_tensors(outputs)?, gradients))
    }

    fn computed(&self, batch: &[Tensor<B>]) -> Result<(Vec<Tensor<B>>, Gradients<B>)> {
        let outputs = (self.loss)(&self.model, batch).map_err(|e| locate(&self.model, e))?;
        let outputs = outputs.into_tensors();
        let seen: Vec<Tensor<B>> = outputs.iter().map(Tensor::detach).collect();
        let Some(loss) = outputs.into_iter().next() else {
            return Err(Error::invalid("a loss function gave no tensor"));
        };
        let gradients = match &self.sync {
            Some(sync) => sync.backward(&loss)?,
            None => loss.backward()?,
        };
        Ok((seen, gradients))
    }

    /// The second half of [`TrainStep::step`]: updates the parameters by the gradients.
    ///
    /// # Errors
    /// Those of [`GradientSync::finish`], of [`clip_grad_norm`] and of [`Optimizer::step`].
    pub fn update(&mut self, mut gradients: Gradients<B>) -> Result<()> {
        if let Some(sync) = &self.sync {
            gradients = sync.finish(gradients)?;
        }
        if let Some(max_norm) = self.max_norm {
            clip_grad_norm(&mut gradients, max_norm)?;
        }
        self.optimizer.step(&gradients)
    }

    /// The model.
    pub fn model(&self) -> &M {
        &self.model
    }

    /// The optimizer.
    pub fn optimizer(&self) -> &O {
        &self.optimizer
    }

    /// The optimizer, for learning rates and checkpoints.
    pub fn optimizer_mut(&mut self) -> &mut O {
        &mut self.optimizer
    }

    /// Takes the step apart.
    pub fn into_parts(self) -> (M, O) {
        (self.model, self.optimizer)
    }
}

impl<M, O, L, R> TrainStep<M, O, L>
where
    M: Module,
    O: Optimizer,
    L: Fn(&M, &[Tensor]) -> Result<R>,
    R: StepOutputs,
{
    /// The same step, with its loss and gradients recorded in the first two runs and replayed from then on: see
    /// [`CapturedStep`].
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
