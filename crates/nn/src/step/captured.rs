//! Training steps that are recorded and replayed.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use polygrad_core::program::refuse;
use polygrad_tensor::{Capture, Gradients, Result, Tensor};

use super::{StepOutputs, TrainStep};
use crate::optim::Optimizer;
use crate::{Buffer, Item, Module, Param, Visitor};

/// A [`TrainStep`] whose loss and gradients are replayed: the backend runs the recorded ops of a step one after
/// another, without the checks, the gradient graph and the code of the layers. Results are the same, including random
/// numbers. The optimizer's step is not recorded, so that its learning rate may change from step to step.
///
/// The first two steps with batches of the same shapes are recorded, for at most eight sets of shapes. Changes of the
/// model's mode, of frozen parameters, of active adapters, of dtype or device are noticed and recorded again. If the
/// two recordings differ, or the loss cannot be recorded, steps are computed as without `captured`, and
/// [`CapturedStep::refusal`] gives the reason: the loss reads values on the host ([`Tensor::item`],
/// [`Tensor::to_vec`]), moves tensors between devices, or uses numbers that differ each time.
///
/// Everything that the loss uses besides model and batch is frozen: a tensor or number from elsewhere keeps the value
/// that it had in the second step. Pass changing values in the batch, a number as a tensor of rank 0.
pub struct CapturedStep<M, O, L> {
    step: TrainStep<M, O, L>,
    params: Vec<Param>,
    buffers: Vec<Buffer>,
    capture: Capture<Vec<bool>>,
}

impl<M, O, L, R> CapturedStep<M, O, L>
where
    M: Module,
    O: Optimizer,
    L: Fn(&M, &[Tensor]) -> Result<R>,
    R: StepOutputs,
{
    pub(super) fn new(step: TrainStep<M, O, L>) -> Self {
        Self {
            params: step.model.parameters(),
            buffers: step
                .model
                .named_buffers()
                .into_iter()
                .map(|(_, buffer)| buffer)
                .collect(),
            step,
            capture: Capture::new(),
        }
    }

    /// Trains on a batch; returns the loss function's outputs from before the step, outside the gradient graph.
    ///
    /// # Errors
    /// As [`TrainStep::step`].
    pub fn step(&mut self, batch: &[Tensor]) -> Result<R> {
        let (outputs, gradients) = self.backward(batch)?;
        self.update(gradients)?;
        Ok(outputs)
    }

    /// Takes the step apart.
    pub fn into_parts(self) -> (M, O) {
        self.step.into_parts()
    }

    /// The first half of [`CapturedStep::step`]: the loss function's outputs, and the gradients.
    ///
    /// # Errors
    /// As [`TrainStep::backward`].
    pub fn backward(&mut self, batch: &[Tensor]) -> Result<(R, Gradients)> {
        let Self {
            step,
            params,
            buffers,
            capture,
        } = self;
        let state = params
            .iter()
            .map(Param::value)
            .chain(buffers.iter().map(Buffer::tensor));
        let inputs = batch.iter().map(Tensor::detach).chain(state).collect();
        let mut written = None;
        // Buffers, gradients, and the loss function's outputs; and which parameters have a gradient.
        let (outputs, has_gradient) = capture.run(variant(&step.model, params), inputs, || {
            let (seen, gradients) = step.computed(batch)?;
            let mut outputs: Vec<Tensor> = buffers.iter().map(Buffer::tensor).collect();
            let of = |param: &Param| gradients.get(param).cloned();
            let found: Vec<Option<Tensor>> = params.iter().map(of).collect();
            let has_gradient: Vec<bool> = found.iter().map(Option::is_some).collect();
            if has_gradient.iter().filter(|has| **has).count() != gradients.len() {
                refuse("its gradient flows into tensors that are no parameters of the model");
            }
            outputs.extend(found.into_iter().flatten());
            outputs.extend(seen.iter().cloned());
            written = Some((seen, gradients));
            Ok((outputs, has_gradient))
        })?;
        if let Some((seen, gradients)) = written {
            return Ok((R::from_tensors(seen)?, gradients));
        }
        let mut outputs = outputs.into_iter();
        for (buffer, value) in buffers.iter().zip(outputs.by_ref()) {
            buffer.set(&value)?;
        }
        let trained = params.iter().zip(&has_gradient).filter(|(_, has)| **has);
        let gradients = Gradients::new(trained.map(|(param, _)| param).zip(outputs.by_ref()));
        Ok((R::from_tensors(outputs.collect())?, gradients))
    }

    /// The second half of [`CapturedStep::step`]: updates the parameters by the gradients.
    ///
    /// # Errors
    /// As [`TrainStep::update`].
    pub fn update(&mut self, gradients: Gradients) -> Result<()> {
        self.step.update(gradients)
    }

    /// Whether a replay is ready for some batch.
    pub fn is_ready(&self) -> bool {
        self.capture.is_ready()
    }

    /// The most bytes of values that a replay of loss and gradients holds at once: activations and gradients, but
    /// neither the batch nor the model's own tensors. `None` if no replay is ready.
    pub fn peak_bytes(&self) -> Option<usize> {
        self.capture.peak_bytes()
    }

    /// Why the last step was not a replay, if steps will never be replayed.
    pub fn refusal(&self) -> Option<&str> {
        self.capture.refusal()
    }

    /// The model.
    pub fn model(&self) -> &M {
        &self.step.model
    }

    /// The optimizer.
    pub fn optimizer(&self) -> &O {
        &self.step.optimizer
    }

    /// The optimizer, for learning rates and checkpoints.
    pub fn optimizer_mut(&mut self) -> &mut O {
        &mut self.step.optimizer
    }

    /// The model and the optimizer, to restore a checkpoint.
    pub fn parts_mut(&mut self) -> (&M, &mut O) {
        (&self.step.model, &mut self.step.optimizer)
    }

    /// The step without the recordings.
    pub fn into_inner(self) -> TrainStep<M, O, L> {
        self.step
    }
}

/// A hash of everything besides shapes that determines which ops a model computes: the mode of its modules, the ranks
/// that they are synchronized over, the active adapters, and which parameters are frozen.
fn variant(model: &impl Module, params: &[Param]) -> u64 {
    let mut hasher = DefaultHasher::new();
    Visitor::walk_unnamed(model, |item| match item {
        Item::Mode(mode) => mode.is_training().hash(&mut hasher),
        Item::Sync(slot) => slot.get().map(|group| Arc::as_ptr(&group).addr()).hash(&mut hasher),
        Item::Adapters(adapters) => adapters.hash_active(&mut hasher),
        Item::Param(_) | Item::Buffer(_) | Item::Module(_) | Item::Unused => {}
    });
    for param in params {
        param.is_trainable().hash(&mut hasher);
    }
    hasher.finish()
}

impl<M, O, L> fmt::Debug for CapturedStep<M, O, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CapturedStep")
            .field("step", &self.step)
            .field("capture", &self.capture)
            .finish_non_exhaustive()
    }
}
