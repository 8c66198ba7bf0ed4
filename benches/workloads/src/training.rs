//! Training steps: forward, cross entropy, backward, optimizer.

use std::hint::black_box;
use std::rc::Rc;

use polygrad_nn::loss::cross_entropy;
use polygrad_nn::optim::{Adam, AdamW, Optimizer, SGD, SGDConfig};
use polygrad_nn::{Compile, Forward, Module, Param, TrainStep};
use polygrad_tensor::{AnyBackend, Backend, Device, Error, Result, Tensor, no_grad};

use crate::data::{INPUT, TARGET, classes, noise};
use crate::{Prepared, Step, prepared};

/// The optimizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Optim {
    /// Learning rate 0.01.
    Sgd,
    /// Learning rate 0.01, momentum 0.9.
    Momentum,
    /// Learning rate 0.001.
    Adam,
    /// Learning rate 0.001, weight decay 0.01.
    AdamW,
}

impl Optim {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sgd => "sgd",
            Self::Momentum => "momentum",
            Self::Adam => "adam",
            Self::AdamW => "adamw",
        }
    }

    fn build<B: Backend>(self, params: Vec<Param<B>>) -> Result<Box<dyn Optimizer<B>>> {
        Ok(match self {
            Self::Sgd => Box::new(SGD::new(params, 0.01)?),
            Self::Momentum => Box::new(SGDConfig::new(0.01).momentum(0.9).build(params)?),
            Self::Adam => Box::new(Adam::new(params, 1e-3)?),
            Self::AdamW => Box::new(AdamW::new(params, 1e-3)?),
        })
    }
}

/// The input of a workload.
pub(crate) fn input<B: Backend>(shape: &[usize], device: &Device<B>) -> Result<Tensor<B>> {
    Tensor::from_vec(noise(shape.iter().product(), INPUT), shape, device)
}

/// How the model of a workload is run.
pub trait Mode<B: Backend> {
    /// A step that computes a model's output for an input, without gradients.
    ///
    /// # Errors
    /// If the model cannot be run in this mode.
    fn forward<M: Forward<B> + 'static>(model: Rc<M>, x: Tensor<B>) -> Result<Step>;

    /// A step that trains and returns its loss.
    ///
    /// # Errors
    /// If the step cannot be run in this mode.
    fn run<M, O, L>(step: TrainStep<M, O, L, B>, batch: [Tensor<B>; 2]) -> Result<Step>
    where
        M: Module<B> + 'static,
        O: Optimizer<B> + 'static,
        L: Fn(&M, &[Tensor<B>]) -> Result<Tensor<B>> + 'static;
}

/// Op by op, on any backend.
#[derive(Clone, Copy, Debug)]
pub struct Eager;

/// Recorded and replayed: [`TrainStep::captured`] or, without training, [`Compile::compile`].
#[derive(Clone, Copy, Debug)]
pub struct Captured;

impl<B: Backend> Mode<B> for Eager {
    fn forward<M: Forward<B> + 'static>(model: Rc<M>, x: Tensor<B>) -> Result<Step> {
        Ok(Box::new(move || {
            black_box(no_grad(|| model.forward(&x))?);
            Ok(None)
        }))
    }

    fn run<M, O, L>(mut step: TrainStep<M, O, L, B>, batch: [Tensor<B>; 2]) -> Result<Step>
    where
        M: Module<B> + 'static,
        O: Optimizer<B> + 'static,
        L: Fn(&M, &[Tensor<B>]) -> Result<Tensor<B>> + 'static,
    {
        Ok(Box::new(move || step.step(&batch)?.item().map(Some)))
    }
}

impl Mode<AnyBackend> for Captured {
    fn forward<M: Forward + 'static>(model: Rc<M>, x: Tensor) -> Result<Step> {
        let compiled = model.compile(&x)?;
        Ok(Box::new(move || {
            black_box(compiled.forward(&x)?);
            Ok(None)
        }))
    }

    fn run<M, O, L>(step: TrainStep<M, O, L>, batch: [Tensor; 2]) -> Result<Step>
    where
        M: Module + 'static,
        O: Optimizer + 'static,
        L: Fn(&M, &[Tensor]) -> Result<Tensor> + 'static,
    {
        let mut step = step.captured();
        Ok(Box::new(move || {
            let loss = step.step(&batch)?.item()?;
            match step.refusal() {
                // Otherwise an uncaptured step would be timed as a captured one.
                Some(why) => Err(Error::invalid(format!("the step cannot be captured: {why}"))),
                None => Ok(Some(loss)),
            }
        }))
    }
}

/// Trains `model` on one batch, whose targets are `rows` classes out of `of`.
pub(crate) fn training<B: Backend, W: Mode<B>, M: Module<B> + 'static>(
    model: M,
    optim: Optim,
    x: Tensor<B>,
    (rows, of): (usize, usize),
    forward: impl Fn(&M, &Tensor<B>) -> Result<Tensor<B>> + 'static,
) -> Result<Prepared<B>> {
    let params = prepared::begin(&model)?;
    let target = Tensor::from_vec(classes(rows, of, TARGET), [rows], &x.device())?;
    let optimizer = optim.build(model.parameters())?;
    let model = Rc::new(model);
    let shown = Rc::clone(&model);
    let step = TrainStep::new(model, optimizer, move |model: &Rc<M>, batch: &[Tensor<B>]| {
        cross_entropy(&forward(model, &batch[0])?, &batch[1])
    });
    Ok(Prepared::new(params, W::run(step, [x, target])?).with_model(shown))
}
