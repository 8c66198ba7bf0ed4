//! Training steps: forward, cross entropy, backward, optimizer.

use std::rc::Rc;

use polygrad_nn::loss::cross_entropy;
use polygrad_nn::{Adam, AdamW, Module, Optimizer, Param, SGD, SGDConfig};
use polygrad_tensor::{Backend, Device, Result, Tensor};

use crate::data::{INPUT, TARGET, classes, noise};
use crate::{Prepared, prepared};

/// How weights are updated.
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

/// Trains `model` on one batch, whose targets are `rows` classes out of `of`.
pub(crate) fn training<B: Backend, M: Module<B> + 'static>(
    model: M,
    optim: Optim,
    x: Tensor<B>,
    (rows, of): (usize, usize),
    forward: impl Fn(&M, &Tensor<B>) -> Result<Tensor<B>> + 'static,
) -> Result<Prepared<B>> {
    let params = prepared::begin(&model)?;
    let target = Tensor::from_vec(classes(rows, of, TARGET), [rows], &x.device())?;
    let mut optimizer = optim.build(model.parameters())?;
    let model = Rc::new(model);
    let shown = Rc::clone(&model);
    let prepared = Prepared::new(params, move || {
        let loss = cross_entropy(&forward(&model, &x)?, &target)?;
        let (gradients, value) = (loss.backward()?, loss.item()?);
        // The graph holds the parameters: without it they are updated in place.
        drop(loss);
        optimizer.step(&gradients)?;
        Ok(Some(value))
    });
    Ok(prepared.with_model(shown))
}
