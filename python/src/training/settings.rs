//! The training settings of `polygrad.Model.fit`.

use polygrad::nn::Param;
use polygrad::nn::loss::{bce_with_logits, cross_entropy, huber_loss, l1_loss, mse_loss, smooth_l1_loss};
use polygrad::optim::{
    AdagradConfig, AdamConfig, CosineAnnealingLR, LambdaLR, LionConfig, Optimizer, RMSpropConfig, SGDConfig,
};
use polygrad::train::{
    Accuracy, Auroc, F1, MeanAbsoluteError, MeanSquaredError, Precision, R2Score, Recall, RootMeanSquaredError, Step,
    TrainerConfig,
};
use polygrad::{Error, Result, Tensor};
use serde::{Deserialize, Serialize};

/// All settings, as stored in a run's `config.json`.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Settings {
    pub(super) epochs: u64,
    pub(super) learning_rate: f64,
    pub(super) schedule: Rates,
    pub(super) optimizer: Rule,
    pub(super) weight_decay: Option<f64>,
    pub(super) momentum: Option<f64>,
    #[serde(flatten)]
    pub(super) judged: Judged,
    pub(super) shuffle: bool,
    pub(super) seed: u64,
    pub(super) clip_grad_norm: Option<f64>,
    pub(super) accumulate: u64,
    pub(super) early_stopping: Option<u64>,
    pub(super) restore_best: bool,
    pub(super) log_every: Option<u64>,
    pub(super) freeze: Vec<String>,
}

/// The settings that an evaluation needs.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Judged {
    pub(super) loss: Loss,
    pub(super) metrics: Vec<Figure>,
    pub(super) batch_size: usize,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Rates {
    Constant,
    Linear,
    Cosine,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Rule {
    Sgd,
    Adam,
    AdamW,
    RmsProp,
    Adagrad,
    Lion,
}

#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Loss {
    CrossEntropy,
    BceWithLogits,
    Mse,
    L1,
    SmoothL1,
    Huber,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Figure {
    Accuracy,
    F1,
    Precision,
    Recall,
    Auroc,
    Mae,
    Mse,
    Rmse,
    R2,
}

impl Settings {
    /// # Errors
    /// If a rate or a share is out of range for the optimizer, or the optimizer does not have it.
    pub(super) fn optimizer(&self, params: Vec<Param>) -> Result<Box<dyn Optimizer>> {
        let (lr, decay) = (self.learning_rate, self.weight_decay);
        if self.momentum.is_some() && !matches!(self.optimizer, Rule::Sgd | Rule::RmsProp) {
            return Err(
                Error::invalid("momentum is an option of sgd and rmsprop, and the optimizer is another one")
                    .with_hint("leave it out"),
            );
        }
        let momentum = self.momentum.unwrap_or(0.0);
        Ok(match self.optimizer {
            Rule::Sgd => Box::new(
                SGDConfig::new(lr)
                    .momentum(momentum)
                    .weight_decay(decay.unwrap_or(0.0))
                    .build(params)?,
            ),
            Rule::Adam => Box::new(AdamConfig::new(lr).weight_decay(decay.unwrap_or(0.0)).build(params)?),
            Rule::AdamW => {
                let config = AdamConfig::adamw(lr);
                Box::new(decay.into_iter().fold(config, AdamConfig::weight_decay).build(params)?)
            }
            Rule::RmsProp => {
                let config = RMSpropConfig::new(lr).momentum(momentum);
                Box::new(config.weight_decay(decay.unwrap_or(0.0)).build(params)?)
            }
            Rule::Adagrad => Box::new(
                AdagradConfig::new(lr)
                    .weight_decay(decay.unwrap_or(0.0))
                    .build(params)?,
            ),
            Rule::Lion => Box::new(LionConfig::new(lr).weight_decay(decay.unwrap_or(0.0)).build(params)?),
        })
    }

    /// The options of a training of this number of steps, if it is known.
    ///
    /// # Errors
    /// If a schedule needs an unknown number of steps.
    pub(super) fn options(&self, steps: Option<u64>) -> Result<TrainerConfig> {
        let end = || {
            steps.ok_or_else(|| {
                Error::invalid("the learning rate follows a schedule, and it is not known how many batches there are")
                    .with_hint("give batches that have a len(), or schedule=\"constant\"")
            })
        };
        let mut options = TrainerConfig::epochs(self.epochs)
            .accumulate(self.accumulate)
            .restore_best(self.restore_best);
        options = match self.schedule {
            Rates::Constant => options,
            Rates::Linear => {
                let end = end()? as f64;
                options.schedule(LambdaLR::new(move |step| 1.0 - (step as f64 / end).min(1.0)))
            }
            Rates::Cosine => options.schedule(CosineAnnealingLR::new(end()?.max(1))),
        };
        options = self
            .clip_grad_norm
            .into_iter()
            .fold(options, TrainerConfig::clip_grad_norm);
        options = self
            .early_stopping
            .into_iter()
            .fold(options, TrainerConfig::early_stopping);
        options = self.log_every.into_iter().fold(options, TrainerConfig::log_every);
        Ok(self.judged.metrics(options))
    }
}

impl Judged {
    pub(super) fn metrics(&self, options: TrainerConfig) -> TrainerConfig {
        self.metrics.iter().fold(options, |options, figure| match figure {
            Figure::Accuracy => options.metric(Accuracy::new()),
            Figure::F1 => options.metric(F1::new()),
            Figure::Precision => options.metric(Precision::new()),
            Figure::Recall => options.metric(Recall::new()),
            Figure::Auroc => options.metric(Auroc::new()),
            Figure::Mae => options.metric(MeanAbsoluteError::new()),
            Figure::Mse => options.metric(MeanSquaredError::new()),
            Figure::Rmse => options.metric(RootMeanSquaredError::new()),
            Figure::R2 => options.metric(R2Score::new()),
        })
    }
}

impl Loss {
    /// The loss of a model's output and a target, which may omit a last extent of 1.
    pub(super) fn of(self, output: Tensor, target: &Tensor) -> Result<Step> {
        let is_float = target.dtype().is_float();
        let mut target = if is_float {
            target.to_dtype(output.dtype())?
        } else {
            target.clone()
        };
        if self != Self::CrossEntropy && target.rank() + 1 == output.rank() && output.dims().last() == Some(&1) {
            target = target.reshape(output.shape())?;
        }
        let loss = match self {
            Self::CrossEntropy => cross_entropy(&output, &target),
            Self::BceWithLogits => bce_with_logits(&output, &target),
            Self::Mse => mse_loss(&output, &target),
            Self::L1 => l1_loss(&output, &target),
            Self::SmoothL1 => smooth_l1_loss(&output, &target),
            Self::Huber => huber_loss(&output, &target),
        }?;
        Ok(Step::new(loss).outputs(output, &target))
    }
}
