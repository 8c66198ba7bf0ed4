//! One step: from a batch to gradients.

use std::rc::Rc;
use std::sync::Arc;

use polygrad_core::{Error, Result};
use polygrad_nn::optim::{GradScaler, Optimizer};
use polygrad_nn::{CapturedStep, GradientSync, Module, StepOutputs, TrainStep};
use polygrad_tensor::{DType, Gradients, Tensor, no_grad};

use crate::DataParallel;

/// The result of a loss function on a batch: the loss and, for metrics, the predictions with their targets.
#[derive(Debug)]
pub struct Step {
    pub(super) loss: Tensor,
    pub(super) outputs: Option<(Tensor, Tensor)>,
}

impl Step {
    /// A loss of one element, the mean over the batch.
    pub fn new(loss: Tensor) -> Self {
        Self { loss, outputs: None }
    }

    /// Adds predictions and targets, for the metrics.
    #[must_use]
    pub fn outputs(mut self, predictions: Tensor, targets: &Tensor) -> Self {
        self.outputs = Some((predictions, targets.clone()));
        self
    }

    /// The same, outside of the gradient graph.
    fn detached(&self) -> Self {
        let outputs = self.outputs.as_ref();
        Self {
            loss: self.loss.detach(),
            outputs: outputs.map(|(predictions, targets)| (predictions.detach(), targets.detach())),
        }
    }
}

impl From<Tensor> for Step {
    fn from(loss: Tensor) -> Self {
        Self::new(loss)
    }
}

impl StepOutputs for Step {
    fn into_tensors(self) -> Vec<Tensor> {
        let outputs = self.outputs.map(|(predictions, targets)| [predictions, targets]);
        [self.loss].into_iter().chain(outputs.into_iter().flatten()).collect()
    }

    fn from_tensors(tensors: Vec<Tensor>) -> Result<Self> {
        let count = tensors.len();
        let mut tensors = tensors.into_iter();
        match (tensors.next(), tensors.next(), tensors.next()) {
            (Some(loss), None, None) => Ok(Self::new(loss)),
            (Some(loss), Some(predictions), Some(targets)) => Ok(Self::new(loss).outputs(predictions, &targets)),
            _ => Err(Error::invalid(format!("{count} tensors are no outputs of a step"))),
        }
    }
}

/// Batches that consist only of tensors, as a [captured](crate::TrainerConfig::build_captured) step needs: a tensor, or
/// a tuple of up to four.
pub trait Tensors: Sized {
    /// All of them.
    fn to_tensors(&self) -> Vec<Tensor>;

    /// A batch of the same type, made of other tensors.
    ///
    /// # Errors
    /// When the number of tensors differs.
    fn from_tensors(tensors: &[Tensor]) -> Result<Self>;
}

impl Tensors for Tensor {
    fn to_tensors(&self) -> Vec<Tensor> {
        vec![self.clone()]
    }

    fn from_tensors(tensors: &[Tensor]) -> Result<Self> {
        let [only] = exactly(tensors)?;
        Ok(only)
    }
}

macro_rules! tuples {
    ($(($($name:ident $type:ident),*))*) => {$(
        impl Tensors for ($($type,)*) {
            fn to_tensors(&self) -> Vec<Tensor> {
                let ($($name,)*) = self;
                vec![$($name.clone()),*]
            }

            fn from_tensors(tensors: &[Tensor]) -> Result<Self> {
                let [$($name),*] = exactly(tensors)?;
                Ok(($($name,)*))
            }
        }
    )*};
}

tuples! {
    (a Tensor, b Tensor)
    (a Tensor, b Tensor, c Tensor)
    (a Tensor, b Tensor, c Tensor, d Tensor)
}

fn exactly<const N: usize>(tensors: &[Tensor]) -> Result<[Tensor; N]> {
    let count = tensors.len();
    tensors
        .to_vec()
        .try_into()
        .map_err(|_| Error::invalid(format!("a batch has {count} tensors instead of {N}")))
}

/// Computes the loss of a batch.
pub(super) type Loss<M, T> = Rc<dyn Fn(&M, &T) -> Result<Step>>;

type CapturedLoss<M> = Box<dyn Fn(&Rc<M>, &[Tensor]) -> Result<Step>>;

type Captured<M> = CapturedStep<Rc<M>, Box<dyn Optimizer>, CapturedLoss<M>>;

/// A model's optimizer together with the source of its gradients.
pub(super) enum Stepper<M: Module, T> {
    Written(Box<dyn Optimizer>),
    Captured(Box<Captured<M>>, fn(&T) -> Vec<Tensor>),
}

impl<M: Module + 'static, T: 'static> Stepper<M, T> {
    /// If the loss `is_scaled`, the scale is passed after the tensors of the batch.
    pub(super) fn captured(
        model: &Rc<M>,
        optimizer: Box<dyn Optimizer>,
        loss: Loss<M, T>,
        is_scaled: bool,
        parallel: Option<Arc<DataParallel>>,
    ) -> Self
    where
        T: Tensors,
    {
        let loss = move |model: &Rc<M>, inputs: &[Tensor]| match inputs.split_last() {
            Some((scale, batch)) if is_scaled => {
                let mut step = loss(model, &T::from_tensors(batch)?)?;
                step.loss = step.loss.to_dtype(step.loss.dtype().promote(DType::F32))?.mul(scale)?;
                Ok(step)
            }
            _ => loss(model, &T::from_tensors(inputs)?),
        };
        let mut step = TrainStep::new(Rc::clone(model), optimizer, Box::new(loss) as CapturedLoss<M>);
        if let Some(parallel) = parallel {
            step = step.gradient_sync(parallel);
        }
        Self::Captured(Box::new(step.captured()), T::to_tensors)
    }

    /// The outputs for a batch, outside of the gradient graph, and the gradients of the scaled loss.
    pub(super) fn backward(
        &mut self,
        model: &M,
        loss: &Loss<M, T>,
        batch: &T,
        scaler: Option<&GradScaler>,
        sync: Option<Arc<dyn GradientSync>>,
    ) -> Result<(Step, Gradients)> {
        match (self, scaler) {
            (Self::Written(_), _) => {
                let step = loss(model, batch)?;
                let detached = step.detached();
                let loss = match scaler {
                    Some(scaler) => scaler.scale(step.loss)?,
                    None => step.loss,
                };
                let gradients = match &sync {
                    Some(sync) => sync.backward(&loss)?,
                    None => loss.backward()?,
                };
                Ok((detached, gradients))
            }
            (Self::Captured(step, tensors), None) => step.backward(&tensors(batch)),
            (Self::Captured(step, tensors), Some(scaler)) => {
                let mut inputs = tensors(batch);
                let Some(device) = inputs.first().map(Tensor::device) else {
                    return Err(Error::invalid("a batch has no tensors"));
                };
                let scale = scaler.get_scale();
                inputs.push(Tensor::new(scale as f32, &device)?);
                let (mut step, gradients) = step.backward(&inputs)?;
                step.loss = no_grad(|| step.loss.div(scale))?;
                Ok((step, gradients))
            }
        }
    }

    pub(super) fn optimizer(&self) -> &dyn Optimizer {
        match self {
            Self::Written(optimizer) => &**optimizer,
            Self::Captured(step, _) => &**step.optimizer(),
        }
    }

    pub(super) fn optimizer_mut(&mut self) -> &mut dyn Optimizer {
        match self {
            Self::Written(optimizer) => &mut **optimizer,
            Self::Captured(step, _) => &mut **step.optimizer_mut(),
        }
    }
}
