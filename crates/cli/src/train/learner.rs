//! A model that learns: what a training step takes.

use std::rc::Rc;

use polygrad::nn::{Module, Optimizer, Schedule, Sequential, SequentialLR, loss::cross_entropy};
use polygrad::{Backend, Device};

use super::optimizer;
use crate::data::files::Dataset;
use crate::failure::{Failure, Result};
use crate::feed::{Epoch, Feed};
use crate::model;
use crate::progress::short;
use crate::run::config::Config;

/// A model with its optimizer and its images.
pub(crate) struct Learner<'a, B: Backend> {
    pub(super) feed: Feed<'a, B>,
    pub(crate) model: Rc<Sequential<B>>,
    pub(super) optimizer: Box<dyn Optimizer<B>>,
    schedule: SequentialLR,
    config: Config,
}

/// How the model did on a batch, before it learnt from it.
pub(crate) struct Answers {
    /// The mean loss.
    pub(super) loss: f64,
    /// How many were right.
    pub(super) right: u64,
}

impl<'a, B: Backend> Learner<'a, B> {
    /// A new model, with weights from this thread's generator.
    ///
    /// # Errors
    /// Those of the device; images that do not suit the model.
    pub(crate) fn new(config: &Config, data: &'a Dataset, device: &'a Device<B>) -> Result<Self> {
        let feed = Feed::new(&data.train, &config.input, device);
        let model = model::build(config.model, &config.input, config.classes.len(), device)?;
        let optimizer = optimizer::build(config.optimizer, config.lr, model.parameters())?;
        let steps = feed.len().div_ceil(config.batch_size) * config.epochs;
        Ok(Self {
            feed,
            model: Rc::new(model),
            optimizer,
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
        let logits = self.model.forward(&batch.images)?;
        let loss = cross_entropy(&logits, &batch.labels)?;
        let value = loss.item()?;
        if !value.is_finite() {
            return Err(Failure::new(format!(
                "the loss is {value} at step {}, in epoch {}",
                steps + 1,
                steps / self.batches() as u64 + 1
            ))
            .fix(format!("start a new run with an --lr below {}", short(self.config.lr))));
        }
        let gradients = loss.backward()?;
        // The graph holds the parameters: without it they are updated in place.
        let seen = logits.detach();
        drop((loss, logits));
        self.optimizer.set_lr(self.schedule.lr(self.config.lr, steps));
        self.optimizer.step(&gradients)?;
        let answers = seen.argmax(1, false)?.to_vec::<i64>()?;
        let truth = indices.iter().map(|&index| i64::from(self.feed.label(index)));
        let right = truth.zip(answers).filter(|(label, answer)| label == answer).count();
        Ok(Answers {
            loss: value,
            right: right as u64,
        })
    }
}
