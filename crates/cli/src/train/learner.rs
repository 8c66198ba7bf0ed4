//! A model that learns: what a training step takes.

use std::rc::Rc;

use polygrad::nn::{CapturedStep, Module, Sequential, TrainStep, loss::cross_entropy};
use polygrad::optim::{Optimizer, Schedule, SequentialLR};
use polygrad::{Device, Tensor};

use super::optimizer;
use crate::data::files::Dataset;
use crate::failure::{Failure, Result};
use crate::feed::{Epoch, Feed};
use crate::model;
use crate::progress::short;
use crate::run::config::Config;

/// A model with its optimizer and its images.
pub(crate) struct Learner<'a> {
    pub(super) feed: Feed<'a>,
    pub(crate) model: Rc<Sequential>,
    step: Step,
    schedule: SequentialLR,
    config: Config,
}

type Step = CapturedStep<Rc<Sequential>, Box<dyn Optimizer>, Loss>;

/// Gives the loss and the logits of a batch.
type Loss = fn(&Rc<Sequential>, &[Tensor]) -> polygrad::Result<(Tensor, Tensor)>;

/// How the model did on a batch, before it learnt from it.
pub(crate) struct Answers {
    /// The mean loss.
    pub(super) loss: f64,
    /// How many were right.
    pub(super) right: u64,
}

impl<'a> Learner<'a> {
    /// A new model, with weights from this thread's generator.
    ///
    /// # Errors
    /// Those of the device; images that do not suit the model.
    pub(crate) fn new(config: &Config, data: &'a Dataset, device: &'a Device) -> Result<Self> {
        let feed = Feed::new(&data.train, &config.input, device);
        let model = model::build(config.model, &config.input, config.classes.len(), device)?;
        let model = Rc::new(model);
        let optimizer = optimizer::build(config.optimizer, config.lr, model.parameters())?;
        let step = TrainStep::new(Rc::clone(&model), optimizer, loss as Loss);
        let steps = feed.len().div_ceil(config.batch_size) * config.epochs;
        Ok(Self {
            feed,
            model,
            step: step.captured(),
            schedule: optimizer::schedule(steps as u64),
            config: config.clone(),
        })
    }

    /// The order in which the images are shown in an epoch, and what else chance decides in it.
    pub(crate) fn epoch(&self, number: usize) -> (Epoch, Vec<u32>) {
        let chance = Epoch::new(self.config.seed, number);
        let order = chance.order(self.feed.len());
        (chance, order)
    }

    /// Batches in an epoch.
    pub(crate) fn batches(&self) -> usize {
        self.feed.len().div_ceil(self.config.batch_size)
    }

    /// Learns from a batch, after `steps` others.
    ///
    /// # Errors
    /// A loss that is no number, from which nothing is learnt; those of the device.
    pub(crate) fn step(&mut self, indices: &[u32], chance: &Epoch, steps: u64) -> Result<Answers> {
        let mirror = self.config.mirror;
        let batch = self.feed.batch(indices, |index| mirror && chance.mirrors(index))?;
        let ((loss, logits), gradients) = self.step.backward(&[batch.images, batch.labels])?;
        let value = loss.item()?;
        if !value.is_finite() {
            return Err(Failure::new(format!(
                "the loss is {value} at step {}, in epoch {}",
                steps + 1,
                steps / self.batches() as u64 + 1
            ))
            .fix(format!("start a new run with an --lr below {}", short(self.config.lr))));
        }
        let lr = self.schedule.lr(self.config.lr, steps);
        self.optimizer_mut().set_lr(lr);
        self.step.update(gradients)?;
        let answers = logits.argmax(1)?.to_vec::<i64>()?;
        let truth = indices.iter().map(|&index| i64::from(self.feed.label(index)));
        let right = truth.zip(answers).filter(|(label, answer)| label == answer).count();
        Ok(Answers {
            loss: value,
            right: right as u64,
        })
    }

    /// What changes the weights.
    pub(super) fn optimizer(&self) -> &dyn Optimizer {
        &**self.step.optimizer()
    }

    /// [`Learner::optimizer`], to change.
    pub(super) fn optimizer_mut(&mut self) -> &mut dyn Optimizer {
        &mut **self.step.optimizer_mut()
    }
}

fn loss(model: &Rc<Sequential>, batch: &[Tensor]) -> polygrad::Result<(Tensor, Tensor)> {
    let logits = model.forward(&batch[0])?;
    Ok((cross_entropy(&logits, &batch[1])?, logits))
}
